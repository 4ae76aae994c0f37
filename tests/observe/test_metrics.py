"""Metrics, counted by hand from events that are written here."""

from __future__ import annotations

import dataclasses
import urllib.request
from datetime import timedelta
from pathlib import Path
from urllib.error import HTTPError

import pytest
from prometheus_client.parser import text_string_to_metric_families

from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import StoreNotFoundError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Edit
from savepoints.observe import metrics
from savepoints.observe.kafka_figures import LAG, RESTORABLE_UNTIL
from savepoints.store.locks.journal import Journal, Operation
from savepoints.store.tables.events import BROKEN, Event
from tests.infra.metrics.promql import promtool
from tests.samples import BEGINNING, savepoint

LINES = {
    'savepoints_last_success_timestamp_seconds{query="clicks"}': (
        BEGINNING + timedelta(hours=2)
    ).timestamp(),
    'savepoints_periodic{query="clicks"}': 1,
    'savepoints_catalog_size{query="clicks",state="broken"}': 1,
    'savepoints_catalog_size{query="clicks",state="complete"}': 2,
    'savepoints_without_rows{query="clicks"}': 0,
    'savepoints_capture_duration_seconds_count{query="clicks"}': 2,
    'savepoints_capture_duration_seconds_sum{query="clicks"}': 4.0,
    'savepoints_captured_bytes_total{query="clicks"}': 1500,
    'savepoints_operations_total{query="clicks",result="failed",verb="create"}': 1,
    'savepoints_operations_total{query="clicks",result="done",verb="create"}': 2,
    'savepoints_restore_verify_failures_total{query="clicks"}': 4,
    'savepoints_recovery_seconds{query="clicks"}': 2.5,
    'savepoints_unfinished_operations{query="clicks",verb="rollback"}': 1,
    'savepoints_last_verify_timestamp_seconds{query="clicks"}': (
        BEGINNING + timedelta(minutes=9)
    ).timestamp(),
    'savepoints_last_drill_timestamp_seconds{query="clicks"}': (
        BEGINNING + timedelta(minutes=10)
    ).timestamp(),
    'savepoints_late_events{query="clicks"}': 2,
    'savepoints_operations_total{query="clicks",result="done",verb="late"}': 2,
    'savepoints_last_dropped_merge_timestamp_seconds{query="clicks"}': (
        BEGINNING + timedelta(minutes=17)
    ).timestamp(),
    'savepoints_operations_total{query="clicks",result="done",verb="merge"}': 3,
    'savepoints_operations_total{query="clicks",result="failed",verb="merge"}': 1,
}


def event(number: int, verb: str, result: str = "done", **facts: object) -> Event:
    made = Event(
        f"op-20261120-100000-{number:06d}",
        BEGINNING + timedelta(minutes=number),
        verb,
        "ops@host",
        result,  # type: ignore[arg-type]
        "clicks",
    )
    return dataclasses.replace(made, **facts)  # type: ignore[arg-type]


@pytest.fixture
def counted(local_store: Store) -> Store:
    for number, state in ((1, "complete"), (2, "complete"), (3, "broken")):
        made = savepoint(number, query="clicks", state=state)
        local_store.catalog.add(dataclasses.replace(made, kind="periodic"))
    for one in (
        event(1, "create", seconds=1.5, bytes=1000),
        event(2, "create", seconds=2.5, bytes=500),
        event(3, "create", "failed", seconds=9.0),
        event(4, "verify", "failed"),
        event(5, "restore", "failed", seconds=8.0),
        event(6, "restore", seconds=7.5),
        event(7, "restore", seconds=2.5),
        event(8, "verify"),
        event(9, "verify"),
        event(10, "drill"),
        event(11, "drill", "failed"),
        event(12, "verify", "failed"),
        event(13, "late", parameters={"events": "90", "entities": "3"}),
        event(14, "late", parameters={"events": "5", "entities": "3"}),
        event(15, "merge", parameters={"batch": "dropped", "rows": "3"}),
        event(16, "merge", parameters={"batch": "s3://lake/late", "rows": "1"}),
        event(17, "merge", parameters={"batch": "dropped", "rows": "0"}),
        event(18, "merge", "failed", parameters={"batch": "dropped"}),
    ):
        local_store.events.append(one)
    begun = Operation(
        "op-x", "rollback", "clicks", {}, "savepoints rollback x", "2026-11-20T10:00:00Z"
    )
    Journal.begin(local_store.root, begun)
    return local_store


def samples_of(text: str) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{k}="{v}"' for k, v in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def test_every_metric_is_counted_from_catalog_and_events(counted: Store) -> None:
    found = samples_of(metrics.text(counted))

    assert {name: found.get(name) for name in LINES} == LINES
    assert {
        name.partition("{")[0].removesuffix("_count").removesuffix("_sum") for name in found
    } == {metric.name for metric in metrics.METRICS} - {LAG, RESTORABLE_UNTIL}


def test_promtool_finds_nothing_wrong_with_names_and_format(counted: Store) -> None:
    assert promtool("check", "metrics", given=metrics.text(counted)) == ""


