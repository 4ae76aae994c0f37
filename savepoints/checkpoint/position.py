"""The position of a checkpoint: the last batch committed, the one begun, and the next.

Reads only the two logs and `sources/<source>/0`: a few requests, however large the state.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from savepoints.checkpoint.logs import commit_log, offset_log, planned_batch
from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, lowest_offsets
from savepoints.errors import NoCommittedBatchError, NotAlignedError
from savepoints.io import Location

_BATCH = re.compile(r"^(?:offsets|commits)/(\d+)$")
_INITIAL = re.compile(r"^sources/([^/]+)/0$")


@dataclass(frozen=True)
class CheckpointPosition:
    """How far a query has got.

    Attributes:
        positions: For each source, in the order of the offset log, its next-to-read position after
            batch N as Spark's JSON, where it begins if it has read nothing; empty before the first
            batch.
        begun: N + 1 when the offset log has it already: planned, or begun by a query that died.
        initial: By source number, where a source begins that has read nothing; only Kafka's record
            it.
        watermark_moved: Batch N moved the watermark, so that a batch without input would evict
            state and emit rows.
        next_watermark_ms: The watermark of batch N + 1, milliseconds since 1970.
    """

    committed: int | None
    positions: tuple[str | None, ...]
    begun: int | None
    begun_positions: tuple[str | None, ...]
    initial: Mapping[int, str]
    watermark_moved: bool
    next_watermark_ms: int

    @property
    def next_batch(self) -> int:
        """Number of the batch after the newest committed one."""
        return 0 if self.committed is None else self.committed + 1

    @property
    def offsets(self) -> KafkaOffsets:
        """Next-to-read offset by topic and partition; sources of other kinds are left out.

        Where two sources read one topic, the one that is behind counts.
        """
        return lowest_offsets(self.initial.values() if self.committed is None else self.positions)


def newest_in(checkpoint: Location, log: str) -> int:
    """Return the newest batch in one of a checkpoint's logs, by one listing; -1 for none.

    Args:
        log: `offsets`, of batches that have begun, or `commits`.
    """
    names = (info.path.rpartition("/")[2] for info in checkpoint.list(log))
    return max((int(one) for one in names if one.isdigit()), default=-1)


def read(checkpoint: Location) -> CheckpointPosition:
    """Read a checkpoint's position; one that does not exist has run nothing.

    Raises:
        NotAlignedError: If several batches are in the offset log beyond the commit log: Spark would
            run the last and lose the rows of the others.
        NoCommittedBatchError: If the offsets of the newest committed batch are missing.
    """
    offsets, commits = _logs(checkpoint)
    committed = max(commits, default=None)
    ahead = sorted(one for one in offsets if committed is None or one > committed)
    if ahead not in ([], [0 if committed is None else committed + 1]):
        raise NotAlignedError(
            f"{checkpoint} has offsets for batches {', '.join(map(str, ahead))}, but "
            + (
                "no committed batch"
                if committed is None
                else f"batch {committed} is the newest committed one"
            )
            + ": Spark would run only the last of these and lose the rows of the others",
            hint="roll back to a savepoint: savepoints rollback latest",
            checkpoint=str(checkpoint),
            batches=ahead,
        )
    if committed is not None and committed not in offsets:
        raise NoCommittedBatchError(
            f"offsets/{committed} is missing from {checkpoint}, so it is unknown what batch "
            f"{committed} read",
            hint="roll back to a savepoint: savepoints rollback latest",
            checkpoint=str(checkpoint),
            batch_id=committed,
        )
    newest = None if committed is None else offset_log.read(checkpoint, committed)
    begun = ahead[0] if ahead else None
    commit = None if committed is None else commit_log.read(checkpoint, committed)
    next_ = None if begun is None else offset_log.read(checkpoint, begun)
    known = newest or next_
    initial = _initial(checkpoint, known.names if known else ())
    return CheckpointPosition(
        committed,
        _positions(newest, initial),
        begun,
        _positions(next_, initial),
        initial,
        bool(newest and commit and commit.next_watermark_ms > newest.watermark_ms),
        max(
            newest.watermark_ms if newest else 0,
            commit.next_watermark_ms if commit else 0,
            next_.watermark_ms if next_ else 0,
        ),
    )


def empty_entry(checkpoint: Location, now: CheckpointPosition) -> str | None:
    """Return the file of the next batch that has no bytes; None without any.

    A full disk or a crash leaves one. A list has no such files, but Spark stops at it.
    """
    for path in (f"offsets/{now.next_batch}", f"commits/{now.next_batch}"):
        with suppress(FileNotFoundError):
            if checkpoint.head(path).size == 0:
                return path
    return None


def begun_ms(checkpoint: Location, batch: int) -> int:
    """Return when a batch was begun that the offset log has, in milliseconds since 1970."""
    return offset_log.read(checkpoint, batch).timestamp_ms


def _logs(checkpoint: Location) -> tuple[set[int], set[int]]:
    """Return the batches of both logs at one moment: a query commits while they are listed."""
    commits = _batches(checkpoint, "commits")
    while True:
        offsets, after = _batches(checkpoint, "offsets"), _batches(checkpoint, "commits")
        if after == commits:
            return offsets, commits
        commits = after


def _batches(checkpoint: Location, log: str) -> set[int]:
    found = (_BATCH.match(info.path) for info in checkpoint.list(log))
    return {int(match[1]) for match in found if match}


def _positions(
    entry: offset_log.OffsetLogEntry | None, initial: Mapping[int, str]
) -> tuple[str | None, ...]:
    sources = entry.sources if entry else ()
    return tuple(initial.get(n) if one is None else one for n, one in enumerate(sources))


def _initial(checkpoint: Location, names: Sequence[str]) -> dict[int, str]:
    """Return where sources begin.

    Args:
        names: Their directories, in order. Before the first batch they are not known: then a
            directory is called by its number, or, where sources have names, is the next one.
    """
    found = {}
    for info in checkpoint.list("sources"):
        if match := _INITIAL.match(info.path):
            position = planned_batch.parse_initial_position(checkpoint.get(info.path))
            if position is not None:
                found[match[1]] = position
    if names:
        return {n: found[name] for n, name in enumerate(names) if name in found}
    if all(name.isdecimal() for name in found):
        return {int(name): position for name, position in found.items()}
    return dict(enumerate(position for _, position in sorted(found.items())))
