"""What a run says of a batch that takes long."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from savepoints.runtime import running_batch
from tests.spark_session import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_committed_batches_are_told_at_once_and_then_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    told = running_batch.RunningBatch(said.append)
    committed = running_batch.Committed()
    for batch, rows in ((7, 0), (8, 1200), (9, 1), (10, 30)):
        committed.add(batch, rows)
        told.tell_committed(committed)
    monkeypatch.setattr(running_batch, "COMMITTED_SECONDS", 0.0)
    told.tell_committed(committed)
    told.tell_committed(committed)

    assert said == [
        "batch 8 committed: 1,200 records in 2 batches",
        "batch 10 committed: 31 records in 2 batches",
    ]


def test_trap_a_run_keeps_each_of_its_batches_in_memory() -> None:
    """With a few each second it is a gigabyte in a month."""
    committed = running_batch.Committed()
    for batch in range(3, 10_003):
        committed.add(batch, 2)

    assert committed == running_batch.Committed(first=3, last=10_002, batches=10_000, rows=20_000)
    assert len(pickle.dumps(committed)) < 200


@pytest.mark.nightly
@pytest.mark.spark
def test_trap_a_query_without_input_seems_to_run_a_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's trigger is active while it asks the sources, which it does all the time."""
    monkeypatch.setattr(running_batch, "LONG_SECONDS", 0.0)
    (tmp_path / "in").mkdir()
    begun, go_on = threading.Event(), threading.Event()

    def write(_batch: Any, _number: int) -> None:
        begun.set()
        assert go_on.wait(60)

    rows = spark.readStream.schema("value STRING").text(str(tmp_path / "in"))
    query = rows.writeStream.option("checkpointLocation", str(tmp_path / "c")).foreachBatch(write)
    started = query.start()
    said: list[str] = []
    told = running_batch.RunningBatch(said.append)
    try:
        for _ in range(300):
            told.look(started)
        assert said == []

        (tmp_path / "in" / "1.txt").write_text("one\n")
        assert begun.wait(60)

        def tells() -> bool:
            told.look(started)
            return bool(said)

        wait_until(tells, "the run says that a batch runs")
        go_on.set()
        wait_until(lambda: not started.status["isDataAvailable"], "the batch has ended")
        told.look(started)
        said.clear()
        for _ in range(300):
            told.look(started)
        assert said == []
    finally:
        go_on.set()
        started.stop()
