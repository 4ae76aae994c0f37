"""Rows that are written by columns, beside what Spark's own writer and functions make of them."""

from __future__ import annotations

import uuid
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from savepoints.checkpoint.state.operators import Operator
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.spark import private_api
from savepoints.state.storage import canonical_table, new_table, row_files, write
from savepoints.state.storage.read import RawStore
from savepoints.state.storage.row_files import RowFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

_PARTITIONS = 3
# A key of each type that can be written by columns, and of a struct, such as a window.
_KEY = """
  'text', IF(id % 5 = 0, NULL, concat('ключ ', id)), 'raw', IF(id % 7 = 0, NULL, unhex(hex(id))),
  'byte', CAST(id % 100 - 50 AS BYTE), 'short', CAST(-id % 30000 AS SHORT), 'int', CAST(id AS INT),
  'long', IF(id % 2 = 0, NULL, id * 10000000000), 'float', CAST(id / 3 AS FLOAT),
  'double', IF(id = 9, DOUBLE('NaN'), id / 7), 'day', DATE '1500-03-01' + CAST(id % 200000 AS INT),
  'at', TIMESTAMP_MICROS(id * 1000001 - 20000000000000000), 'local', CAST(
    TIMESTAMP_MICROS(id) AS TIMESTAMP_NTZ),
  'window', IF(id % 11 = 0, NULL, named_struct(
    'start', IF(id % 3 = 0, NULL, TIMESTAMP_MICROS(id)), 'end', TIMESTAMP_MICROS(id + 1)))
"""


def some(spark: SparkSession, operator_id: int, store: str, key: str, count: int) -> RawStore:
    """Return rows of one store as they are read, each in the state partition of its key's hash."""
    rows = spark.range(0, count, 1, _PARTITIONS).selectExpr(
        "id",
        f"named_struct({key}) AS partition_key",
        # Of some lengths that are no multiple of a word.
        "CAST(concat('key ', repeat('k', CAST(id % 70 AS INT)), id) AS BINARY) AS key_bytes",
        # One value is longer than a page.
        "CAST(CASE WHEN id % 13 = 0 THEN NULL WHEN id = 100 THEN repeat('v', 9000000) "
        "ELSE repeat('v', CAST(id % 50 AS INT)) END AS BINARY) AS value_bytes",
        "concat('family ', id % 2) AS column_family_name",
    )  # fmt: skip
    placed = rows.selectExpr(
        "*", f"CAST(pmod(hash(partition_key.*), {_PARTITIONS}) AS INT) AS partition_id"
    )
    operator = Operator(operator_id, "an operator", (store,), _PARTITIONS)
    return RawStore(operator, store, _PARTITIONS, placed)


def stores(spark: SparkSession, count: int) -> list[RawStore]:
    """Return two operators with different keys, one of them with two stores."""
    return [
        some(spark, 0, "left", _KEY, count),
        some(spark, 0, "right", _KEY, 200),
        some(spark, 1, "default", "'n', id", 300),
    ]


def changed(store: RawStore, **columns: str) -> RawStore:
    """Return a store with other values in some columns."""
    rows = store.rows.selectExpr(
        *(f"{columns.get(name, name)} AS {name}" for name in store.rows.columns)
    )
    return replace(store, rows=rows)


def in_one_task(store: RawStore) -> RawStore:
    """Return a store whose rows one task reads, one state partition after the other."""
    return replace(store, rows=store.rows.coalesce(1).sortWithinPartitions("partition_id"))


def of_lists(store: RawStore) -> RawStore:
    """Return a store of which three rows, one after the other, have the same key."""
    rows = store.rows.selectExpr("*", "explode(array(2, 0, 1)) AS element").selectExpr(
        "partition_key", "key_bytes", "CAST(CAST(element AS STRING) AS BINARY) AS value_bytes",
        "column_family_name", "partition_id",
    )  # fmt: skip
    return replace(store, rows=rows)


