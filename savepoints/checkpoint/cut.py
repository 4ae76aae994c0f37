"""Read a checkpoint directory: its committed batches, and the files that make up a cut.

metadata                        {"id": …}, the query's id
offsets/N, commits/N            the two logs
sources/<i>/…                   what a source logs for itself; Kafka's is not needed
state/<operator>/_metadata/…    names and stores of an operator, since Spark 4.0
state/<operator>/<partition>/…  one state store per partition
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from savepoints.checkpoint import invariants, source_entries
from savepoints.checkpoint.logs import commit_log, offset_log, versioned
from savepoints.checkpoint.logs.commit_log import CommitLogEntry
from savepoints.checkpoint.logs.offset_log import OffsetLogEntry
from savepoints.checkpoint.state import files as state_files
from savepoints.checkpoint.state import operators
from savepoints.checkpoint.state.files import SnapshotChain, StoreDirectory
from savepoints.checkpoint.state.operators import Operator
from savepoints.errors import (
    RESTORE_SAVEPOINT,
    CheckpointNotFoundError,
    IncompatibleError,
    NoCommittedBatchError,
    UnsupportedProviderError,
)
from savepoints.io import Location, ObjectInfo, in_parallel
from savepoints.model import Cut, OperatorState

_BATCH = re.compile(r"^(offsets|commits)/(\d+)$")
_OPERATOR_METADATA = re.compile(r"^state/(\d+)/_metadata/(?:metadata|v2/(\d+))$")
_SCHEMA = re.compile(r"^state/\d+/\d+/(?:[^/]+/)?_metadata/schema$")
_OPERATOR = re.compile(r"^state/(\d+)/")


@dataclass(frozen=True)
class CutFiles:
    """Everything that belongs to one committed batch of a checkpoint.

    Attributes:
        positions: Next-to-read position of each source, by its directory below `sources/`.
        keyless: Operators without grouping keys, whose state is one partition.
        chains: Per state store and partition, the files that make the batch's version.
        small: Files to copy verbatim and first: logs, sources, metadata, schemas.
        ssts: Immutable, uniquely named files that savepoints may share.
    """

    cut: Cut
    query_id: str
    conf: Mapping[str, str]
    positions: Mapping[str, str | None]
    operators: tuple[Operator, ...]
    partitions: dict[int, int]
    keyless: frozenset[int]
    chains: tuple[SnapshotChain, ...]
    small: tuple[ObjectInfo, ...]
    state: tuple[ObjectInfo, ...]
    ssts: tuple[ObjectInfo, ...]

    @property
    def all(self) -> tuple[ObjectInfo, ...]:
        """All files, the small ones first."""
        return self.small + self.state + self.ssts

    @property
    def operator_states(self) -> tuple[OperatorState, ...]:
        """The state of each operator as a savepoint describes it, without rows counted."""
        return tuple(
            OperatorState(
                one.operator_id,
                one.name,
                one.stores,
                self.partitions[one.operator_id],
                native_only=operators.native_only(one, self.conf),
                keyless=one.operator_id in self.keyless,
                column_families=one.has_column_families,
            )
            for one in self.operators
        )


def committed_batches(files: Iterable[ObjectInfo]) -> list[int]:
    """Return the batches that have both an offset and a commit file, oldest first."""
    found: dict[str, set[int]] = {"offsets": set(), "commits": set()}
    for info in files:
        if match := _BATCH.match(info.path):
            found[match.group(1)].add(int(match.group(2)))
    return sorted(found["offsets"] & found["commits"])


def committed_in(checkpoint: Location) -> list[int]:
    """Return the batches that a checkpoint has committed, oldest first.

    Only the two logs are listed, since the state may have many thousands of files.
    """
    return committed_batches(logs_in(checkpoint))


def logs_in(checkpoint: Location) -> list[ObjectInfo]:
    """Return the files of both logs; no commit is among them whose offsets came later."""
    return [info for log in ("offsets", "commits") for info in checkpoint.list(log)]


def read_query_id(checkpoint: Location) -> str:
    """Return Spark's id of a checkpoint's query; FileNotFoundError if it was never started.

    Raises:
        IncompatibleError: If the file is damaged.
    """
    what = "a file with the id of a query"
    text = checkpoint.get("metadata").decode("utf-8", errors="replace")
    content = versioned.parse_object(text, "metadata", what)
    try:
        return str(content["id"])
    except KeyError as error:
        raise versioned.damaged("metadata", what, error) from None


def read_cut(checkpoint: Location, batch_id: int | None = None) -> CutFiles:
    """Find the files of a committed batch.

    Raises:
        NoCommittedBatchError: If the batch is not committed or not kept any more.
        FileNotFoundError: If the query's maintenance removed a file meanwhile: try again.
    """
    by_path = {info.path: info for info in checkpoint.list()}
    if "metadata" not in by_path:
        raise CheckpointNotFoundError(
            f"there is no Spark checkpoint at {checkpoint}: the file 'metadata' is missing",
            hint="pass the directory that the query uses as its checkpointLocation",
            checkpoint=str(checkpoint),
        )
    batch = _choose(committed_batches(by_path.values()), batch_id, checkpoint)
    query_id = read_query_id(checkpoint)
    offsets, commit = offset_log.read(checkpoint, batch), commit_log.read(checkpoint, batch)
    provider = offsets.provider or operators.HDFS_PROVIDER
    metadata = _operator_metadata(by_path, batch)
    directories = state_files.store_directories(by_path)
    found = in_parallel(lambda path: operators.parse(checkpoint.get(path), path), metadata)
    if not found and operators.ENCODING_KEY not in offsets.conf:
        found = operators.of_directories(directories, offsets.partitions)
    _require_readable(checkpoint, provider, found, by_path)
    chains = _chains(checkpoint, directories, batch, offsets, commit)
    state, ssts = _state_files(checkpoint, chains, provider, by_path)
    keyless = _keyless(checkpoint, found, by_path)
    expected = offsets.partitions or max((one.partitions for one in found), default=None)
    stores = {operator.operator_id: operator.stores for operator in found}
    invariants.require_partitions(str(checkpoint), expected, stores, directories, keyless)
    existing = {(one.operator_id, one.partition) for one in directories}
    return CutFiles(
        cut=Cut(
            batch_id=batch,
            committed_at=by_path[f"commits/{batch}"].last_modified,
            watermark_ms=max(offsets.watermark_ms, commit.next_watermark_ms),
            offsets=offsets.sources,
            provider=provider,
            partitions=expected,
            checkpoint_format=2 if commit.state_ids else 1,
        ),
        query_id=query_id,
        conf=offsets.conf,
        positions=offsets.positions,
        operators=tuple(sorted(found, key=lambda operator: operator.operator_id)),
        partitions={one: sum(of == one for of, _ in existing) for one in stores},
        keyless=keyless,
        chains=tuple(chains),
        small=_small_files(
            checkpoint,
            batch,
            [*metadata, *_schemas(found, by_path)],
            offsets,
            by_path,
            has_state=bool(found),
        ),
        state=state,
        ssts=ssts,
    )


def _require_readable(
    checkpoint: Location, provider: str, found: Sequence[Operator], paths: Iterable[str]
) -> None:
    """Reject state of an unknown provider, and state that no operator metadata describes."""
    if found and provider not in operators.PROVIDERS.values():
        raise UnsupportedProviderError(
            f"the state in {checkpoint} was written by the state store provider {provider}, "
            "which is not supported",
            hint="start the query in a new checkpoint with "
            f"{offset_log.PROVIDER_KEY}={operators.ROCKSDB_PROVIDER}",
            provider=provider,
        )
    described = {None, *(operator.operator_id for operator in found)}
    if unknown := [path for path in paths if _operator_of(path) not in described]:
        raise IncompatibleError(
            f"{checkpoint} is damaged: it has state without operator metadata, for example "
            f"{unknown[0]}",
            hint=RESTORE_SAVEPOINT,
            file=unknown[0],
        )


def _state_files(
    checkpoint: Location,
    chains: Sequence[SnapshotChain],
    provider: str,
    by_path: Mapping[str, ObjectInfo],
) -> tuple[tuple[ObjectInfo, ...], tuple[ObjectInfo, ...]]:
    """Return the snapshots with their changes, and the SST files that the snapshots refer to."""
    snapshots = [one.snapshot for one in chains if one.snapshot]
    ssts = _listed_ssts(checkpoint, snapshots) if provider == operators.ROCKSDB_PROVIDER else []
    state = snapshots + [path for one in chains for path in one.changes]
    if missing := [path for path in state + ssts if path not in by_path]:
        raise FileNotFoundError(missing[0])
    return tuple(by_path[path] for path in state), tuple(by_path[path] for path in ssts)


def _schemas(found: Sequence[Operator], paths: Iterable[str]) -> list[str]:
    return [
        *(path for path in paths if _SCHEMA.match(path)),
        *(path for operator in found for path in operator.schema_files),
    ]


def _small_files(
    checkpoint: Location,
    batch: int,
    of_operators: Sequence[str],
    offsets: OffsetLogEntry,
    by_path: Mapping[str, ObjectInfo],
    *,
    has_state: bool,
) -> tuple[ObjectInfo, ...]:
    """Choose the files to copy verbatim, and check that each exists."""
    before = batch - 1 if has_state else _logged_before(batch, by_path)
    small = [
        "metadata",
        *(f"offsets/{n}" for n in (before, batch) if n >= 0),
        f"commits/{batch}",
        *of_operators,
        *source_entries.used(by_path, offsets),
    ]
    if missing := source_entries.missing(by_path, offsets):
        raise FileNotFoundError(missing[0])
    if gone := [path for path in small if path not in by_path]:
        raise NoCommittedBatchError(
            f"batch {batch} of {checkpoint} cannot be used: {gone[0]} is missing",
            hint=state_files.RETAIN_MORE,
            batch_id=batch,
        )
    return tuple(by_path[path] for path in small)


def _logged_before(batch: int, paths: Collection[str]) -> int:
    """Return the batch whose offsets Spark reads before those of a batch when it starts.

    With asynchronous progress tracking most batches are in neither log, and it is the one before
    that is (`AsyncProgressTrackingMicroBatchExecution.validateOffsetLogAndGetPrevOffset`). Only
    queries without state can have that.
    """
    if f"commits/{batch - 1}" in paths:
        return batch - 1
    logged = (
        int(match[2]) for path in paths if (match := _BATCH.match(path)) and match[1] == "offsets"
    )
    return max((one for one in logged if one < batch), default=batch - 1)


def _operator_metadata(by_path: Mapping[str, ObjectInfo], batch: int) -> list[str]:
    """Choose each operator's metadata file; of version 2 the newest that the batch used."""
    chosen: dict[int, tuple[int, str]] = {}
    for path in by_path:
        if match := _OPERATOR_METADATA.match(path):
            operator_id, written = int(match.group(1)), int(match.group(2) or -1)
            if written <= batch:
                chosen[operator_id] = max((written, path), chosen.get(operator_id, (-2, "")))
    return [path for _, path in chosen.values()]