def test_trap_a_fork_that_nobody_saves_periodically_was_overdue(counted: Store) -> None:
    """Twenty minutes after its one savepoint, in each store in which versions are compared."""
    counted.catalog.add(savepoint(8, query="clicks_b"))
    settings = [
        Settings(
            queries={"clicks_b": QuerySettings(app="a:b", checkpoints="s3://b/c", every=every)}
        )
        for every in (None, "5m")
    ]
    name = 'savepoints_periodic{query="clicks_b"}'

    alone, planned = (samples_of(metrics.text(counted.with_settings(one))) for one in settings)

    assert 'savepoints_last_success_timestamp_seconds{query="clicks_b"}' in alone
    assert (alone.get(name), planned.get(name)) == (None, 1)


def test_a_savepoint_that_was_edited_by_hand_does_not_make_the_query_look_saved(
    counted: Store,
) -> None:
    before = samples_of(metrics.text(counted))
    made = dataclasses.replace(savepoint(9, query="clicks"), edit=Edit("me", "a try", 0))
    counted.catalog.add(made)

    found = samples_of(metrics.text(counted))

    name = 'savepoints_last_success_timestamp_seconds{query="clicks"}'
    assert found[name] == before[name]


def test_trap_a_query_that_is_verified_with_all_others_seems_not_to_be(counted: Store) -> None:
    """It was counted for no query: the alert on overdue verifications rang all the same."""
    for name, hours in (("orders", 1), ("newest", 4)):
        counted.catalog.add(savepoint(hours, id=f"sp-20261120-100000-{name}", query=name))
    together = event(120, "verify", query=None)
    counted.events.append(together)

    found = samples_of(metrics.text(counted))

    assert {
        labels: value
        for name, value in found.items()
        for metric, labels in [name.split("{")]
        if metric == "savepoints_last_verify_timestamp_seconds"
    } == dict.fromkeys(['query="clicks"}', 'query="orders"}'], together.at.timestamp())


def test_trap_a_savepoint_found_broken_among_all_is_counted_for_no_query(counted: Store) -> None:
    """The alert had no name of a query in it, and all the others seemed not to be verified."""
    counted.catalog.add(savepoint(1, id="sp-20261120-100000-orders", query="orders"))
    before = samples_of(metrics.text(counted))
    found = event(120, "verify", "failed", query=None, parameters={BROKEN: "clicks"})
    counted.events.append(found)
    unread = event(130, "verify", "failed", query=None, error="VerificationError")
    counted.events.append(unread)

    after = samples_of(metrics.text(counted))

    failures, last = (
        "savepoints_restore_verify_failures_total",
        "savepoints_last_verify_timestamp_seconds",
    )
    assert {
        name: value
        for name, value in after.items()
        if name.startswith((failures, last)) and before.get(name) != value
    } == {
        f'{failures}{{query="clicks"}}': before[f'{failures}{{query="clicks"}}'] + 1,
        f'{failures}{{query=""}}': 1,
        f'{last}{{query="orders"}}': found.at.timestamp(),
    }


def test_trap_alerts_went_on_asking_for_savepoints_of_a_query_that_was_ended(
    counted: Store, tmp_path: Path
) -> None:
    """Its newest savepoint never expires, so they would have for ever."""
    counted.generations.begin("clicks", 1, Location.of(str(tmp_path / "1")), by="run")
    before = samples_of(metrics.text(counted))
    counted.generations.end("clicks", why="A was better")

    found = samples_of(metrics.text(counted))

    gone = {name.partition("{")[0] for name in before.keys() - found.keys()}
    assert gone == {
        "savepoints_last_success_timestamp_seconds",
        "savepoints_periodic",
        "savepoints_last_verify_timestamp_seconds",
        "savepoints_last_drill_timestamp_seconds",
        "savepoints_late_events",
        "savepoints_last_dropped_merge_timestamp_seconds",
    }
    assert found.items() <= before.items()


def test_the_endpoint_counts_anew_at_each_scrape(counted: Store) -> None:
    port, server = metrics.serve(counted, 0)
    try:
        url = f"http://127.0.0.1:{port}/metrics"
        before = samples_of(urllib.request.urlopen(url).read().decode())
        counted.events.append(event(9, "create", seconds=1.0, bytes=100))
        after = samples_of(urllib.request.urlopen(url).read().decode())
    finally:
        server.shutdown()

    name = 'savepoints_captured_bytes_total{query="clicks"}'
    assert (before[name], after[name]) == (1500, 1600)


def test_trap_a_store_whose_disk_is_gone_has_no_figures_and_no_alert(
    counted: Store, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    port, server = metrics.serve(counted, 0)
    try:
        counted.root.delete([info.path for info in counted.root.list()])
        with pytest.raises(HTTPError, match="503") as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")
    finally:
        server.shutdown()

    missing = f"there is no store at {counted.root}"
    assert missing in refused.value.read().decode()
    assert missing in caplog.text
    assert "Traceback" not in capfd.readouterr().err
    with pytest.raises(StoreNotFoundError, match=missing):
        metrics.text(counted)


def test_an_empty_store_has_no_figures_and_no_error(local_store: Store) -> None:
    assert samples_of(metrics.text(local_store)) == {}
