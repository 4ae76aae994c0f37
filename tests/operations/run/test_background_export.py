"""Rows of periodic savepoints that are written beside the query."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest
from pyspark import SparkContext

from savepoints import faults
from savepoints.config.schedule import export_schedule
from savepoints.errors import UsageError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.moments import utc_now
from savepoints.operations.run import periodic
from savepoints.operations.run.background_export import BackgroundExport
from savepoints.operations.savepoint import export
from savepoints.operations.savepoint.create import Saved
from savepoints.runtime import ticker
from tests.samples import take, unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.drawn(2)

WAIT = 120.0


class Gate:
    """Holds the first export at its end until it is opened, and knows how many were written."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.written = threading.Semaphore(0)
        patch.setattr(faults, "reach", self._reach)

    def _reach(self, point: str) -> None:
        if point == "export.exported":
            self.reached.set()
            assert self.opened.wait(WAIT)
        if point == "export.catalog":
            self.written.release()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


def forms(store: Store, taken: list[Savepoint]) -> list[int]:
    """Return for each savepoint how many forms it has."""
    known = {one.id: one for one in store.catalog.all()}
    return [len(known[one.id].forms) for one in taken]


@pytest.fixture
def taken(on_local: Location, local_store: Store) -> list[Savepoint]:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    return [take(local_store, checkpoint, batch_id=batch) for batch in range(4)]