def counted(rows: DataFrame) -> dict[int, Any]:
    """Sum rows up by Spark's own functions."""
    sums = canonical_table._placed(rows).groupBy("operator_id").agg(*canonical_table._sums())
    return {row["operator_id"]: canonical_table._contents(row.asDict()) for row in sums.collect()}


def hash_of(files: list[RowFile]) -> str:
    """Return the content hash that the sums of files make."""
    words = ([sum(each) for each in zip(*numbers, strict=True)] for numbers in (
        [one.hashes for one in files], [one.orders for one in files]
    ))  # fmt: skip
    return canonical_table._text(*chain.from_iterable(words))


def hashed(rows: DataFrame) -> list[int]:
    """Return a hash of each row, in order of the hashes."""
    return sorted(row[0] for row in rows.selectExpr("xxhash64(*)").collect())


def canonical(given: list[RawStore]) -> DataFrame:
    """Return the rows of stores by Spark's own functions."""
    return canonical_table._together([(one.operator, one.canonical()) for one in given])


def written(target: Location, given: list[RawStore]) -> list[RowFile]:
    """Write stores by columns, as a table."""
    files = row_files.write(given, target, tasks=None)
    counts = {one.path: one.rows for one in files}
    new_table.commit(canonical(given).schema, target, canonical_table.PARTITIONED_BY, counts)
    return files


def test_rows_and_sums_are_the_ones_of_sparks_own_writer_and_functions(
    spark: SparkSession, on_local: Location
) -> None:
    given = [in_one_task(one) for one in stores(spark, 21_000)]  # Some are in a second page.
    assert all(map(row_files.fits, given))
    rows = canonical(given)

    files = written(on_local / "ours", given)

    new_table.write(rows, on_local / "sparks", canonical_table.PARTITIONED_BY)
    ours = new_table.read(spark, on_local / "ours")
    sparks = new_table.read(spark, on_local / "sparks")
    assert ours.schema == sparks.schema
    assert hashed(ours) == hashed(sparks) == hashed(rows)
    for condition in (
        "operator_id = 0 AND key.op0.int = 150",
        "key.op0.text IS NULL AND value_bytes IS NULL",
        "key.op1.n = 7",
        "column_family = 'family 1' AND partition_id = 2",
    ):
        # Readers skip what a file says has no such row.
        assert hashed(ours.where(condition)) == hashed(sparks.where(condition)), condition
        assert hashed(ours.where(condition)), condition
    truth = counted(rows)
    for operator_id in (0, 1):
        own = [one for one in files if one.operator_id == operator_id]
        assert sum(one.rows for one in own) == truth[operator_id].rows
        assert sum(one.state_bytes for one in own) == truth[operator_id].state_bytes
        assert hash_of(own) == truth[operator_id].content_hash
        assert "-" not in hash_of(own)
        assert not any(one.stray for one in own)


@pytest.mark.parametrize("by_columns", [True, False])
def test_trap_names_in_keys_that_are_there_twice_or_that_delta_cannot_have(
    by_columns: bool, spark: SparkSession, on_local: Location
) -> None:
    """Each expression that rows are grouped by is called `_groupingexpression`."""
    from pyspark.sql import functions as F

    fields = {
        "_groupingexpression": ["id", "concat('k', id)"], "_GROUPINGEXPRESSION": ["-id"],
        "a.b": ["named_struct('c d', id + 1, 'e;{f}', id + 2, 'C D', id + 3)"],
    }  # fmt: skip
    if not by_columns:
        fields["exact"] = ["CAST(id AS DECIMAL(20,2))"]
    named = [(name, one) for name, several in fields.items() for one in several]
    store = some(spark, 0, "default", ", ".join(f"'{name}', {one}" for name, one in named), 30)
    placed = store.rows.withColumn(
        "partition_id", F.expr(f"pmod(hash({', '.join(one for _, one in named)}), {_PARTITIONS})")
    )
    store = in_one_task(replace(store, rows=placed))
    target = on_local / "table"

    assert row_files.fits(store) == by_columns
    if by_columns:
        assert sum(one.stray for one in written(target, [store])) == 0
    else:
        new_table.write(canonical([store]), target, canonical_table.PARTITIONED_BY)

    found = new_table.read(spark, target)
    assert found.where(f"partition_id <> pmod(key_hash, {_PARTITIONS})").count() == 0
    columns = found.select("key.op0.*").select(
        "_groupingexpression", "_groupingexpression_2", "_GROUPINGEXPRESSION_3", "a_b.c_d",
        "a_b.e__f_", "a_b.C_D_2",
    )  # fmt: skip
    assert sorted(map(tuple, columns.collect())) == [
        (one, f"k{one}", -one, one + 1, one + 2, one + 3) for one in range(30)
    ]


