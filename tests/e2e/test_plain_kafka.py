"""Drivers that users write, on a topic or a rate: a bug, a rollback, and going on.

With `attach` as in the README and nothing else. What the table must have is computed by pandas
from what was produced.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from deltalake import DeltaTable

import savepoints
from savepoints.errors import QueryRunningError
from savepoints.handle import Store
from savepoints.model import Savepoint
from tests.e2e.marks import NIGHTLY
from tests.e2e.plain_driver import Driver
from tests.sources.broker import Broker
from tests.spark_session import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from savepoints.local import LocalWorld

pytestmark = NIGHTLY


@pytest.fixture(params=["append", "upsert"])
def driver(
    spark: SparkSession,
    world: LocalWorld,
    world_environment: dict[str, str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Any:
    """Give a driver on a topic; where the broker is, a rollback is told by the environment."""
    topic = Broker.of(world).make(partitions=1)
    made = Driver(spark, tmp_path, request.param, servers=world.bootstrap_servers, topic=topic)
    yield made
    for query in made.started:
        query.stop()


def begun(driver: Driver) -> Savepoint:
    """Run without the bug, and return the savepoint of its end."""
    driver.add(1, 2, 13, 3)
    driver.add(3, 4)
    good = driver.run()
    assert driver.rows() == driver.truth()
    driver.add(5, 15, 2)
    driver.add(6, 13)
    return good


def gone_back(driver: Driver, good: Savepoint, before: list[tuple[int, int]]) -> None:
    """Roll back, look, go on without the bug, and look."""
    done = driver.store.savepoint(good.id).rollback(to=f"{driver.checkpoint}-fixed").execute()
    assert driver.rows() == before
    driver.checkpoint = done.checkpoint
    driver.add(7, 1)
    driver.run()
    assert driver.rows() == driver.truth()


def test_back_from_a_bug_when_the_driver_has_stopped(driver: Driver) -> None:
    good = begun(driver)
    before = driver.rows()
    driver.run(factor=-1)
    assert driver.rows() != driver.truth()

    gone_back(driver, good, before)


def test_back_from_a_bug_when_the_driver_runs(driver: Driver) -> None:
    """Refused while it runs; possible when it has been stopped as the refusal says."""
    good = begun(driver)
    before = driver.rows()
    query = driver.start(factor=-1)
    attached = driver.attach(query, every="150ms")
    query.processAllAvailable()

    with pytest.raises(QueryRunningError, match="has been running in its own driver") as refused:
        driver.store.savepoint(good.id).rollback(to=f"{driver.checkpoint}-fixed").execute()
    assert "attached.stop()" in refused.value.hint
    assert driver.rows() != driver.truth()

    attached.stop()
    gone_back(driver, good, before)


@pytest.mark.parametrize("seconds", [0.3, 1.5])
def test_back_from_a_bug_when_the_driver_was_killed(driver: Driver, seconds: float) -> None:
    good = begun(driver)
    before = driver.rows()
    driver.run_and_die(-1, seconds)

    gone_back(driver, good, before)


def test_back_from_a_bug_in_what_a_rate_makes(spark: SparkSession, tmp_path: Path) -> None:
    """A rate makes the same rows again; a complete table has each of them once."""
    uri, table = str(tmp_path / "store"), str(tmp_path / "table")
    store = Store.at(uri).make()

    def run(checkpoint: str, factor: int, rows: int) -> Savepoint:
        ticks = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
        sums = ticks.groupBy((ticks.value % 7).alias("k")).agg({"value": "sum", "*": "count"})
        query = (
            sums.selectExpr("k", "`count(1)` as c", f"`sum(value)` * {factor} as v")
            .writeStream.queryName("ticks").outputMode("complete").format("delta")
            .option("checkpointLocation", checkpoint).start(table)
        )  # fmt: skip
        attached = savepoints.attach(spark, query, every="1h", store=uri, forms=("native",))
        wait_until(lambda: count() >= rows, f"{rows} rows were read")
        taken = attached.stop()
        assert taken is not None
        return taken

    def found() -> pd.DataFrame:
        return DeltaTable(table).to_pandas().sort_values("k").reset_index(drop=True)

    def count() -> int:
        return int(found()["c"].sum()) if DeltaTable.is_deltatable(table) else 0

    def truth() -> pd.DataFrame:
        values = pd.Series(range(count()))
        by_key = values.groupby(values % 7).agg(["count", "sum"]).reset_index()
        return by_key.set_axis(["k", "c", "v"], axis=1)

    first = str(tmp_path / "first")
    good = run(first, 1, 50)
    before = found()
    pd.testing.assert_frame_equal(before, truth(), check_dtype=False)
    run(first, -1, count() + 50)
    assert not found()["v"].equals(truth()["v"])

    done = store.savepoint(good.id).rollback(to=str(tmp_path / "second")).execute()
    pd.testing.assert_frame_equal(found(), before)
    run(done.checkpoint, 1, len(before) + 150)

    pd.testing.assert_frame_equal(found(), truth(), check_dtype=False)
