"""`attach`: savepoints of a query that the user starts, in two lines of the user's job."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import savepoints
from savepoints.errors import PartlyDoneError, QueryRunningError, UsageError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.inspect.verify import verify
from savepoints.operations.run import attach
from savepoints.operations.run.attach import Attached
from savepoints.spark import listener, private_api
from savepoints.store.locks import lease
from tests.spark_session import wait_until

pytestmark = [pytest.mark.spark]


class Job:
    """A user's own job on files: an aggregate, with checkpoint and output where the user likes."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark, self.directory = spark, directory
        (directory / "in").mkdir()
        (directory / "store").mkdir()
        self.store = Store.at(str(directory / "store")).make()
        self.checkpoint = directory / "checkpoint"
        self.add(0)
        self.query = self.start()

    def start(self) -> Any:
        return (
            self.spark.readStream.schema("k long").json(str(self.directory / "in"))
            .groupBy("k").agg(F.count("*").alias("n"))
            .writeStream.queryName("clicks").outputMode("complete")
            .option("checkpointLocation", str(self.checkpoint))
            .format("memory").start()
        )  # fmt: skip

    def add(self, number: int) -> None:
        path = self.directory / "in" / f"{number}.json"
        path.with_suffix(".tmp").write_text(json.dumps({"k": number % 3}))
        path.with_suffix(".tmp").rename(path)

    def listening(self) -> int:
        """Return how many listeners the session has."""
        return len(private_api.java_session(self.spark).streams().listListeners())

    def attach(self, every: str = "200ms") -> Attached:
        attached = savepoints.attach(
            self.spark, self.query, every=every, store=str(self.store.root), forms=("native",)
        )
        assert isinstance(attached, Attached)
        return attached


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Any:
    made = Job(spark, tmp_path)
    yield made
    made.query.stop()


def test_savepoints_are_taken_while_the_query_runs_and_end_with_it(job: Job) -> None:
    attached = job.attach()
    wait_until(lambda: bool(job.store.catalog.all()), "a savepoint")
    job.add(1)
    wait_until(
        lambda: job.store.catalog.all()[0].cut.batch_id >= 1, "a savepoint of the next batch"
    )

    assert job.query.isActive
    job.query.stop()
    attached.detach()
    taken = job.store.catalog.all()

    assert {one.query for one in taken} == {"clicks"}
    assert {one.query_id for one in taken} == {str(job.query.id)}
    assert verify(job.store, taken[0].id, depth="checksums").grade == "ok"
    assert [one.result for one in attached.attempts].count("done") == len(taken)


