"""Groups that a driver takes by the clock, against what the catalog then has."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from savepoints.errors import LockedError, UsageError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import GROUP_TAG
from savepoints.operations.pipeline import group_savepoint, groups, periodic_groups
from savepoints.store import root
from savepoints.store.locks import lease
from tests.operations.pipeline.test_group_savepoint import chain, write
from tests.pipelines import Queries, next_version
from tests.spark_session import wait_until

pytestmark = pytest.mark.drawn(3)

NAMES = ("bronze", "gold", "silver")


@pytest.fixture
def queries(local_store: Store, on_local: Location) -> Queries:
    return Queries(local_store, on_local)


def id_of(queries: Queries, query: str) -> str:
    return str(json.loads(queries.checkpoint(query).get("metadata"))["id"])


def saved(queries: Queries) -> dict[str, list[str]]:
    """Return the queries with a savepoint of a group, by tag."""
    found: dict[str, list[str]] = {}
    for one in queries.store.catalog.all():
        for tag in one.tags:
            found.setdefault(tag, []).append(one.query)
    return {tag: sorted(names) for tag, names in found.items()}


def test_a_group_is_called_by_its_time_and_recorded(queries: Queries) -> None:
    chain(queries)

    made = periodic_groups.take(queries.configured_store, "gold")

    assert made is not None
    assert made.problems == ()
    assert made.tag.startswith(GROUP_TAG)
    assert saved(queries) == {made.tag: [*NAMES]}
    assert {one.forms for one in made.savepoints} == {("native",)}
    (event,) = (one for one in queries.store.events.all() if one.verb == "pipeline create")
    assert (event.query, event.result, event.parameters["tag"]) == ("gold", "done", made.tag)


def test_trap_a_driver_that_lives_shorter_than_the_interval_took_no_group(
    queries: Queries,
) -> None:
    """The interval counted from the start of each."""
    chain(queries)
    store = queries.configured_store
    first = periodic_groups.take(store, "gold")
    assert first is not None
    hours = timedelta(hours=2)
    store.catalog.put([replace(one, created_at=one.created_at - hours) for one in first.savepoints])
    told = threading.Event()

    def progress(line: str) -> None:
        if line.startswith("took the group"):
            told.set()

    with periodic_groups.periodic_groups(store, "gold", every="1h", progress=progress):
        assert told.wait(60)
    with periodic_groups.periodic_groups(store, "gold", every="1h", progress=progress):
        pass

    assert len(saved(queries)) == 2


def test_what_fails_is_recorded_and_stops_nobody(
    queries: Queries, caplog: pytest.LogCaptureFixture
) -> None:
    there, back = (write(queries, name, 0) for name in ("there", "back"))
    queries.add("there", [next_version(back, 1)], writes=("there",))
    queries.add("back", [next_version(there, 1)], writes=("back",))

    assert periodic_groups.take(queries.configured_store, "there") is None

    assert "in a cycle" in caplog.text
    (event,) = (one for one in queries.store.events.all() if one.verb == "pipeline create")
    assert (event.result, event.error) == ("failed", "NotAlignedError")


def test_trap_the_periodic_savepoint_of_the_same_minute_is_waited_for(queries: Queries) -> None:
    """Both schedules have the full hour; a group must not fail for that."""
    chain(queries)
    query_id = id_of(queries, "gold")
    waiting, told = threading.Event(), []

    def progress(line: str) -> None:
        told.append(line)
        if line.startswith("waiting"):
            waiting.set()

    def hold() -> None:
        with lease.hold_files(queries.store.root, query_id, "gold", "create"):
            held.set()
            assert waiting.wait(60)

    held = threading.Event()
    other = threading.Thread(target=hold)
    other.start()
    assert held.wait(60)
    made = periodic_groups.take(queries.configured_store, "gold", progress=progress)
    other.join()

    assert made is not None
    assert saved(queries) == {made.tag: [*NAMES]}
    assert sum("waiting" in line for line in told) == 1


def test_a_savepoint_that_takes_too_long_elsewhere_is_not_waited_for(queries: Queries) -> None:
    chain(queries)
    store = queries.configured_store
    plan = group_savepoint.plan(store, "gold", name="group")
    query_id = id_of(queries, "silver")

    other = lease.hold_files(queries.store.root, query_id, "silver", "create")
    with other, pytest.raises(LockedError):
        group_savepoint.execute(plan, store, wait=timedelta(0))

    assert group_savepoint.execute(plan, store).problems == ()


def test_a_driver_takes_them_as_long_as_it_wants(queries: Queries) -> None:
    chain(queries)
    store = queries.configured_store

    with store.query("gold").periodic_groups(every="1s"):
        wait_until(
            lambda: len(groups.groups(queries.configured_store, "gold")) > 1,
            "there are two groups",
            60,
        )

    assert set(map(tuple, saved(queries).values())) == {NAMES}


def test_a_schedule_that_is_none_is_refused_at_once(queries: Queries) -> None:
    with pytest.raises(UsageError):
        queries.configured_store.query("gold").periodic_groups(every="often")


def test_a_run_takes_them_if_its_query_has_a_schedule_for_them(queries: Queries) -> None:
    chain(queries)
    store = queries.configured_store
    bound = store.settings.queries["gold"].model_copy(update={"groups": "1s"})
    settings = store.settings.model_copy(
        update={"queries": {**store.settings.queries, "gold": bound}}
    )

    def run(store: root.Store, query: str, until: str) -> str:
        if query == "gold":
            wait_until(lambda: NAMES in map(tuple, saved(queries).values()), "there is a group", 60)
        return f"{query} until {until}"

    wrapped = periodic_groups.grouping(run)
    assert wrapped(store.with_settings(settings), "gold", until="latest") == "gold until latest"
    before = saved(queries)
    assert wrapped(store.with_settings(settings), "silver", until="x") == "silver until x"
    assert saved(queries) == before
