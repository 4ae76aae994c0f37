"""The batch log, compared with the offset log that it is a copy of."""

from __future__ import annotations

import json
import logging

import pytest

from savepoints.checkpoint.logs import offset_log
from savepoints.config.settings import SparkSettings
from savepoints.io import Location
from savepoints.store import batch_log
from savepoints.store.batch_log import Batch, Recorder
from tests.samples import files_of

QUERY = "totals"


@pytest.fixture
def checkpoint(on_local: Location) -> Location:
    """Give an empty checkpoint."""
    return on_local / "checkpoint"


def run(checkpoint: Location, first: int, last: int) -> dict[int, Batch]:
    """Write the logs of batches as Spark does; returns what the batch log must have of them."""
    files = files_of("hdfs")
    expected: dict[int, Batch] = {}
    for batch in range(first, last):
        position = json.dumps({"orders": {"0": 10 * batch}})
        data = offset_log.with_batch(
            files["offsets/3"],
            "offsets/3",
            positions=[position],
            watermark_ms=1000 * batch,
            timestamp_ms=7000 + batch,
        )
        checkpoint.put(f"offsets/{batch}", data)
        checkpoint.put(f"commits/{batch}", files["commits/3"])
        expected[batch] = Batch(batch, (position,), 1000 * batch, 7000 + batch)
    return expected


def forget(checkpoint: Location, before: int) -> None:
    """Remove the logs of older batches, as Spark does."""
    for log in ("offsets", "commits"):
        old = [
            one.path for one in checkpoint.list(log) if int(one.path.rpartition("/")[2]) < before
        ]
        checkpoint.delete(old)


def test_it_has_each_batch_when_spark_has_long_forgotten_it(
    on_local: Location, checkpoint: Location
) -> None:
    expected: dict[int, Batch] = {}
    with Recorder(on_local, QUERY, 1, checkpoint, retained=100) as recorder:
        for begin in range(0, 300, 10):
            expected |= run(checkpoint, begin, begin + 10)
            recorder.committed(begin + 9)
            recorder.join()  # The test writes batches faster than any query.
            forget(checkpoint, begin - 90)

    assert batch_log.read(on_local, QUERY, 1) == expected
    assert len((on_local / "batches" / QUERY / "1").list()) <= 300 / 25 + 1
    assert batch_log.read(on_local, QUERY, 2) == {}


def test_trap_spark_keeps_fewer_batches_than_make_a_chunk(
    on_local: Location, checkpoint: Location
) -> None:
    """With a small `minBatchesToRetain` most batches were forgotten before they were copied."""
    conf = {"spark.sql.streaming.minBatchesToRetain": "8"}
    retained = SparkSettings(conf=conf).retained_batches
    expected: dict[int, Batch] = {}
    with Recorder(on_local, QUERY, 1, checkpoint, retained=retained) as recorder:
        for batch in range(60):
            expected |= run(checkpoint, batch, batch + 1)
            recorder.committed(batch)
            recorder.join()
            forget(checkpoint, batch - 8)

    assert batch_log.read(on_local, QUERY, 1) == expected


def test_what_a_killed_run_left_is_copied_by_the_next(
    on_local: Location, checkpoint: Location
) -> None:
    expected = run(checkpoint, 0, 5)
    batch_log.copy(on_local, QUERY, 1, checkpoint)
    expected |= run(checkpoint, 5, 60)  # A run that was killed before it copied them.
    checkpoint.put("offsets/60", b"planned, not committed")

    with Recorder(on_local, QUERY, 1, checkpoint, retained=100):
        pass

    assert batch_log.read(on_local, QUERY, 1) == expected
    assert batch_log.copy(on_local, QUERY, 1, checkpoint) == 59
    assert len((on_local / "batches" / QUERY / "1").list()) == 2


def test_trap_batches_that_spark_has_forgotten_first_are_a_visible_gap(
    on_local: Location, checkpoint: Location
) -> None:
    run(checkpoint, 0, 5)
    batch_log.copy(on_local, QUERY, 1, checkpoint)
    run(checkpoint, 5, 200)
    forget(checkpoint, 100)

    batch_log.copy(on_local, QUERY, 1, checkpoint)

    assert sorted(batch_log.read(on_local, QUERY, 1)) == [*range(5), *range(100, 200)]


def test_a_failure_is_logged_and_does_not_reach_the_run(
    on_local: Location, checkpoint: Location, caplog: pytest.LogCaptureFixture
) -> None:
    expected = run(checkpoint, 0, 30)
    (on_local / "batches").put(QUERY, b"a file where a directory has to be")

    with (
        caplog.at_level(logging.WARNING),
        Recorder(on_local, QUERY, 1, checkpoint, retained=100) as recorder,
    ):
        recorder.committed(29)
        recorder.join()
        (on_local / "batches").delete([QUERY])

    assert "could not update the batch log of totals, generation 1" in caplog.text
    assert batch_log.read(on_local, QUERY, 1) == expected