def _chains(
    checkpoint: Location,
    directories: Sequence[StoreDirectory],
    batch: int,
    offsets: OffsetLogEntry,
    commit: CommitLogEntry,
) -> list[SnapshotChain]:
    """Choose the files of version N + 1 of every store."""

    def choose(directory: StoreDirectory) -> SnapshotChain:
        if not commit.state_ids:
            return state_files.chain(directory, batch + 1)
        files = directory.files
        codec = offsets.conf.get(offset_log.CODEC_KEY, "lz4")
        ids = dict(enumerate(commit.state_ids.get(directory.operator_id, ()))).get(
            directory.partition, ()
        )
        # Their order is up to Spark's code, but each id is unique.
        mine = [one for one in ids if any(name.startswith(f"{batch + 1}_{one}.") for name in files)]
        if len(mine) != 1:
            raise FileNotFoundError(f"{directory.path}/{batch + 1}_({'|'.join(ids) or '*'})")
        return state_files.chain_of_id(directory, batch + 1, mine[0], checkpoint.get, codec)

    return in_parallel(choose, directories)


def _listed_ssts(checkpoint: Location, snapshots: Sequence[str]) -> list[str]:
    listed = in_parallel(
        lambda path: state_files.listed_ssts(checkpoint.get(path), path), snapshots
    )
    return [
        f"{snapshot.rpartition('/')[0]}/{name}"
        for snapshot, names in zip(snapshots, listed, strict=True)
        for name in names
    ]


