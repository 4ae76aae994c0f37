"""New Delta tables whose files Spark writes and which it does not commit, as Spark reads them."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError

from savepoints.errors import (
    IncompatibleError,
    NotAlignedError,
    TargetExistsError,
    VerificationError,
)
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.state.storage import new_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    "part int, tiny tinyint, small smallint, whole int, large bigint, single float, twice double, "
    "exact decimal(38,10), small_exact decimal(7,2), text string, raw binary, truth boolean, "
    "day date, moment timestamp, local timestamp_ntz, key struct<op0:struct<a:string,n:int>>, "
    "many array<struct<n:int>>, named map<string,bigint>"
)
MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 678901)  # noqa: DTZ001 (Spark's are without)
ROWS = [
    (
        part, 1, -2, 3, 1 << 60, 0.5, -0.0, Decimal("12345678901234567890.0123456789"),
        Decimal("-1.25"), "ä%/=", b"\x00\xff", True, MOMENT.date(), MOMENT, MOMENT,
        (("x", None),), [(1,), None], {"a": None, "b": 2},
    )
    for part in (0, 0, 7)
] + [(7, *[None] * 17)]  # fmt: skip


def write_seven(spark: SparkSession, target: Location) -> None:
    rows = spark.newSession().range(7).selectExpr("id", "id % 2 part")
    new_table.write(rows, target, ["part"])


@pytest.mark.spark
def test_spark_reads_back_every_type_as_it_was(spark: SparkSession, on_local: Location) -> None:
    rows = spark.newSession().createDataFrame(ROWS, COLUMNS)
    target = on_local / "table"

    assert new_table.write(rows, target, ["part"]) == len(ROWS)

    by_delta = spark.read.format("delta").load(target.uri.hadoop)
    for found in (by_delta, new_table.read(spark, target)):
        assert found.dtypes == rows.dtypes
        assert sorted(map(repr, found.collect())) == sorted(map(repr, rows.collect()))
    with pytest.raises(TargetExistsError, match="already has"):
        new_table.write(rows, target, ["part"])


@pytest.mark.spark
def test_trap_files_of_tasks_that_failed_are_not_read(
    spark: SparkSession, on_local: Location
) -> None:
    """Delta's own writer leaves them; and the path of a store may look like a pattern."""
    target = on_local / "a[b]{c}*"
    write_seven(spark, target)
    one = next(info.path for info in target.list() if info.path.endswith(".parquet"))
    target.put("part=0/part-lost.parquet", target.get(one))

    assert sorted(row.id for row in new_table.read(spark, target).collect()) == list(range(7))

    target.delete([one])
    with pytest.raises(VerificationError, match="is missing 1 file \\(first: part="):
        new_table.read(spark, target)


@pytest.mark.spark
@pytest.mark.parametrize("vectors", ["false", "true"])
def test_trap_what_others_commit_to_the_table_changes_no_savepoint(
    vectors: str, spark: SparkSession, on_local: Location
) -> None:
    """Its files stay until somebody calls VACUUM; then one is missing."""
    target = on_local / "table"
    write_seven(spark, target)
    table = f"delta.`{target.uri.hadoop}`"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = {vectors})")
    spark.sql(f"DELETE FROM {table} WHERE id < 3")

    assert sorted(row.id for row in new_table.read(spark, target).collect()) == list(range(7))


@pytest.mark.spark
@pytest.mark.parametrize("passes_over", ["false", "true"])
def test_trap_a_bit_that_was_flipped_is_found_where_it_is_read(
    passes_over: str, spark: SparkSession, on_local: Location
) -> None:
    """Spark decodes such a page to other values, unless it is told to compare checksums."""
    target = on_local / "table"
    rows = spark.newSession().range(0, 20_000, 1, 1)
    new_table.write(
        rows.selectExpr("unhex(sha2(string(id), 256)) AS id", "0 AS part"), target, ["part"]
    )
    (name,) = (info.path for info in target.list() if info.path.endswith(".parquet"))
    data = bytearray(target.get(name))
    # Hadoop's own checksums are beside files on a disk only.
    for beside in Path(str(target)).rglob(".*.crc"):
        beside.unlink()
    lenient = spark.newSession()
    lenient.conf.set("spark.sql.files.ignoreCorruptFiles", passes_over)
    for place in range(1000, len(data) // 2, len(data) // 10):
        data[place] ^= 0x10
        target.put(name, bytes(data))

        with pytest.raises(Py4JError):
            new_table.read(lenient, target).selectExpr("sum(hash(id))").collect()

        data[place] ^= 0x10


@pytest.mark.spark
def test_trap_what_delta_cannot_have_is_refused_before_anything_is_written(
    spark: SparkSession, on_local: Location
) -> None:
    rows = spark.newSession().sql("SELECT 1 part, named_struct('i', INTERVAL '1' DAY) key")

    with pytest.raises(IncompatibleError, match="type interval day"):
        new_table.write(rows, on_local / "table", ["part"])

    assert not (on_local / "table").list()


@pytest.mark.spark
@pytest.mark.nightly
def test_trap_on_s3_nothing_else_is_left_of_the_files_that_tasks_moved(
    spark: SparkSession, world: LocalWorld, world_environment: dict[str, str]
) -> None:
    """Spark's tasks write below `_temporary` first, and S3A marks directories by empty objects."""
    bucket = f"table-{uuid.uuid4().hex[:10]}"
    world.create_bucket(bucket)
    target = Location.of(f"s3://{bucket}/table")
    rows = spark.newSession().range(0, 1000, 1, 4).selectExpr("int(id % 2) part", "id")

    assert new_table.write(rows, target, ["part"]) == 1000

    found = spark.read.format("delta").load(target.uri.hadoop)
    assert found.groupBy("part").sum("id").orderBy("part").collect() == [(0, 249500), (1, 250000)]
    paths = [info.path for info in target.list()]
    assert len([path for path in paths if path.endswith(".parquet")]) == 8
    assert [path for path in paths if not path.startswith("part=")] == [
        "_delta_log/00000000000000000000.json"
    ]


def test_rows_are_counted_in_a_file_with_a_footer_longer_than_one_read(on_local: Location) -> None:
    table = pa.table({f"column_{number}": range(300) for number in range(40)})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=10)
    on_local.put("many.parquet", sink.getvalue().to_pybytes())
    info = on_local.head("many.parquet")

    assert pq.read_metadata(pa.BufferReader(sink.getvalue())).serialized_size > 64 << 10
    assert new_table._row_count(on_local, info) == 300


def test_trap_a_table_that_lacks_a_file_is_not_taken(on_local: Location) -> None:
    new_table.require_rows(5, 5, on_local)
    with pytest.raises(NotAlignedError, match=r"read 5 state rows, but .* contain 4"):
        new_table.require_rows(4, 5, on_local)
