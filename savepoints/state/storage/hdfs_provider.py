"""Read and write the state files of Spark's default state store provider.

Spark's raw reader and its state writer know RocksDB only, so the files are decoded and encoded
here, on the executors: a state partition is a snapshot and the deltas on top of it, each one
compressed stream of records. The executors need access to the checkpoint; this package is sent to
them where they lack it (`savepoints.spark.executors`).
Source: `HDFSBackedStateStoreProvider`; `StatePartitionKeyExtractorFactory` for the placement.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from savepoints.checkpoint.cut import CutFiles
from savepoints.checkpoint.logs import offset_log
from savepoints.checkpoint.logs.offset_log import CODEC_KEY, OffsetLogEntry
from savepoints.checkpoint.state import compression, records
from savepoints.checkpoint.state import schema as state_schema
from savepoints.checkpoint.state.files import SnapshotChain
from savepoints.checkpoint.state.operators import HDFS_PROVIDER, Operator
from savepoints.checkpoint.state.records import ROW_CHECKSUM_KEY, StateRecord
from savepoints.checkpoint.state.schema import DEFAULT_COLUMN_FAMILY, StateField
from savepoints.errors import (
    OTHER_BATCH,
    RESTORE_NATIVE,
    SAVE_NATIVE,
    IncompatibleError,
    NotAlignedError,
    PlacementError,
    StateUnwrittenError,
)
from savepoints.io import Location
from savepoints.state.codec import decode
from savepoints.state.storage.key_names import fit_fields
from savepoints.state.storage.task_files import TaskFiles

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Spark's default when the offset log has none.
_DEFAULT_CODEC = "lz4"
# Number of fields at the end of the state key that do not place its row.
_NOT_PLACED_BY = {
    "stateStoreSave": 0,
    "dedupe": 0,
    "dedupeWithinWatermark": 0,
    "applyInPandasWithState": 0,
    "flatMapGroupsWithState": 0,
    "sessionWindowStateStoreSaveExec": 1,  # the start of the session
    "symmetricHashJoin": 0,
}
_JOINED_ROWS = "-keyWithIndexToValue"  # keyed by the join key and an index
_BATCH_BYTES = 2 << 20


@dataclass(frozen=True)
class _Reading:
    """What an executor needs to know to decode state files."""

    files: TaskFiles
    chains: tuple[SnapshotChain, ...]
    codec: str
    row_checksums: bool
    partition_key: tuple[StateField, ...]
    where: str


def read_store(
    spark: SparkSession, checkpoint: Location, files: CutFiles, operator: Operator, store: str
) -> DataFrame:
    """Read one state store, in the columns of Spark's raw reader for RocksDB and one more.

    Each state partition is a task, which holds in memory what its deltas changed and its compressed
    files, not the partition.

    Args:
        checkpoint: A checkpoint that nobody writes to: a mounted savepoint, not a live query's.

    Returns:
        partition_id (int), partition_key (struct), key_bytes, value_bytes (binary) and
        column_family_name (string). Damaged files end the job that reads them with an error that
        names the file.
    """
    from pyspark.sql import functions as F

    chains = tuple(
        one
        for one in files.chains
        if (one.directory.operator_id, one.directory.store) == (operator.operator_id, store)
    )
    if not chains:
        raise NotAlignedError(
            f"{checkpoint} is damaged: it has no files for the store {store} of operator "
            f"{operator.operator_id}",
            hint=OTHER_BATCH,
            operator_id=operator.operator_id,
            store=store,
        )
    where = f"the key of operator {operator.operator_id} ({operator.name}), store {store}"
    key = _partition_key(checkpoint, operator, store, where)
    reading = _Reading(
        files=TaskFiles.of(checkpoint),
        chains=chains,
        codec=files.conf.get(CODEC_KEY, _DEFAULT_CODEC),
        row_checksums=files.conf.get(ROW_CHECKSUM_KEY) == "true",
        partition_key=key,
        where=where,
    )
    decoded = spark.range(0, len(chains), 1, len(chains)).mapInArrow(
        partial(_decode, reading), _decoded_schema(key)
    )
    return decoded.select(
        "partition_id",
        # Arrow cannot carry a struct without fields.
        (F.col("partition_key") if key else F.struct()).alias("partition_key"),
        "key_bytes",
        "value_bytes",
        F.lit(DEFAULT_COLUMN_FAMILY).alias("column_family_name"),
    )


def write_store(
    placed: DataFrame, checkpoint: Location, version: int, operator_id: int, store: str
) -> dict[int, int]:
    """Write one state store: a snapshot of one version in each of its partitions.

    Args:
        placed: Its canonical rows; partition p of the frame becomes state partition p.
        version: N + 1 for the state of batch N.

    Returns:
        The number of rows written, by state partition.
    """
    from pyspark.errors import PySparkException

    offsets = offset_log.read(checkpoint, version - 1)
    _require_settings(offsets, f"{checkpoint}/offsets/{version - 1}")
    schema_path = state_schema.path(operator_id, store)
    (schema,) = state_schema.parse(checkpoint.get(schema_path), schema_path)
    partitions = (offsets.partitions or 1) if schema.key else 1
    files = TaskFiles.of(checkpoint / f"state/{operator_id}")
    name = state_schema.below_partition(store, f"{version}.snapshot")
    codec = offsets.conf.get(CODEC_KEY, _DEFAULT_CODEC)
    write = partial(_write, files, name, partitions, codec)
    try:
        done = (
            placed.select("key_hash", "key_bytes", "value_bytes")
            .mapInArrow(write, "partition_id int, row_count long")
            .collect()
        )
    except PySparkException as error:
        raise StateUnwrittenError.of(checkpoint, error) from error
    written = {row["partition_id"]: row["row_count"] for row in done}
    # For a frame that is known to be empty, Spark runs no task.
    for empty in set(range(partitions)) - set(written):
        written[empty] = _write_snapshot(files, f"{empty}/{name}", codec, [])
    return written


def _require_settings(offsets: OffsetLogEntry, where: str) -> None:
    """Check that the query will read the state as written here."""
    expected = {offset_log.PROVIDER_KEY: HDFS_PROVIDER}
    if offsets.conf.get(ROW_CHECKSUM_KEY, "false") != "false":
        expected[ROW_CHECKSUM_KEY] = "false"
    for key, value in expected.items():
        if offsets.conf.get(key) != value:
            raise NotAlignedError(
                f"{where} has {key}={offsets.conf.get(key)}, but the state to be written "
                f"requires {value}",
                hint=RESTORE_NATIVE,
                key=key,
            )


def _partition_key(
    checkpoint: Location, operator: Operator, store: str, where: str
) -> tuple[StateField, ...]:
    """Return the fields of the state key by whose hash Spark places a row."""
    path = state_schema.path(operator.operator_id, store)
    (schema,) = state_schema.parse(checkpoint.get(path), path)
    if operator.name not in _NOT_PLACED_BY:
        raise IncompatibleError(
            f"the state of operator {operator.operator_id} ({operator.name}) cannot be "
            "decoded, because it is unknown which part of its key determines the state "
            "partition",
            hint=SAVE_NATIVE,
            operator_id=operator.operator_id,
            operator_name=operator.name,
        )
    left_out = _NOT_PLACED_BY[operator.name] + store.endswith(_JOINED_ROWS)
    key = schema.key[: len(schema.key) - left_out]
    decode.arrow_fields(key, where)
    return fit_fields(key)


def _decoded_schema(key: Sequence[StateField]) -> StructType:
    from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

    columns = [
        StructField("partition_id", IntegerType(), nullable=False),
        StructField("key_bytes", BinaryType(), nullable=False),
        StructField("value_bytes", BinaryType(), nullable=False),
    ]
    if key:
        key_type = StructType.fromJson({"fields": [one.to_json() for one in key]})
        # Spark's reader makes all fields nullable.
        columns.append(StructField("partition_key", key_type.toNullable(), nullable=False))
    return StructType(columns)


def _decode(reading: _Reading, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decode state partitions by number; runs on an executor."""
    import numpy as np
    import pyarrow as pa

    for batch in batches:
        for number in cast("list[int]", batch.column(0).to_pylist()):
            chain = reading.chains[number]
            for pairs in _pairs(reading, chain):
                keys: Any = pa.array([key for key, _ in pairs], pa.binary())
                values: Any = pa.array([value for _, value in pairs], pa.binary())
                partition: Any = pa.array(np.full(len(pairs), chain.directory.partition, np.int32))
                columns = {"partition_id": partition, "key_bytes": keys, "value_bytes": values}
                if reading.partition_key:
                    columns["partition_key"] = pa.StructArray.from_arrays(
                        decode.decode(keys, reading.partition_key, reading.where),
                        fields=decode.arrow_fields(reading.partition_key, reading.where),
                    )
                yield pa.RecordBatch.from_pydict(columns)


