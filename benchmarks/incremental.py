"""`incremental`: what a further savepoint copies after 1 % of the keys changed.

The peer is the first savepoint of the query, which has nothing to share. Bytes and objects count
also where a hard link stands for a copy: on S3 they would be copied, by the server.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median

import savepoints
from benchmarks import state
from benchmarks.result import Result, Sample
from savepoints.checkpoint.state.operators import HDFS_PROVIDER, ROCKSDB_PROVIDER


@dataclass(frozen=True)
class _Kind:
    """A way in which Spark keeps state.

    Attributes:
        name: How it is called in the table.
        provider: State store provider.
        changelog_first: Whether the first batch writes changelogs.
        changelog_later: Whether the later ones do.
    """

    name: str
    provider: str = ROCKSDB_PROVIDER
    changelog_first: bool = False
    changelog_later: bool = False


_KINDS = (
    _Kind("RocksDB"),
    _Kind("RocksDB, changelogs on a snapshot", changelog_later=True),
    _Kind("RocksDB, changelogs only", changelog_first=True, changelog_later=True),
    _Kind("Spark's default provider", HDFS_PROVIDER),
)


def measure(directory: Path, keys: int, rounds: int) -> Result:
    """Take a savepoint, then one after each further change; the ratio is that of plain RocksDB."""
    samples: dict[str, list[Sample]] = {}
    notes = []
    for kind in _KINDS:
        first, *later = _savepoints(directory / kind.name, kind, keys, rounds)
        samples[f"{kind.name}: further"] = [_sample(one) for one in later]
        samples[f"{kind.name}: first"] = [_sample(first)]
        shared = median(one.cost.bytes_shared for one in later)
        objects = median(one.cost.objects_shared for one in later)
        ratio = _ratio(samples, kind)
        notes.append(
            f"{kind.name}: {ratio:.2f} times smaller; {objects:.0f} objects with "
            f"{shared / 1e6:.2f} MB shared with the savepoint before"
        )
    return Result(samples, _ratio(samples, _KINDS[0]), tuple(notes))


def _savepoints(
    directory: Path, kind: _Kind, keys: int, changes: int
) -> list[savepoints.Savepoint]:
    checkpoint = state.built(
        directory, keys, provider=kind.provider, changelog=kind.changelog_first
    )
    root = directory / "store"
    root.mkdir()
    store = savepoints.Store.at(str(root)).make()
    taken = [_take(store, checkpoint)]
    for nth in range(changes):
        state.change(checkpoint, keys, nth)
        state.run(checkpoint, provider=kind.provider, changelog=kind.changelog_later)
        taken.append(_take(store, checkpoint))
    return taken


def _take(store: savepoints.Store, checkpoint: Path) -> savepoints.Savepoint:
    return store.create(query="totals", checkpoint=str(checkpoint), forms=("native",)).execute()


def _sample(taken: savepoints.Savepoint) -> Sample:
    cost = taken.cost
    return Sample(cost.pin_seconds, cost.bytes_copied, cost.objects_copied)


def _ratio(samples: dict[str, list[Sample]], kind: _Kind) -> float:
    first, further = (
        median(one.bytes for one in samples[f"{kind.name}: {which}"])
        for which in ("first", "further")
    )
    return first / further
