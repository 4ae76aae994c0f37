"""When a run merges by itself, and when it does not; no JVM."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from savepoints.config.schedule import merge_schedule
from savepoints.config.settings import MergeSettings, QuerySettings, Settings
from savepoints.errors import UsageError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.moments import utc_now
from savepoints.observe import metrics
from savepoints.operations.cascade import on_schedule
from savepoints.operations.run import pause
from savepoints.runtime.ticker import Clock, Ticker
from savepoints.store.locks import lease, pause_requests
from savepoints.store.tables.events import Event
from savepoints.store.tables.merge_ledger import DROPPED
from tests.operations.cascade.test_readers import queries  # noqa: F401  (a fixture)
from tests.pipelines import Queries

QUERY = "order_totals"


def store_of(
    place: Path,
    dropped: str,
    app: str = "spark_jobs.order_totals:app",
    **bound: dict[str, str],
) -> Store:
    query = QuerySettings(
        app=app,
        checkpoints=str(place),
        outputs={"totals": str(place / "totals")},
        **bound,  # type: ignore[arg-type]
    )
    settings = Settings(
        store=str(place / "store"), merge=MergeSettings(dropped=dropped), queries={QUERY: query}
    )
    (place / "store").mkdir()
    return Store.at(settings.store, settings=settings).make()


@pytest.fixture
def tickers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note which threads are begun."""
    found: list[str] = []
    start = Ticker.start

    def noted(self: Ticker) -> None:
        found.append(self._thread.name)
        start(self)

    monkeypatch.setattr(Ticker, "start", noted)
    return found


def run(*_: object, **__: object) -> str:
    """Stand in for a run, which ends at once."""
    return "ran"


def test_a_run_without_an_end_merges_on_the_schedule(tmp_path: Path, tickers: list[str]) -> None:
    store = store_of(tmp_path, "daily", archives={"orders": str(tmp_path / "archive")})
    both = on_schedule.merging(run)

    assert both(store, QUERY) == "ran"
    assert tickers == [f"merge of what {QUERY} dropped"]
    assert both(store, QUERY, until="latest") == "ran"
    assert both(store, QUERY, max_records=5) == "ran"
    assert len(tickers) == 1, "one with an end leaves it to cron"


@pytest.mark.parametrize("dropped", ["never", "daily"])
def test_a_query_without_an_archive_is_not_merged_and_says_so(
    dropped: str, tmp_path: Path, tickers: list[str]
) -> None:
    said: list[str] = []

    with on_schedule.beside(store_of(tmp_path, dropped), QUERY, progress=said.append):
        pass

    assert tickers == []
    assert [one for one in said if "its input orders has no archive" in one] == said
    assert bool(said) == (dropped == "daily")