def test_trap_a_driver_keeps_each_attempt_in_memory(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day without the store is thousands of errors, each with all that was known then."""
    monkeypatch.setattr(attach, "_ATTEMPTS_KEPT", 2)
    attached = job.attach(every="50ms")
    wait_until(lambda: bool(attached.attempts), "an attempt")
    first = attached.attempts[0]

    wait_until(lambda: first not in attached.attempts, "it was forgotten")
    attached.detach()

    assert len(attached.attempts) == 2


def test_trap_without_a_checkpoint_of_its_own_a_query_is_said_not_to_have_run(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark makes one, and removes it at the end: that is known from the beginning."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"k": 1}')
    read = spark.readStream.schema("k long").json(str(tmp_path / "in"))
    query = read.writeStream.format("noop").start()
    attached = savepoints.attach(
        spark, query, every="1h", store=str(tmp_path / "store"), name="clicks", outputs={}
    )
    assert "no final savepoint of clicks can be taken" in caplog.text
    query.processAllAvailable()
    taken = attached.create(forms=("native",))

    with pytest.raises(PartlyDoneError, match=rf"the newest is {taken.id} \(batch 0\)") as told:
        attached.stop()

    assert "checkpointLocation" in told.value.hint
    assert not query.isActive


def test_when_the_query_ends_no_more_are_taken(job: Job) -> None:
    attached = job.attach()
    wait_until(lambda: bool(job.store.catalog.all()), "a savepoint")
    job.query.stop()

    wait_until(lambda: not attached.active, "the thread has ended by itself")


def test_trap_a_listener_that_stays_is_called_for_each_batch_of_all_others(job: Job) -> None:
    """Those of queries that had ended kept a processor busy, event after event."""
    before = job.listening()
    job.attach()
    assert job.listening() == before + 1
    job.query.stop()

    wait_until(lambda: job.listening() == before, "nobody listens any more")


def test_trap_a_detached_query_is_listened_to_until_it_ends(job: Job) -> None:
    """It may go on for weeks, and so would the calls for each of its batches."""
    before = job.listening()
    attached = job.attach()
    assert job.listening() == before + 1

    attached.detach()

    assert job.query.isActive
    assert job.listening() == before


def test_trap_spark_does_not_tell_that_the_query_ended(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event got lost once: the lease of a query that is over was held on and on."""
    monkeypatch.setattr(listener, "on_end", lambda *_: lambda: None)
    attached = job.attach()
    wait_until(lambda: bool(job.store.catalog.all()), "a savepoint")
    job.query.stop()

    wait_until(lambda: not attached.active, "the next tick has seen it")
    wait_until(lambda: lease.holder(job.store.root, "clicks") is None, "the lease is free")


def test_trap_the_end_of_a_query_is_heard_in_its_own_session_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Attached by another one, it kept its lease until the next savepoint was due."""
    job = Job(spark.newSession(), tmp_path)
    attached = savepoints.attach(
        spark, job.query, every="1h", store=str(job.store.root), forms=("native",)
    )

    job.query.stop()

    wait_until(lambda: not attached.active, "no more savepoints are taken")
    wait_until(lambda: lease.holder(job.store.root, "clicks") is None, "the lease is free")


def test_trap_a_second_query_takes_the_name_of_another_without_a_word(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    """Its first savepoint ends the generation of the other, whose driver is then stopped."""
    assert job.attach(every="1h").stop() is not None
    first, job.checkpoint = job.checkpoint, job.directory / "another"
    job.query = job.start()

    job.attach(every="1h").detach()

    assert f"{first} was the checkpoint of clicks until now" in caplog.text
    assert "name='…'" in caplog.text
    job.store.generations.begin("clicks", 2, Location.of(str(first)) / "2", by="rollback")
    with pytest.raises(UsageError, match="the checkpoint of the query clicks is"):
        job.attach(every="1h")
    assert lease.holder(job.store.root, "clicks") is None


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_trap_a_process_that_is_forked_ends_the_query_of_its_parent(job: Job) -> None:
    """It has the same objects, and ends what has not been stopped as every program does."""
    attached = job.attach(every="1h")
    child = multiprocessing.get_context("fork").Process(target=int)

    child.start()
    child.join(60)

    assert child.exitcode == 0
    assert (attached.active, job.query.isActive) == (True, True)
    assert lease.holder(job.store.root, "clicks") is not None


def test_trap_an_attach_that_failed_keeps_the_query_for_itself(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever corrected the mistake was told that the query runs elsewhere already."""
    with monkeypatch.context() as failing:
        failing.setattr(listener, "on_end", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            job.attach(every="1h")
    assert lease.holder(job.store.root, "clicks") is None

    with pytest.raises(UsageError, match="10 minutes"):
        job.attach(every="10 minutes")
    assert lease.holder(job.store.root, "clicks") is None

    job.attach(every="1h")


def test_trap_a_query_that_is_started_again_still_runs_for_its_driver(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's event of its end was lost, and the next look at it is an hour away."""
    monkeypatch.setattr(listener, "on_end", lambda *_: lambda: None)
    earlier = job.attach(every="1h")
    with pytest.raises(QueryRunningError):
        job.attach(every="1h")
    job.query.stop()
    job.query = job.start()

    again = job.attach(every="1h")

    wait_until(lambda: not earlier.active, "the thread has ended")
    assert again.active
    assert lease.holder(job.store.root, "clicks") is not None


def test_a_failing_savepoint_never_stops_the_query(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    """The store disappears under it; batches go on, the log has it."""
    attached = job.attach()
    wait_until(lambda: bool(job.store.catalog.all()), "a savepoint")
    _replace_by_a_file(Path(str(job.store.root)), job.directory)
    done = len(attached.attempts)

    wait_until(
        lambda: "failed" in [one.result for one in attached.attempts[done:]], "a failed attempt"
    )
    job.add(2)
    wait_until(lambda: Location.of(str(job.checkpoint)).exists("commits/1"), "the query continues")

    assert job.query.isActive
    assert "the query continues" in caplog.text
    attached.detach()


def _replace_by_a_file(store: Path, beside: Path) -> None:
    """Put a file in the store's place, also while a savepoint is being written there."""
    file = beside / "file"
    file.write_text("a file in its place")
    for number in itertools.count():
        store.rename(beside / f"gone{number}")
        with suppress(FileExistsError):  # What was being written has made the directory anew.
            os.link(file, store)
            return


def test_a_savepoint_that_another_process_takes_is_skipped(job: Job) -> None:
    with lease.hold_files(job.store.root, str(job.query.id), "clicks", "create"):
        attached = job.attach()
        wait_until(lambda: bool(attached.attempts), "an attempt")
        assert attached.attempts[0].result == "skipped"
    wait_until(lambda: bool(job.store.catalog.all()), "it goes on when the other is done")
    attached.detach()
