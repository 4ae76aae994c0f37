"""What is known of a program's state on the Spark that is installed, whichever it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from savepoints.checkpoint.logs.offset_log import PROVIDER_KEY
from savepoints.checkpoint.state.operators import PROVIDERS
from savepoints.config.settings import Settings
from savepoints.errors import IncompatibleError, NativeOnlyError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.migrate import program_layout
from savepoints.operations.migrate.upgrade_check import upgrade_check
from savepoints.runtime import late_rows
from savepoints.runtime.app import App, Input, Output, TableInput
from savepoints.sources.events.events import EVENT_SCHEMA, POSITION
from savepoints.sources.late.dropped_late import LATE_MS
from savepoints.spark.versions import SparkVersion
from savepoints.state.storage.read import state_session
from tests.data import make_older
from tests.operations.begin.lab import BEGINNING, Lab
from tests.versions import installed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.versions]


def decode(records: DataFrame) -> DataFrame:
    row = F.from_json(F.col("value").cast("string"), "k long, v long, at timestamp")
    return records.select(*POSITION, row.alias("row")).select(*POSITION, "row.*")


def count(inputs: Mapping[str, DataFrame]) -> DataFrame:
    return make_older.build(inputs["events"], "totals")[0]


def count_in_windows(inputs: Mapping[str, DataFrame]) -> DataFrame:
    timed = inputs["events"].select("k", F.explode(F.array("v")).alias("v"), "at")
    timed = timed.withWatermark("at", "10 seconds").dropDuplicates(["k", "v", "at"])
    return timed.groupBy(F.window("at", "15 seconds"), "k").count()


def sum_up(inputs: Mapping[str, DataFrame]) -> DataFrame:
    rows = inputs["in0"].groupBy("k")
    return rows.agg(F.count("*").alias("n"), F.sum("v").alias("s"), F.max("t").alias("last"))


READ = {"events": Input("t", decode, "k", "at", ("v",))}
totals = App("totals", READ, count, {"out": Output("upsert", ("k",))})
# Those of `Lab` need `transformWithState`, which Spark 3.5 does not have.
TABLE = TableInput(columns="k string, v long, t timestamp", entity_key="k", event_time="t")
sums = App("sums", {"in0": TABLE}, sum_up, {"out": Output("upsert", ("k",))})
windows = App("windows", READ, count_in_windows, {"out": Output("append")})


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with installed.session() as started:
        yield started


def test_trap_a_seed_that_spark_cannot_write_is_refused_when_it_is_carried_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By then it had begun, and had to be undone by hand."""
    lab = replace(Lab.open(spark, tmp_path), programs=__name__)
    lab.append(0)
    value = {"count": 1, "sum": 2, "max": BEGINNING}
    rows = str(tmp_path / "rows.parquet")
    pq.write_table(pa.table({"key": [{"k": "k1"}], "value": [value]}), rows)
    query = lab.query("seeded", "sums")
    if installed.VERSION < (4, 0):
        with pytest.raises(IncompatibleError, match="does not describe the state of a program"):
            query.seed(rows, until="version:0")
        return

    for provider in ("rocksdb", "hdfs"):
        spark.conf.set(PROVIDER_KEY, PROVIDERS[provider])
        if provider == "hdfs" or SparkVersion.of(spark.version).writes_rows:
            assert query.seed(rows, until="version:0").plan.rows == 1
        else:
            with pytest.raises(NativeOnlyError, match="cannot write state rows to Ro") as refused:
                query.seed(rows, until="version:0")
            assert "savepoints bootstrap" in refused.value.hint


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "store").mkdir()
    return Store.at(str(tmp_path / "store"), settings=Settings()).make()


def test_trap_a_program_that_spark_did_not_describe_passed_for_one_without_state(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    """Under Spark 3.5, `--allow-dropped-state` would have dropped what a newer one had saved."""
    checkpoint = Location.of(str(tmp_path / "live"))
    make_older.unpack("4.0_hdfs_totals", checkpoint, tmp_path / "in")
    saved = store.create(query="totals", checkpoint=str(checkpoint), forms=("native",)).execute()

    if installed.VERSION >= (4, 0):
        found = upgrade_check(store, saved.id, app=f"{__name__}:totals")
        assert [one.verdict for one in found.operators] == ["compatible"]
        return
    with pytest.raises(IncompatibleError, match=r"Spark 3\.5 does not describe the state"):
        upgrade_check(store, saved.id, app=f"{__name__}:totals")


def test_operators_and_watermarks_are_found(spark: SparkSession, store: Store) -> None:
    if installed.VERSION < (4, 0):
        pytest.skip("it describes no operators")

    found = program_layout.run_empty(state_session(spark, 1), store, windows)

    assert [one.name for one in found.operators] == ["stateStoreSave", "dedupe"]
    assert found.delays_ms == (10_000,)


def test_trap_what_was_dropped_as_late_ended_in_an_error_of_py4j(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Scala 2.12, which Spark 3.5 is built with, has other methods to change a sequence."""
    watermark = 60
    rows = [
        {"topic": "t", "partition": 0, "offset": at, LATE_MS: watermark * 1000,
         "value": json.dumps({"k": 1, "v": at, "at": f"1970-01-01T00:{at // 60:02}:{at % 60:02}Z"})
         .encode()}
        for at in (30, 59, 60, 61, 90)
    ]  # fmt: skip
    behind = spark.createDataFrame(rows, f"{EVENT_SCHEMA}, {LATE_MS} long")

    found = late_rows.dropped(spark, windows, {"events": behind}, Location.of(str(tmp_path)))

    # What is not after the watermark, which is Spark's own rule.
    assert sorted(one.offset for one in found.collect()) == [30, 59, 60]
    assert {one.operator for one in found.collect()} == {"operator 1 (dropDuplicates)"}
