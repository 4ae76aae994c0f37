"""Periodic savepoints: what goes wrong is told and never raised; no JVM."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from savepoints.config.settings import RetentionSettings, Settings
from savepoints.errors import LockedError, NotFoundError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.observe import metrics
from savepoints.operations.run import periodic
from savepoints.operations.run.periodic import Attempt
from savepoints.operations.savepoint.create import Saved
from savepoints.store.locks import lease
from tests.faults.test_rollback_killed import write_output
from tests.samples import files_of, query_id, unpack, write

pytestmark = pytest.mark.drawn(2)


@pytest.fixture
def live(place: Location) -> Location:
    return unpack("rocksdb", place / "live")


def take(
    store: Store, live: Location, outputs: dict[str, str] | None = None, **options: Any
) -> Attempt:
    saved = Saved(query="clicks", checkpoint=str(live), forms=("native",), outputs=outputs)
    return periodic.take(store, saved, **options)


def test_a_savepoint_is_taken_and_told_in_the_events(store: Store, live: Location) -> None:
    attempt = take(store, live)

    assert attempt.result == "done"
    assert store.catalog.all() == [attempt.savepoint]
    (event,) = store.events.all()
    assert (event.verb, event.query, event.result) == ("create", "clicks", "done")
    assert attempt.savepoint is not None
    assert event.savepoint == attempt.savepoint.id
    assert event.bytes == attempt.savepoint.cost.bytes_copied > 0
    assert event.parameters["checkpoint"] == str(live)


def test_an_interval_counts_from_the_newest_savepoint_of_the_query(
    store: Store, live: Location
) -> None:
    assert periodic.last_taken(store, "clicks") is None

    taken = take(store, live).savepoint

    assert taken is not None
    assert periodic.last_taken(store, "clicks") == taken.created_at
    assert periodic.last_taken(store, "orders") is None


def test_while_another_takes_one_it_is_skipped_and_says_so(store: Store, live: Location) -> None:
    told: list[str] = []
    with lease.hold_files(store.root, query_id("rocksdb"), "clicks", "create"):
        attempt = take(store, live, progress=told.append)

    assert attempt.result == "skipped"
    assert isinstance(attempt.error, LockedError)
    assert "is working on" in told[-1]
    assert store.catalog.all() == []
    assert [one.result for one in store.events.all()] == ["skipped"]
    assert take(store, live).result == "done"


def test_before_the_first_batch_there_is_nothing_to_take(store: Store, place: Location) -> None:
    """A query that has just begun is no failure."""
    begun = place / "begun"
    write(begun, {"metadata": files_of("rocksdb")["metadata"]})

    assert take(store, begun).result == "skipped"


def test_a_failure_is_logged_and_in_the_events_and_not_raised(
    store: Store, place: Location, caplog: pytest.LogCaptureFixture
) -> None:
    attempt = take(store, place / "nowhere")

    assert attempt.result == "failed"
    assert isinstance(attempt.error, NotFoundError)
    assert "nowhere" in caplog.text
    (event,) = store.events.all()
    assert (event.result, event.error) == ("failed", "CheckpointNotFoundError")
    assert "nowhere" in event.message


def test_old_ones_are_expired_after_it_if_the_settings_say_so(store: Store, live: Location) -> None:
    keep = RetentionSettings(keep_last=2, after_savepoint=True)
    settings = Settings().model_copy(update={"retention": keep})

    commits = {f"commits/{batch}": live.get(f"commits/{batch}") for batch in range(4)}
    live.delete(commits)
    taken = []
    for path, commit in commits.items():
        live.put(path, commit)
        taken.append(take(store.with_settings(settings), live).savepoint)

    assert store.catalog.all() == [taken[3], taken[2]]


def test_a_batch_that_is_saved_already_is_skipped_and_counted(
    store: Store, live: Location, caplog: pytest.LogCaptureFixture
) -> None:
    """A query that has nothing to do would be saved again and again."""
    first = take(store, live)
    caplog.set_level("DEBUG")

    again = take(store, live)

    assert (first.result, again.result, again.error) == ("done", "skipped", None)
    assert str(again).splitlines()[1:] == [
        "  result: skipped",
        "  reason: batch 3 is already saved",
    ]
    assert store.catalog.all() == [first.savepoint]
    (record,) = [one for one in caplog.records if "already saved" in one.message]
    assert record.levelname == "DEBUG"
    counted = metrics.values(store.catalog.all(), store.events.all())
    assert counted["savepoints_operations_total"] == {
        ("clicks", "create", "done"): 1,
        ("clicks", "create", "skipped"): 1,
    }


def test_a_saved_batch_without_an_output_that_is_known_now_is_saved_again(
    store: Store, live: Location, place: Location
) -> None:
    take(store, live)
    write_output(str(place / "totals"), query_id("rocksdb"))

    attempt = take(store, live, outputs={"totals": str(place / "totals")})

    assert attempt.savepoint is not None
    assert [one.name for one in attempt.savepoint.outputs] == ["totals"]


def test_metrics_are_written_after_it_if_the_settings_say_so(
    store: Store, live: Location, tmp_path: Path
) -> None:
    path = tmp_path / "savepoints.prom"
    settings = Settings().model_copy(update={"metrics_file": path})

    attempt = take(store.with_settings(settings), live)

    assert attempt.savepoint is not None
    moment = attempt.savepoint.created_at.timestamp()
    line = next(
        line for line in path.read_text().splitlines()
        if line.startswith('savepoints_last_success_timestamp_seconds{query="clicks"}')
    )  # fmt: skip
    assert float(line.split()[-1]) == pytest.approx(moment, abs=1e-3)


def test_a_metrics_file_that_cannot_be_written_changes_nothing(
    store: Store, live: Location, tmp_path: Path
) -> None:
    settings = Settings().model_copy(update={"metrics_file": tmp_path / "no" / "such" / "file"})

    attempt = take(store.with_settings(settings), live)

    assert attempt.result == "done"
    assert dataclasses.asdict(attempt)["error"] is None