def _pairs(reading: _Reading, chain: SnapshotChain) -> Iterator[list[StateRecord]]:
    """Yield a state partition in batches: the snapshot with its deltas applied."""
    changed: dict[bytes, bytes | None] = {}
    for path in chain.changes:
        for batch in _records(reading, path):
            changed.update(batch)
    if chain.snapshot:
        for batch in _records(reading, chain.snapshot):
            if any(value is None for _, value in batch):
                raise IncompatibleError(
                    f"{reading.files.directory}/{chain.snapshot} is damaged: it removes a key, "
                    "which a snapshot cannot do",
                    hint=OTHER_BATCH,
                    file=chain.snapshot,
                )
            if kept := [record for record in batch if record[0] not in changed]:
                yield kept
    there = ((key, value) for key, value in changed.items() if value is not None)
    yield from _batches(there)


def _records(reading: _Reading, path: str) -> Iterator[list[StateRecord]]:
    name = f"{reading.files.directory}/{path}"
    # Compressed, so it fits in memory; Spark itself holds the partition uncompressed.
    stream = compression.open_reader(reading.files.get(path), reading.codec, name)
    return records.read(stream, name, row_checksums=reading.row_checksums)


def _batches(pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[list[StateRecord]]:
    batch: list[StateRecord] = []
    size = 0
    for pair in pairs:
        batch.append(pair)
        size += len(pair[0]) + len(pair[1])
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _write(
    files: TaskFiles, name: str, partitions: int, codec: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write rows as the snapshot of their state partition; runs on an executor."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    partition = context.partitionId()
    written = _write_snapshot(
        files,
        f"{partition}/{name}",
        codec,
        (_placed(batch, partition, partitions) for batch in batches),
    )
    yield pa.RecordBatch.from_pydict(
        {
            "partition_id": pa.array([partition], pa.int32()),
            "row_count": pa.array([written], pa.int64()),
        }
    )


def _placed(
    batch: pa.RecordBatch, partition: int, partitions: int
) -> Iterator[tuple[bytes, bytes]]:
    """Return a batch's keys and values, after checking that Spark would find them."""
    hashes = batch.column("key_hash").to_numpy(zero_copy_only=False)
    if (hashes % partitions != partition).any():
        raise PlacementError(
            f"refused to write a row to state partition {partition} of {partitions}: Spark would "
            "look for its key in another one",
            hint="nothing has been restored; report this as a bug in savepoints",
        )
    keys = cast("list[bytes]", batch.column("key_bytes").to_pylist())
    return zip(keys, cast("list[bytes]", batch.column("value_bytes").to_pylist()), strict=True)


def _write_snapshot(
    files: TaskFiles, path: str, codec: str, batches: Iterable[Iterable[tuple[bytes, bytes]]]
) -> int:
    compressed = io.BytesIO()
    with compression.open_writer(compressed, codec, f"{files.directory}/{path}") as sink:
        count = records.write(sink, batches)
    files.put(path, compressed.getvalue())
    return count