def test_elements_of_lists_are_hashed_with_their_places(
    spark: SparkSession, on_local: Location
) -> None:
    given = of_lists(in_one_task(some(spark, 0, "default", "'n', id", 300)))

    files = written(on_local / "table", [given])

    found = new_table.read(spark, on_local / "table")
    (truth,) = counted(found).values()
    assert hash_of(files) == truth.content_hash
    rows, _, order = truth.content_hash.partition("-")
    # The same elements, in the other order.
    (turned,) = counted(found.withColumn("ord", -found["ord"])).values()
    assert turned.content_hash.startswith(f"{rows}-")
    assert len(order) == 32
    assert not turned.content_hash.endswith(order)


def test_each_task_reads_the_files_of_its_state_partition(
    spark: SparkSession, on_local: Location
) -> None:
    given = [in_one_task(one) for one in stores(spark, 300)]
    written(on_local / "table", given)
    own = spark.newSession()
    own.conf.set("spark.sql.sources.bucketing.enabled", "false")  # As somebody may have set it.

    found = canonical_table.rows_in_partitions(own, on_local / "table", _PARTITIONS)

    assert found is not None
    assert hashed(found) == hashed(canonical(given))
    of_one_store = found.where("operator_id = 0 AND store_name = 'right'")
    places = of_one_store.selectExpr(
        "partition_id", "spark_partition_id()", f"pmod(key_hash, {_PARTITIONS})"
    )
    assert sorted(map(tuple, places.distinct().collect())) == [(0, 0, 0), (1, 1, 1), (2, 2, 2)]


def test_trap_numbers_in_names_have_the_digits_of_the_machines_language(
    spark: SparkSession, on_local: Location
) -> None:
    locale = private_api.jvm(spark).java.util.Locale
    before = locale.getDefault()
    locale.setDefault(locale.forLanguageTag("ar-EG"))
    try:
        files = written(on_local / "table", [in_one_task(some(spark, 0, "s", "'n', id", 30))])
    finally:
        locale.setDefault(before)

    ends = sorted(one.path.rpartition("_")[2] for one in files)
    assert ends == [f"0000{one}.zstd.parquet" for one in range(_PARTITIONS)]


def test_a_row_in_a_file_of_another_state_partition_is_not_written(
    spark: SparkSession, on_local: Location
) -> None:
    store = some(spark, 0, "default", "'n', id", 300)
    moved = changed(store, partition_id="IF(id = 77, (partition_id + 1) % 3, partition_id)")
    written(on_local / "table", [in_one_task(moved)])
    found = canonical_table.rows_in_partitions(spark, on_local / "table", _PARTITIONS)
    assert found is not None

    with pytest.raises(Exception, match="in a file of another state partition than its own"):
        write.at_home(found, _PARTITIONS).select("key_bytes").collect()

    others = found.where("NOT (key.op0.n = 77)")
    assert write.at_home(others, _PARTITIONS).select("key_bytes").count() == 299