@pytest.mark.parametrize("hours", [None, 2, 7])
def test_trap_a_run_that_lives_shorter_than_the_interval_merged_nothing(
    hours: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interval counted from the start of each."""
    store = store_of(tmp_path, "6h", archives={"orders": str(tmp_path / "archive")})
    if hours is not None:
        store.events.append(
            Event(
                "op-20261120-100000-1", utc_now() - timedelta(hours=hours), "merge", "ops@host",
                "done", QUERY, parameters={"batch": DROPPED},
            )
        )  # fmt: skip
    waits: list[float] = []

    class Noting(Clock):
        def wait(self, _ended: threading.Event, seconds: float) -> bool:
            waits.append(seconds)
            return True

    with on_schedule.beside(store, QUERY, clock=Noting()):
        pass

    assert waits == [pytest.approx({None: 6, 2: 4, 7: 0}[hours] * 3600, abs=120)]


def test_before_the_first_batch_there_is_nothing_to_merge(tmp_path: Path) -> None:
    store = store_of(tmp_path, "daily", archives={"orders": str(tmp_path / "archive")})

    assert on_schedule.merge_dropped(store, QUERY) is None
    assert store.events.all() == []


def test_trap_a_query_whose_tables_others_read_is_refused_with_the_way_out(
    queries: Queries,  # noqa: F811
) -> None:
    """A plan names the readers, which fail at the correction; a schedule shows it to nobody."""
    store = queries.configured_store

    assert on_schedule.merge_dropped(store, "bronze") is None

    newest = store.events.all()[0]
    assert (newest.verb, newest.result) == ("merge", "failed")
    assert newest.message.startswith(
        "the scheduled merge of the events that Spark dropped from bronze was refused"
    )
    assert "silver, gold would not receive" in newest.message


def test_a_failure_is_an_event_and_nothing_is_raised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = store_of(tmp_path, "daily", app="tests.nowhere:app")
    store.generations.begin(QUERY, 1, Location.of(str(tmp_path / "1")), by="run")

    assert on_schedule.merge_dropped(store, QUERY) is None

    (event,) = store.events.all()
    assert (event.verb, event.query, event.result) == ("merge", QUERY, "failed")
    assert event.parameters == {"batch": DROPPED}
    assert "tests.nowhere" in event.message
    assert (
        f"events that {QUERY} dropped as late were not merged; the query continues" in caplog.text
    )
    found = metrics.values([], [event])
    assert found["savepoints_last_dropped_merge_timestamp_seconds"] == {}
    assert found["savepoints_operations_total"] == {(QUERY, "merge", "failed"): 1}


@pytest.fixture
def paused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Give a query that was paused for a merge which was killed then."""
    monkeypatch.setattr(on_schedule, "_FIRST_WAIT_SECONDS", 0.01)
    store = store_of(tmp_path, "daily", archives={"orders": str(tmp_path / "archive")})
    store.generations.begin(QUERY, 1, Location.of(str(tmp_path / "1")), by="run")
    pause_requests.ask(store.root, QUERY, "paused", by="a driver", reason="merge dropped")
    return store


def test_a_run_waits_for_the_lease_of_a_dead_merge_and_lets_the_query_go_on(paused: Store) -> None:
    said: list[str] = []
    dead = ExitStack()
    dead.enter_context(lease.hold_merging(paused.root, QUERY))

    def tell(line: str) -> None:
        said.append(line)
        dead.close()

    with on_schedule.beside(paused, QUERY, progress=tell):
        assert pause.state(paused, QUERY).wanted == "running"

    assert said[0].startswith(f"waiting to merge events that {QUERY} dropped as late: ")


def test_trap_what_keeps_the_query_from_running_is_retried_before_the_next_day(
    paused: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that answers badly for a while must not leave the query paused until midnight."""
    (request,) = [one.path for one in paused.root.list("requests")]
    good = paused.root.get(request)
    paused.root.put(request, b"{")
    attempts = 0

    class Ended(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            nonlocal attempts
            attempts += 1
            if attempts == 3:
                paused.root.put(request, good)
            return super().wait(timeout)

    on_schedule._finish_beside_run(paused, QUERY, (None,), Ended(), lambda _: None)

    assert attempts == 3
    assert pause.state(paused, QUERY).wanted == "running"
    assert "cannot continue; trying again" in caplog.text


def test_a_pause_by_somebody_stays_and_a_merge_under_way_is_not_waited_for(paused: Store) -> None:
    pause_requests.ask(paused.root, QUERY, "running", by="a driver", reason="")
    pause_requests.ask(paused.root, QUERY, "paused", by="somebody", reason="upgrade")

    with lease.hold_merging(paused.root, QUERY), on_schedule.beside(paused, QUERY):
        assert pause.state(paused, QUERY).wanted == "paused"


def test_daily_is_midnight_in_utc() -> None:
    daily = merge_schedule("daily")
    assert daily is not None
    evening = datetime(2026, 11, 20, 23, 59, tzinfo=UTC)

    assert daily.next_after(evening) == datetime(2026, 11, 21, tzinfo=UTC)
    assert merge_schedule("never") is None
    with pytest.raises(UsageError, match="sometimes") as refused:
        merge_schedule("sometimes")
    assert "never, daily, 6h" in refused.value.hint
