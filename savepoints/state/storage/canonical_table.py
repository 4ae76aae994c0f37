"""Write a savepoint's canonical Delta table, and sum up each operator's state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from savepoints.checkpoint.cut import CutFiles
from savepoints.checkpoint.state.operators import Operator, native_only
from savepoints.errors import PlacementError
from savepoints.io import Location
from savepoints.state.storage import read
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# State bytes are distinct and unordered: dictionaries and statistics of them would cost a third of
# the time for nothing. Row counts are kept.
WRITING = {
    "spark.databricks.delta.properties.defaults.dataSkippingNumIndexedCols": "0",
    **{
        f"parquet.enable.dictionary#{name}": "false" for name in ("key_bytes", "value_bytes", "ord")
    },
}


@dataclass(frozen=True)
class Contents:
    """Totals of an operator's canonical rows.

    Attributes:
        state_bytes: Bytes of all keys and values.
        content_hash: Independent of row order and of the number of partitions, in hex: two sums,
            modulo 2**64, of differently seeded xxHash64 over (store, column family, key, value).
    """

    rows: int
    state_bytes: int
    content_hash: str


def export(
    spark: SparkSession, checkpoint: Location, files: CutFiles, target: Uri
) -> dict[int, Contents]:
    """Write all state that has a canonical form as one Delta table, in one commit.

    The table is partitioned by `operator_id` and `store_name`. Its `key` has one field per
    operator, `op0`, `op1`, …, because their keys have different types: `key.op0.customer_id`.

    Args:
        checkpoint: A checkpoint that nobody writes to: a mounted savepoint, not a live query's.

    Returns:
        What was written, by operator id.
    """
    from pyspark.sql import functions as F

    own = read.reading_session(spark, files.cut.checkpoint_format)
    for name, value in WRITING.items():
        own.conf.set(name, value)
    frames, observed = [], {}
    for operator in _canonical(files):
        rows, observed[operator] = _observed(own, checkpoint, files, operator)
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
    return {one.operator_id: _checked(one, observed[one].get) for one in observed}


def of_checkpoint(
    spark: SparkSession, checkpoint: Location, files: CutFiles
) -> dict[int, Contents]:
    """Read all state that has a canonical form, and return its totals as `export` does."""
    own = read.reading_session(spark, files.cut.checkpoint_format)
    found = {}
    for operator in _canonical(files):
        rows, observed = _observed(own, checkpoint, files, operator)
        rows.write.format("noop").mode("overwrite").save()
        found[operator.operator_id] = _checked(operator, observed.get)
    return found


def of_table(spark: SparkSession, table: Uri) -> dict[int, Contents]:
    """Read a canonical table, and return its totals as `export` did."""
    rows = spark.read.format("delta").load(table.hadoop)
    sums = rows.groupBy("operator_id").agg(*_sums()).collect()
    return {row["operator_id"]: _contents(row.asDict()) for row in sums}


def _canonical(files: CutFiles) -> list[Operator]:
    return [one for one in files.operators if native_only(one, files.conf) is None]


def _observed(
    spark: SparkSession, checkpoint: Location, files: CutFiles, operator: Operator
) -> tuple[DataFrame, Any]:
    """Return an operator's rows, and their totals once they were read."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    partitions = files.partitions[operator.operator_id]
    home = F.pmod(F.col("key_hash"), F.lit(partitions)).cast("int")
    stray = F.count_if(F.col("partition_id") != home).alias("stray")
    observation = Observation(f"op{operator.operator_id}")
    rows = read.read_operator(spark, checkpoint, files, operator)
    return rows.observe(observation, *_sums(), stray), observation


def _checked(operator: Operator, sums: dict[str, Any]) -> Contents:
    if sums["stray"]:
        raise PlacementError(
            f"{sums['stray']} state rows of operator {operator.operator_id} ({operator.name}) are "
            "not in the partition of their key's hash",
            hint="this state cannot be repartitioned: save it with --format native",
            operator_id=operator.operator_id,
        )
    return _contents(sums)


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
