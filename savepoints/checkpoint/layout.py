"""A checkpoint directory as a whole: which batches it has and which files make a cut.

metadata                        {"id": …}, the query's id
offsets/N, commits/N            the two logs
sources/<i>/…                   what a source logs for itself; Kafka's is not needed
state/<operator>/_metadata/…    names and stores of an operator
state/<operator>/<partition>/…  one state store per partition
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from savepoints.checkpoint import commit_log, offset_log, operators, state_files
from savepoints.checkpoint.operators import Operator
from savepoints.errors import (
    CheckpointNotFoundError,
    IncompatibleError,
    NoCommittedBatchError,
    NotAlignedError,
    UnsupportedProviderError,
)
from savepoints.io import Location, ObjectInfo, in_parallel
from savepoints.model import Cut

_BATCH = re.compile(r"^(offsets|commits)/(\d+)$")
_OPERATOR_METADATA = re.compile(r"^state/\d+/_metadata/(metadata|v2/\d+)$")
_SCHEMA = re.compile(r"^state/\d+/(\d+/(?:[^/]+/)?_metadata/schema|_stateSchema/.*)$")
_OPERATOR = re.compile(r"^state/(\d+)/")
_SOURCE_ENTRY = re.compile(r"^sources/(\d+)/(\d+)(?:\.compact)?$")


@dataclass(frozen=True)
class CutFiles:
    """Everything that belongs to one committed batch of a checkpoint.

    Attributes:
        cut: The batch, its offsets, watermark, provider and partitions.
        query_id: Spark's id of the query.
        conf: The Spark settings that the batch ran with.
        operators: Its stateful operators.
        partitions: Number of existing state partitions of each operator.
        small: Files to copy verbatim and first: logs, sources, metadata, schemas.
        state: Snapshots and changelogs.
        ssts: Immutable, uniquely named files that savepoints may share.
    """

    cut: Cut
    query_id: str
    conf: Mapping[str, str]
    operators: tuple[Operator, ...]
    partitions: dict[int, int]
    small: tuple[ObjectInfo, ...]
    state: tuple[ObjectInfo, ...]
    ssts: tuple[ObjectInfo, ...]

    @property
    def all(self) -> tuple[ObjectInfo, ...]:
        """All files, the small ones first."""
        return self.small + self.state + self.ssts


def committed_batches(files: list[ObjectInfo]) -> list[int]:
    """Return the batches that have both an offset and a commit file, oldest first."""
    found: dict[str, set[int]] = {"offsets": set(), "commits": set()}
    for info in files:
        if match := _BATCH.match(info.path):
            found[match.group(1)].add(int(match.group(2)))
    return sorted(found["offsets"] & found["commits"])


def read_cut(checkpoint: Location, batch_id: int | None = None) -> CutFiles:
    """Find the files of a committed batch.

    Args:
        checkpoint: The checkpoint directory of a running or stopped query.
        batch_id: The batch; None for the newest committed one.

    Raises:
        CheckpointNotFoundError: If there is no `metadata` file.
        NoCommittedBatchError: If the batch is not committed or not kept any more.
        UnsupportedProviderError: If the state is not kept by the RocksDB provider.
        IncompatibleError: If some format or operator is not supported.
        FileNotFoundError: If the query's maintenance removed a file meanwhile: try again.
    """
    files = checkpoint.list()
    by_path = {info.path: info for info in files}
    if "metadata" not in by_path:
        raise CheckpointNotFoundError(
            f"there is no Spark checkpoint at {checkpoint}: no file 'metadata'",
            hint="give the directory that the query has as checkpointLocation",
            checkpoint=str(checkpoint),
        )
    batch = _choose(committed_batches(files), batch_id, checkpoint)
    query_id = str(json.loads(checkpoint.get("metadata"))["id"])
    cut, conf = _read_logs(checkpoint, by_path, batch)

    metadata = [path for path in by_path if _OPERATOR_METADATA.match(path)]
    found = in_parallel(lambda path: operators.parse(checkpoint.get(path), path), metadata)
    directories = state_files.store_directories(by_path)
    if found and cut.provider != operators.ROCKSDB_PROVIDER:
        raise UnsupportedProviderError(
            f"the state of {checkpoint} is kept by {cut.provider or 'the default provider'}, "
            "which cannot be saved yet",
            hint="start a new query with spark.sql.streaming.stateStore.providerClass="
            f"{operators.ROCKSDB_PROVIDER}",
            provider=cut.provider,
        )
    described = {operator.operator_id for operator in found}
    if unknown := [path for path in by_path if _operator_of(path) not in {None, *described}]:
        raise IncompatibleError(
            f"{checkpoint} has state without operator metadata, for example {unknown[0]}",
            hint="it was written by Spark before 3.5, or is damaged; run the query with Spark 4.2 "
            "for a batch, or restore it from a savepoint",
            file=unknown[0],
        )
    chains = [state_files.chain(directory, batch + 1) for directory in directories]
    snapshots = [(one.directory, one.snapshot) for one in chains if one.snapshot]
    ssts = [
        f"{directory}/{name}"
        for (directory, _), names in zip(
            snapshots,
            in_parallel(
                lambda item: state_files.listed_ssts(checkpoint.get(item[1]), item[1]), snapshots
            ),
            strict=True,
        )
        for name in names
    ]
    state = [path for _, path in snapshots] + [p for one in chains for p in one.changelogs]
    missing = [path for path in state + ssts if path not in by_path]
    if missing:
        raise FileNotFoundError(missing[0])
    partitions = {
        operator.operator_id: sorted(
            {d.partition for d in directories if d.operator_id == operator.operator_id}
        )
        for operator in found
    }
    for operator_id, existing in partitions.items():
        if existing != list(range(cut.partitions or 0)) and not (
            # A query without grouping keys keeps everything in partition 0.
            existing == [0]
            and operators.has_no_key(checkpoint.get(f"state/{operator_id}/0/_metadata/schema"))
        ):
            raise NotAlignedError(
                f"operator {operator_id} of {checkpoint} has the state partitions {existing}, but "
                f"offsets/{batch} says {cut.partitions} partitions",
                hint="the checkpoint is damaged or was edited: restore from a savepoint",
                operator_id=operator_id,
            )
    small = [
        "metadata",
        *(f"offsets/{n}" for n in (batch - 1, batch) if n >= 0),
        f"commits/{batch}",
        *(path for path in by_path if _OPERATOR_METADATA.match(path) or _SCHEMA.match(path)),
        *_source_entries(by_path, cut),
    ]
    if gone := [path for path in small if path not in by_path]:
        raise NoCommittedBatchError(
            f"{checkpoint}: {gone[0]} is missing, so batch {batch} cannot be restored",
            hint="take the newest batch, or raise spark.sql.streaming.minBatchesToRetain",
            batch_id=batch,
        )
    return CutFiles(
        cut=cut,
        query_id=query_id,
        conf=conf,
        operators=tuple(sorted(found, key=lambda operator: operator.operator_id)),
        partitions={operator_id: len(existing) for operator_id, existing in partitions.items()},
        small=tuple(by_path[path] for path in small),
        state=tuple(by_path[path] for path in state),
        ssts=tuple(by_path[path] for path in ssts),
    )


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
            f"batch {wanted} is not in {checkpoint}, which has {committed[0]} to {committed[-1]}",
            hint=f"choose one of these, for example --at-batch {committed[-1]}",
            batch_id=wanted,
            first=committed[0],
            last=committed[-1],
        )
    return wanted


def _read_logs(
    checkpoint: Location, by_path: dict[str, ObjectInfo], batch: int
) -> tuple[Cut, Mapping[str, str]]:
    offsets_path, commit_path = f"offsets/{batch}", f"commits/{batch}"
    offsets = offset_log.parse(checkpoint.get(offsets_path), offsets_path)
    commit = commit_log.parse(checkpoint.get(commit_path), commit_path)
    format_version = offsets.conf.get(offset_log.CHECKPOINT_FORMAT_KEY, "1")
    if format_version != "1":
        raise IncompatibleError(
            f"{checkpoint}: state store checkpoint format {format_version} cannot be saved yet",
            hint=f"run the query with {offset_log.CHECKPOINT_FORMAT_KEY}=1",
        )
    cut = Cut(
        batch_id=batch,
        committed_at=by_path[commit_path].last_modified,
        watermark_ms=max(offsets.watermark_ms, commit.next_watermark_ms),
        offsets=offsets.sources,
        provider=offsets.provider,
        partitions=offsets.partitions,
    )
    return cut, offsets.conf


def _source_entries(by_path: dict[str, ObjectInfo], cut: Cut) -> list[str]:
    """Choose the entries of the sources' own logs that the cut has already used.

    The file source numbers its entries by its own `logOffset`, which is not the batch id as soon as
    there was a batch without data: one entry too many changes the later batches.
    """
    entries = []
    for path in by_path:
        if match := _SOURCE_ENTRY.match(path):
            source, entry = int(match.group(1)), int(match.group(2))
            position = cut.offsets[source] if source < len(cut.offsets) else None
            if position is None:
                continue  # The source had not begun.
            parsed = json.loads(position)
            limit = parsed.get("logOffset") if isinstance(parsed, dict) else None
            if limit is None or entry <= limit:
                entries.append(path)
    return entries
