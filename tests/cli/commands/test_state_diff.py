"""`state` and `diff` on the command line: what they print and how they end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from tests.samples import take, unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.drawn(4)

# From conftest.py: the function that calls the command line.
Call = Any


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with savepoints of three samples, the newest last."""
    place = Location.of(str(tmp_path_factory.mktemp("looked-at")))
    (Path(str(place)) / "store").mkdir()
    store = Store.at(str(place / "store")).make()
    for sample in ("rocksdb", "transform_with_state", "hdfs"):
        checkpoint = unpack(sample, place / sample)
        for batch_id in (0, 1):
            take(store, checkpoint, query=sample, batch_id=batch_id)
    return store


@pytest.fixture
def at(store: Store) -> tuple[str, ...]:
    return ("--store", str(store.root), "--progress", "none")


@pytest.mark.spark
def test_rows_as_a_table(call: Call, at: tuple[str, ...], spark: SparkSession) -> None:
    called = call("state", "latest", "--query", "rocksdb", "--key", "k=3", *at)

    header, _, row = called.out.strip().splitlines()
    assert called.code == 0
    assert header.split() == ["key.k", "value.count", "value.sum", "partition_id"]
    assert row.split()[:3] == ["3", "2", "106"]


@pytest.mark.spark
def test_rows_as_json_and_as_json_lines(
    call: Call, at: tuple[str, ...], store: Store, spark: SparkSession
) -> None:
    command = ("state", "latest", "--query", "transform_with_state", "--variable", "total", *at)

    document = call(*command, "--limit", "3", "-o", "json").document
    lines = call(*command, "--limit", "99", "--jsonl")

    rows = [json.loads(line) for line in lines.out.splitlines()]
    assert {(row["key"]["k"], row["value"]["s"]) for row in rows} == {
        (0, 100), (1, 102), (2, 104), (3, 106), (4, 108)
    }  # fmt: skip
    assert lines.err == ""
    assert (len(document["rows"]), document["more"]) == (3, True)
    assert all(row in rows for row in document["rows"])
    assert document["savepoint"] == store.catalog.find("latest", query=command[3]).id
    assert document["columns"] == ["key.k", "value.s", "partition_id"]
    assert document["variable"]["kind"] == "value"
    assert (document["schema_version"], document["batch_id"]) == (1, 1)


@pytest.mark.spark
def test_more_rows_than_shown_are_mentioned(
    call: Call, at: tuple[str, ...], spark: SparkSession
) -> None:
    two = call("state", "latest", "--query", "hdfs", "--limit", "2", *at)
    all_of_them = call("state", "latest", "--query", "hdfs", "--limit", "5", *at)

    assert len(two.out.strip().splitlines()) == 2 + 2
    assert "there are more than the 2 rows shown" in two.err
    assert len(all_of_them.out.strip().splitlines()) == 2 + 5
    assert all_of_them.err == ""


@pytest.mark.spark
def test_rows_are_written_once(
    call: Call, at: tuple[str, ...], tmp_path: Path, spark: SparkSession
) -> None:
    target = str(tmp_path / "rows.parquet")
    command = ("state", "latest", "--query", "hdfs", "--where", "key.k > 1", "--to", target, *at)

    written, again = call(*command, "-o", "json"), call(*command, "-o", "json")

    assert written.document["written"] == {"uri": target, "rows": 3}
    assert {row.key.k for row in spark.read.parquet(target).collect()} == {2, 3, 4}
    assert (again.code, again.error["name"]) == (15, "TargetExistsError")
    assert call(*command, "--jsonl").code == 2


@pytest.mark.spark
def test_a_bad_expression_is_explained_on_one_line(
    call: Call, at: tuple[str, ...], spark: SparkSession
) -> None:
    called = call("state", "latest", "--query", "hdfs", "--where", "key.x = 1", *at, "-o", "json")

    assert called.code == 2
    assert "FIELD_NOT_FOUND" in called.error["message"]
    assert "key.k" in called.error["hint"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--query", "transform_with_state"], "several kinds of state"),
        (["--query", "hdfs", "--operator", "1"], "no state that matches"),
        (["--query", "hdfs", "--key", "k"], "is not in the form FIELD=VALUE"),
        (["--query", "hdfs", "--limit", "0"], "--limit"),
        (["--query", "hdfs", "--jsonl", "-o", "json"], "omit --jsonl, or omit --to and -o json"),
    ],
)
def test_usage_errors_need_no_spark(
    options: list[str], problem: str, call: Call, at: tuple[str, ...]
) -> None:
    called = call("state", "latest", *at, *options)

    assert called.code == 2
    assert problem in called.err
    assert called.out == ""


@pytest.mark.spark
def test_a_difference_is_exit_code_3(call: Call, at: tuple[str, ...], spark: SparkSession) -> None:
    command = ("diff", "latest~1", "latest", "--query", "rocksdb", "--sample", "1", *at)

    text, document = call(*command), call(*command, "-o", "json")

    assert (text.code, document.code) == (3, 3)
    for part in ('{"logOffset":0}', "changed   key.k=0   value.count=1 value.sum=0   "):
        assert part in text.out
    found = document.document
    assert (found["schema_version"], found["equal"]) == (1, False)
    assert found["batch_id"] == {"before": 0, "after": 1}
    (one,) = found["variables"]
    assert (one["rows"]["added"], one["rows"]["removed"], one["rows"]["changed"]) == (0, 0, 5)
    assert one["rows"]["sample"] == [
        {
            "difference": "changed",
            "row": {"key": {"k": 0}},
            "before": {"value": {"count": 1, "sum": 0}},
            "after": {"value": {"count": 2, "sum": 100}},
        }
    ]


@pytest.mark.spark
def test_no_difference_is_exit_code_0(
    call: Call, at: tuple[str, ...], store: Store, spark: SparkSession
) -> None:
    one, other = (store.catalog.find("latest", query=query).id for query in ("rocksdb", "hdfs"))

    called = call("diff", one, other, *at)

    assert called.code == 0
    assert f"no difference between {one} and {other}" in called.out
    assert "providerClass" in called.out


@pytest.mark.spark
def test_trap_numbers_in_json_are_not_rounded(
    call: Call, on_local: Location, local_store: Store, spark: SparkSession
) -> None:
    from pyspark.sql import functions as F

    source = Path(str(on_local)) / "input"
    source.mkdir()
    (source / "0.json").write_text('{"k": "a"}\n')
    (
        spark.readStream.schema("k string")
        .json(str(source))
        .groupBy("k")
        .agg(F.sum(F.lit(0.12345678)).alias("s"))
        .writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", str(on_local / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    take(local_store, on_local / "checkpoint")

    called = call("state", "latest", "--store", str(local_store.root), "-o", "json")

    assert called.document["rows"][0]["value"] == {"sum": 0.12345678}