def test_trap_a_clock_set_back_puts_off_no_rows(
    local_store: Store, taken: list[Savepoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    exports = BackgroundExport(local_store, "1h")
    exports.add(taken[0])
    earlier = utc_now() - timedelta(hours=5)
    monkeypatch.setattr(ticker, "utc_now", lambda: earlier)

    left = exports._seconds_left()

    assert left is not None
    assert 3500 < left <= 3600


def test_trap_a_process_that_lives_shorter_than_the_interval_wrote_no_rows(
    local_store: Store, on_local: Location
) -> None:
    """The interval counted from the start of each."""
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    query = take(local_store, checkpoint, batch_id=0).query
    assert periodic.last_with_rows(local_store, query) is None
    rows = take(local_store, checkpoint, batch_id=1)
    then = rows.created_at - timedelta(minutes=40)
    local_store.catalog.put([replace(rows, created_at=then, forms=("native", "canonical"))])
    newest = take(local_store, checkpoint, batch_id=2)

    exports = BackgroundExport(
        local_store, "1h", since=partial(periodic.last_with_rows, local_store, query)
    )
    exports.add(newest)

    left = exports._seconds_left()
    assert left is not None
    assert 19 * 60 < left <= 20 * 60


def test_trap_rows_begin_a_session_in_place_of_the_one_that_was_stopped(
    local_store: Store,
    taken: list[Savepoint],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The program would get it when it asks for its next, without the settings that it gives."""
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)  # As `spark.stop()` does.

    with BackgroundExport(local_store, "each") as exports:
        exports.add(taken[0])

    said = f"the Spark session was stopped before the state rows of {taken[0].id} were written"
    assert said in caplog.text
    assert f"savepoints export {taken[0].id}" in caplog.text
    assert SparkContext._active_spark_context is None


@pytest.mark.spark
@pytest.mark.parametrize(("when", "expected"), [("newest", [2, 1, 1, 2]), ("each", [2, 2, 2, 2])])
def test_the_newest_comes_first_and_what_was_overtaken_is_passed_over(
    when: str,
    expected: list[int],
    taken: list[Savepoint],
    local_store: Store,
    gate: Gate,
    spark: SparkSession,
) -> None:
    with BackgroundExport(local_store, when) as exports:
        exports.add(taken[0])
        assert gate.reached.wait(WAIT)
        for one in taken[1:]:
            exports.add(one)
        gate.opened.set()
        for _ in range(expected.count(2)):
            assert gate.written.acquire(timeout=WAIT)

    assert forms(local_store, taken) == expected


@pytest.mark.spark
def test_a_savepoint_is_over_while_rows_of_the_one_before_are_written(
    on_local: Location, local_store: Store, gate: Gate, spark: SparkSession
) -> None:
    saved = Saved(query="q", checkpoint=str(unpack("rocksdb", on_local / "live")))
    with BackgroundExport(local_store, "newest") as exports:
        first = periodic.take(local_store, saved, exports=exports)
        assert gate.reached.wait(WAIT)
        again = periodic.take(local_store, saved, exports=exports)
        gate.opened.set()
        assert gate.written.acquire(timeout=WAIT)

    assert (first.result, again.result) == ("done", "skipped")
    assert first.savepoint is not None
    assert first.savepoint.forms == ("native",)
    assert forms(local_store, [first.savepoint]) == [2]


@pytest.mark.spark
def test_at_the_end_only_the_rows_under_way_are_waited_for(
    taken: list[Savepoint], local_store: Store, gate: Gate, spark: SparkSession
) -> None:
    exports = BackgroundExport(local_store, "newest")
    exports.start()
    exports.add(taken[0])
    assert gate.reached.wait(WAIT)
    exports.add(taken[1])
    exports.end()
    gate.opened.set()
    exports.join()

    assert forms(local_store, taken) == [2, 1, 1, 1]


@pytest.mark.nightly
@pytest.mark.spark
def test_trap_batches_wait_for_an_export_with_as_many_tasks_as_partitions(
    taken: list[Savepoint], local_store: Store, gate: Gate, spark: SparkSession
) -> None:
    """Beside a query of two cores one task writes the rows of two state partitions."""

    def most_tasks(work: Callable[[], object]) -> int:
        tracker = spark.sparkContext.statusTracker()
        before = set(tracker.getJobIdsForGroup())
        work()
        jobs = [tracker.getJobInfo(one) for one in set(tracker.getJobIdsForGroup()) - before]
        stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
        return max(stage.numTasks for stage in stages if stage)

    def export_beside() -> None:
        gate.opened.set()
        with BackgroundExport(local_store, "each") as exports:
            exports.add(taken[0])

    def export_alone() -> None:
        export.execute(export.plan(local_store, taken[1].id), local_store)

    assert (most_tasks(export_beside), most_tasks(export_alone)) == (1, 2)
    assert forms(local_store, taken[:2]) == [2, 2]


@pytest.mark.parametrize("when", ["never", "daily"])
def test_rows_are_not_written_before_their_time(
    when: str, taken: list[Savepoint], local_store: Store
) -> None:
    with BackgroundExport(local_store, when) as exports:
        for one in taken:
            exports.add(one)

    assert forms(local_store, taken) == [1, 1, 1, 1]
    assert [one.verb for one in local_store.events.all() if one.verb == "export"] == []


@pytest.mark.spark
def test_on_a_schedule_they_are_those_of_the_newest(
    taken: list[Savepoint], local_store: Store, gate: Gate, spark: SparkSession
) -> None:
    gate.opened.set()
    exports = BackgroundExport(local_store, "1s")
    for one in taken:
        exports.add(one)
    with exports:
        assert gate.written.acquire(timeout=WAIT)

    assert forms(local_store, taken) == [1, 1, 1, 2]


@pytest.mark.spark
def test_what_failed_stays_native_and_is_told(
    taken: list[Savepoint],
    local_store: Store,
    caplog: pytest.LogCaptureFixture,
    spark: SparkSession,
) -> None:
    (broken,) = [
        info.path
        for info in local_store.root.list(f"savepoints/{taken[0].id}")
        if info.path.endswith("manifest.json")
    ]
    local_store.root.delete([broken])
    with BackgroundExport(local_store, "each") as exports:
        exports.add(taken[0])

    assert f"savepoints export {taken[0].id}" in caplog.text
    assert forms(local_store, taken[:1]) == [1]


@pytest.mark.parametrize("text", ["dayly", "0 3 * *", ""])
def test_a_time_that_is_none_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        export_schedule(text)
    assert "newest, each, never, daily" in refused.value.hint