def _keyless(
    checkpoint: Location, found: Sequence[Operator], by_path: Mapping[str, ObjectInfo]
) -> frozenset[int]:
    """Find the operators whose state is a single partition, because it has no key."""
    keyless = {one.operator_id for one in found if operators.is_unpartitioned(one.name)}
    for operator in found:
        schema = f"state/{operator.operator_id}/0/_metadata/schema"
        if schema in by_path and operators.has_no_key(operator, checkpoint.get(schema)):
            keyless.add(operator.operator_id)
    return frozenset(keyless)


def _operator_of(path: str) -> int | None:
    match = _OPERATOR.match(path)
    return int(match.group(1)) if match else None


def _choose(committed: list[int], wanted: int | None, checkpoint: Location) -> int:
    if not committed:
        raise NoCommittedBatchError(
            f"{checkpoint} has no committed batch yet",
            hint="wait until the query has finished its first batch",
            checkpoint=str(checkpoint),
        )
    if wanted is None:
        return committed[-1]
    if wanted not in committed:
        raise NoCommittedBatchError(
            f"{checkpoint} has no committed batch {wanted}: the oldest is {committed[0]}, the "
            f"newest {committed[-1]}",
            hint=f"choose a committed batch, for example --at-batch {committed[-1]}",
            batch_id=wanted,
            first=committed[0],
            last=committed[-1],
        )
    return wanted
