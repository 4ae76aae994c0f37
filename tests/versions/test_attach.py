"""A plain PySpark driver with `attach`, on the Spark that is installed, whichever it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import savepoints
from savepoints.config.settings import Settings
from savepoints.handle import Store
from savepoints.operations.inspect.drill import drill
from savepoints.spark.versions import SparkVersion
from tests.data import make_older
from tests.data.make_older import PROVIDERS
from tests.spark_session import wait_until
from tests.versions import installed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.versions]

FILES, MORE = range(3), range(3, 5)
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with installed.session() as started:
        started.conf.set("spark.sql.shuffle.partitions", "2")
        yield started


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_attach_saves_is_rolled_back_to_and_goes_on_exactly(
    provider: str, spark: SparkSession, tmp_path: Path
) -> None:
    """The rollback is to the end of the third batch; the truth is a query nobody has touched."""
    spark.conf.set(PROVIDER, PROVIDERS[provider])
    source = tmp_path / "in"
    make_older.put(source, FILES)
    seen: dict[int, list[str]] = {}

    def keep(rows: DataFrame, batch_id: int) -> None:
        seen[batch_id] = sorted(map(str, rows.toJSON().collect()))

    events = spark.readStream.schema("k long, v long, t long").option("maxFilesPerTrigger", 1)
    frame, mode = make_older.build(events.json(str(source)), "totals")
    query = (
        frame.writeStream.outputMode(mode)
        .foreachBatch(keep)
        .queryName("totals")
        .option("checkpointLocation", str(tmp_path / "live"))
        .start()
    )
    (tmp_path / "store").mkdir()
    store = Store.at(str(tmp_path / "store"), settings=Settings()).make()
    attached = savepoints.attach(
        spark, query, every="1h", store=store, outputs={}, forms=("native",)
    )
    wait_until(lambda: max(seen, default=-1) >= max(FILES), "the files are read")
    saved = attached.stop()
    assert saved is not None
    assert saved.cut.batch_id == max(FILES)
    make_older.put(source, MORE)
    live, next_one = str(tmp_path / "live"), str(tmp_path / "next")
    bug = make_older.run(spark, source, live, "totals")
    assert set(bug) == set(MORE)

    store.query("totals").rollback(
        saved.id, to=next_one, stopped=True, rewind_outputs=False
    ).execute()
    found = make_older.run(spark, source, next_one, "totals")

    whole = make_older.run(spark, source, str(tmp_path / "whole"), "totals")
    assert found == {batch: rows for batch, rows in whole.items() if batch in MORE}
    assert {batch: rows for batch, rows in whole.items() if batch in FILES} == seen


def test_trap_a_spark_that_cannot_read_rows_of_rocksdb_saves_natively_and_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.conf.set(PROVIDER, PROVIDERS["rocksdb"])
    make_older.put(tmp_path / "in", FILES)
    make_older.run(spark, tmp_path / "in", str(tmp_path / "live"), "totals")
    (tmp_path / "store").mkdir()
    store = Store.at(str(tmp_path / "store")).make()
    version = SparkVersion.installed()
    assert version is not None
    if not version.reads_raw_rows:
        plan = store.create(checkpoint=str(tmp_path / "live"), query="totals")
        assert plan.plan.forms == ("native",)
        assert any("native form only" in one for one in plan.plan.warnings)
        saved = plan.execute()
        assert saved.rows_missing is None
        assert [one.operator_id for one in drill(store, saved.id).not_compared] == [0]
        return
    assert store.create(checkpoint=str(tmp_path / "live"), query="totals").plan.forms == (
        "native",
        "canonical",
    )