def test_trap_files_of_a_bucket_too_many_are_silently_skipped(
    spark: SparkSession, on_local: Location
) -> None:
    written(on_local / "table", [in_one_task(some(spark, 0, "default", "'n', id", 300))])

    assert canonical_table.rows_in_partitions(spark, on_local / "table", _PARTITIONS - 1) is None


def test_a_table_whose_files_do_not_name_their_state_partition_is_read_in_no_order(
    spark: SparkSession, on_local: Location
) -> None:
    (_, _, last) = stores(spark, 300)
    new_table.write(canonical([last]), on_local / "table", canonical_table.PARTITIONED_BY)

    assert canonical_table.rows_in_partitions(spark, on_local / "table", _PARTITIONS) is None


def test_rows_in_another_state_partition_than_their_hash_says_are_counted(
    spark: SparkSession, on_local: Location
) -> None:
    *others, last = stores(spark, 300)
    moved = f"IF(id < 7, (partition_id + 1) % {_PARTITIONS}, partition_id)"

    files = row_files.write(
        [*others, in_one_task(changed(last, partition_id=moved))], on_local / "ours", tasks=None
    )

    assert sum(one.stray for one in files if one.operator_id == 1) == 7
    assert sum(one.stray for one in files if one.operator_id == 0) == 0


def test_a_task_that_fails_leaves_no_file(spark: SparkSession, on_local: Location) -> None:
    # A key that is null, as none is: the writer fails at it, with the rows before it in a file.
    failing = changed(
        some(spark, 0, "default", "'n', id", 300),
        partition_id="0",
        partition_key="IF(id = 250, NULL, partition_key)",
    )
    in_a_file = replace(failing, rows=failing.rows.coalesce(1))

    with pytest.raises(Exception, match="NullPointerException"):
        row_files.write([in_a_file], on_local / "ours", tasks=None)

    # Not by `list`, which leaves out files of no bytes: that is what a writer has begun.
    assert [*Path("/", on_local.uri.path, "ours").rglob("*.parquet")] == []


@pytest.mark.nightly
def test_trap_a_task_that_fails_leaves_an_upload_that_is_paid_for(
    spark: SparkSession, world: LocalWorld, world_environment: dict[str, str]
) -> None:
    """S3 keeps the parts of a large file that was neither finished nor given up, and lists no file.

    The values cannot be compressed, so that the first 64 MiB are uploaded before the task fails.
    """
    bucket = f"uploads-{uuid.uuid4().hex}"
    world.create_bucket(bucket)
    digits = "array_join(transform(sequence(1, 60000), i -> sha2(concat(id, ' ', i), 512)), '')"
    failing = changed(
        some(spark, 0, "default", "'n', id", 28),
        partition_id="0",
        value_bytes=f"CAST({digits} AS BINARY)",
        partition_key="IF(id = 27, NULL, partition_key)",
    )
    in_a_file = replace(failing, rows=failing.rows.coalesce(1))

    with pytest.raises(Exception, match="NullPointerException"):
        row_files.write([in_a_file], Location.of(f"s3://{bucket}/ours"), tasks=None)

    assert Location.of(f"s3://{bucket}").list() == []
    client = boto3.client("s3", endpoint_url=world.s3_endpoint)
    assert not client.list_multipart_uploads(Bucket=bucket).get("Uploads")


@pytest.mark.parametrize("key", ["true", "1.5", "array(id)", "named_struct('b', true)"])
def test_keys_of_other_types_are_left_to_spark(spark: SparkSession, key: str) -> None:
    assert not row_files.fits(some(spark, 0, "default", f"'n', id, 'other', {key}", 1))


def test_an_operator_without_a_key_is_left_to_spark(spark: SparkSession) -> None:
    keyed = some(spark, 0, "default", "'n', id", 1)

    assert not row_files.fits(changed(keyed, partition_key="struct()"))
