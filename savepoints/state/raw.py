"""Reading state rows raw, and the canonical Delta table made of them.

Spark's `statestore` source with `_readAllColumnFamilies` gives, for one store of one operator,
`partition_key` (struct), `key_bytes`, `value_bytes` (UnsafeRow bytes) and `column_family_name`.
`pmod(hash(partition_key.*), P)` is Spark's own placement of a row in P state partitions.
Source: `StateDataSource`, `StatePartitionAllColumnFamiliesReader`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from savepoints.checkpoint.operators import Operator
from savepoints.io import Uri

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Characters that Parquet and Delta refuse in column names without column mapping.
_UNFIT = re.compile(r"[ ,;{}()\n\t=.]")


@dataclass(frozen=True)
class Contents:
    """What an operator's canonical rows add up to.

    Attributes:
        rows: Their number.
        state_bytes: Bytes of all keys and values.
        content_hash: Independent of row order and of the number of partitions, in hex: two sums,
            modulo 2**64, of differently seeded xxHash64 over (store, column family, key, value).
    """

    rows: int
    state_bytes: int
    content_hash: str


def state_session(spark: SparkSession) -> SparkSession:
    """Return a session in which state stores can be opened, with settings of its own.

    State stores report to a coordinator, which the session's manager of streaming queries makes; a
    Spark that has not run a streaming query yet has none, and opening a store fails.
    """
    own = spark.newSession()
    _ = own.streams
    return own


def reading_session(spark: SparkSession) -> SparkSession:
    """Return a session for reading state.

    With changelog checkpointing on, a raw read writes temporary files into the checkpoint it reads.
    """
    own = state_session(spark)
    own.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "false")
    return own


def read_store(
    spark: SparkSession, checkpoint: Uri, batch_id: int, operator: Operator, store: str
) -> DataFrame:
    """Read one state store of a checkpoint as canonical rows.

    Args:
        spark: From `reading_session`.
        checkpoint: A checkpoint that nobody writes to: a mounted savepoint, not a live query's.
        batch_id: The batch whose state is read.
        operator: The operator.
        store: Name of its store.

    Returns:
        operator_id (int), operator_name, store_name, column_family (string), partition_id,
        key_hash (int), ord (long), key_bytes, value_bytes (binary), and key, the decoded partition
        key (a struct; null when the operator has no grouping key).
    """
    from pyspark.sql import functions as F

    reader = (
        spark.read.format("statestore")
        .option("path", checkpoint.hadoop)
        .option("batchId", batch_id)
        .option("operatorId", operator.operator_id)
        .option("_readAllColumnFamilies", "true")
    )
    if store != "default":
        reader = reader.option("storeName", store)
    raw = reader.load()
    fields = raw.schema["partition_key"].dataType.fieldNames()  # type: ignore[attr-defined]
    key_hash = F.hash(F.col("partition_key.*")) if fields else F.lit(0)
    return raw.select(
        F.lit(operator.operator_id).alias("operator_id"),
        F.lit(operator.name).alias("operator_name"),
        F.lit(store).alias("store_name"),
        F.col("column_family_name").alias("column_family"),
        F.spark_partition_id().alias("partition_id"),
        key_hash.alias("key_hash"),
        F.monotonically_increasing_id().alias("ord"),
        F.col("key_bytes"),
        F.col("value_bytes"),
        _key_column(fields).alias("key"),
    )


def export(
    spark: SparkSession, checkpoint: Uri, batch_id: int, operators: Iterable[Operator], target: Uri
) -> dict[int, Contents]:
    """Write all state of a checkpoint as one Delta table, in one commit.

    The table is partitioned by `operator_id` and `store_name`. Its `key` has one field per
    operator, `op0`, `op1`, …, since their keys have different types: `key.op0.customer_id`.

    Returns:
        What was written, by operator id.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    own = reading_session(spark)
    observed: dict[int, Any] = {}
    frames = []
    for operator in operators:
        stores = [
            read_store(own, checkpoint, batch_id, operator, store) for store in operator.stores
        ]
        rows = stores[0]
        for more in stores[1:]:
            rows = rows.unionByName(more)
        observed[operator.operator_id] = Observation(f"op{operator.operator_id}")
        rows = rows.observe(observed[operator.operator_id], *_sums())
        key = F.struct(F.col("key").alias(f"op{operator.operator_id}"))
        frames.append(rows.withColumn("key", key))
    if not frames:
        return {}
    table = frames[0]
    for frame in frames[1:]:
        table = table.unionByName(frame, allowMissingColumns=True)
    table.write.format("delta").partitionBy("operator_id", "store_name").mode("error").save(
        target.hadoop
    )
    return {operator_id: _contents(one.get) for operator_id, one in observed.items()}


def contents(spark: SparkSession, table: Uri) -> dict[int, Contents]:
    """Read a canonical table and add up what each operator has, as `export` did."""
    rows = spark.read.format("delta").load(table.hadoop)
    sums = rows.groupBy("operator_id").agg(*_sums()).collect()
    return {row["operator_id"]: _contents(row.asDict()) for row in sums}


def _sums() -> list[Column]:
    """Aggregates of which `_contents` makes the hash; halves of 32 bits cannot overflow a long."""
    from pyspark.sql import functions as F

    row = [F.col(name) for name in ("store_name", "column_family", "key_bytes", "value_bytes")]
    size = F.octet_length("key_bytes") + F.coalesce(F.octet_length("value_bytes"), F.lit(0))
    sums = [F.count(F.lit(1)).alias("rows"), F.coalesce(F.sum(size), F.lit(0)).alias("state_bytes")]
    for seed in (1, 2):
        value = F.xxhash64(F.lit(seed), *row)
        for half, part in (
            ("low", value.bitwiseAND(F.lit(0xFFFFFFFF))),
            ("high", F.shiftrightunsigned(value, 32)),
        ):
            sums.append(F.coalesce(F.sum(part), F.lit(0)).alias(f"{half}{seed}"))
    return sums


def _contents(sums: dict[str, Any]) -> Contents:
    words = [
        (int(sums[f"low{seed}"]) + (int(sums[f"high{seed}"]) << 32)) % (1 << 64) for seed in (1, 2)
    ]
    return Contents(
        int(sums["rows"]), int(sums["state_bytes"]), "".join(f"{word:016x}" for word in words)
    )


def _key_column(fields: list[str]) -> Column:
    """Return the decoded partition key, with field names that Delta accepts."""
    from pyspark.sql import functions as F

    if not fields:
        return F.lit(None).cast("boolean")
    names = [_UNFIT.sub("_", name) for name in fields]
    if len(set(names)) < len(names):
        names = [f"key{position}" for position in range(len(fields))]
    key = F.col("partition_key")
    return F.struct(*(key[field].alias(name) for field, name in zip(fields, names, strict=True)))
