"""What points mean: batches, commit times, undo, and which savepoints belong to a query."""

from __future__ import annotations

import dataclasses
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from savepoints.errors import (
    NoCommittedBatchError,
    NotFoundError,
    SavepointNotFoundError,
    UsageError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Edit, Savepoint
from savepoints.moments import utc_now
from savepoints.operations.rollback import rollback, target
from savepoints.operations.rollback.query_context import QueryContext
from savepoints.operations.rollback.target import (
    AtBatch,
    AtTime,
    BeforeLast,
    Named,
    Point,
    ResolvedTarget,
)
from savepoints.operations.savepoint import history
from tests.samples import savepoint, take, unpack
from tests.templates import made_once

pytestmark = pytest.mark.drawn(3)

QUERY = "totals"
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture
def live(on_local: Location, local_store: Store) -> Location:
    """Give a query whose batches 1 and 2 are saved, and whose batch N was committed at 12:0N."""
    committed(local_store, on_local)
    return on_local / "live"


@made_once
def committed(store: Store, place: Location) -> None:
    checkpoint = unpack("rocksdb", place / "live")
    for batch in range(4):
        path = Path(str(checkpoint)) / "commits" / str(batch)
        if path.exists():
            moment = (NOON + timedelta(minutes=batch)).timestamp()
            os.utime(path, (moment, moment))
    for batch in (1, 2):
        take(store, checkpoint, batch_id=batch)


def find(store: Store, point: Point) -> ResolvedTarget:
    return target.resolve(QueryContext.open(store, QUERY), point)


def back(store: Store, live: Location, point: str | Point, number: int) -> str:
    to = f"{live}-{number}"
    plan = rollback.plan(store, point, query=QUERY, to=to, rewind_outputs=False)
    return rollback.execute(plan, store).checkpoint


def test_a_retained_batch_is_its_savepoint_or_is_to_be_saved(
    local_store: Store, live: Location
) -> None:
    saved, fresh = find(local_store, AtBatch(2)), find(local_store, AtBatch(3))
    assert (saved.is_saved, saved.batch_id) == (True, 2)
    assert (fresh.is_saved, fresh.batch_id) == (False, 3)
    with pytest.raises(NoCommittedBatchError):
        find(local_store, AtBatch(4))


@pytest.mark.parametrize(("seconds", "batch"), [(120, 2), (179, 2), (180, 3), (3600, 3)])
def test_by_commit_it_is_the_newest_batch_at_or_before_the_time(
    local_store: Store, live: Location, seconds: int, batch: int
) -> None:
    found = find(local_store, AtTime(NOON + timedelta(seconds=seconds), "commit"))
    assert found.batch_id == batch


def test_before_the_first_retained_batch_nothing_is_guessed(
    local_store: Store, live: Location
) -> None:
    with pytest.raises(NoCommittedBatchError, match="retains no batch"):
        find(local_store, AtTime(NOON - timedelta(hours=1), "commit"))


def test_trap_the_time_at_which_a_batch_was_committed_means_the_batch_before(
    local_store: Store, live: Location
) -> None:
    """Local disks keep nanoseconds, of which everyone is told the milliseconds."""
    nanoseconds = int(NOON.timestamp()) * 10**9 + 123_456_789
    os.utime(Path(str(live)) / "commits" / "3", ns=(nanoseconds, nanoseconds))
    told = NOON + timedelta(milliseconds=123)
    for batch in (0, 1, 2):
        earlier = NOON.timestamp() - 60 * (3 - batch)
        os.utime(Path(str(live)) / "commits" / str(batch), (earlier, earlier))

    assert find(local_store, AtTime(told, "commit")).batch_id == 3
    assert find(local_store, AtTime(told - timedelta(milliseconds=1), "commit")).batch_id == 2


def test_copies_in_a_restored_checkpoint_are_no_commits_of_its_own(
    local_store: Store, live: Location
) -> None:
    """Their files are as young as the restore, so they would lie about when they were committed."""
    back(local_store, live, local_store.catalog.find("latest~1").id, 2)
    with pytest.raises(NoCommittedBatchError, match="retains no batch"):
        find(local_store, AtTime(utc_now(), "commit"))


def test_trap_two_sources_of_a_newer_savepoint_stand_apart() -> None:
    """The search stopped there with an error, though an older savepoint leads to the time."""

    def read_to(number: int, *ends: int) -> Savepoint:
        return savepoint(number, offsets=tuple(f'{{"orders":{{"0":{end}}}}}' for end in ends))

    newest_first = [read_to(3, 30, 33), read_to(2, 20, 22), read_to(1, 10, 10)]

    assert target.newest_before(newest_first, {"orders": {0: 25}}) == newest_first[2]
    assert target.newest_before(newest_first, {"orders": {0: 10}}) == newest_first[2]
    assert target.newest_before(newest_first, {"orders": {0: 9}}) is None


def test_trap_a_query_without_a_savepoint_since_a_reset_is_told_so(
    local_store: Store, live: Location
) -> None:
    """It was said to read other things than topics."""
    begun_anew = dataclasses.replace(QueryContext.open(local_store, QUERY), history=())
    with pytest.raises(SavepointNotFoundError, match="has taken none since it began"):
        target.resolve(begun_anew, AtTime(NOON))


def test_a_time_in_the_future_is_refused(local_store: Store, live: Location) -> None:
    with pytest.raises(UsageError, match="is in the future"):
        find(local_store, AtTime(utc_now() + timedelta(hours=1), "commit"))


def test_savepoints_that_were_rolled_back_are_not_of_the_querys_history(
    local_store: Store, live: Location
) -> None:
    one, two = (
        next(s.id for s in local_store.catalog.all() if s.cut.batch_id == batch) for batch in (1, 2)
    )
    assert [s.id for s in history.history(local_store, QUERY)] == [two, one]
    second = back(local_store, live, one, 2)
    assert [s.id for s in history.history(local_store, QUERY)] == [one]
    mine = take(local_store, Location.of(second))
    assert [s.id for s in history.history(local_store, QUERY)] == [mine.id, one]


def edited(store: Store, batch: int) -> Savepoint:
    """Put an edited savepoint beside that of a batch, without rows of its own."""
    origin = next(one for one in store.catalog.all() if one.cut.batch_id == batch)
    one = dataclasses.replace(
        origin,
        id=f"{origin.id}-edited",
        created_at=utc_now(),
        parent=origin.id,
        edit=Edit("me", "a try", 0),
    )
    store.catalog.add(one)
    return one


def test_an_edited_savepoint_is_not_of_the_querys_history_until_it_is_gone_to(
    local_store: Store, live: Location
) -> None:
    known = history.history(local_store, QUERY)
    two, one = known
    tried, other = edited(local_store, 1), edited(local_store, 1)

    assert history.history(local_store, QUERY) == known
    assert find(local_store, AtBatch(1)).savepoint_id == one.id
    assert find(local_store, Named(tried.id)).savepoint_id == tried.id

    # The repair was wanted: without it, the query would go on from what was wrong.
    to = unpack("rocksdb", Location.of(f"{live}-2"))
    number = local_store.generations.next_number(QUERY)
    local_store.generations.begin(QUERY, number, to, by="rollback", begun_from=tried.id)
    assert [s.id for s in history.history(local_store, QUERY)] == [tried.id, one.id]
    assert {two.id, other.id}.isdisjoint(s.id for s in history.history(local_store, QUERY))
    mine = take(local_store, to)
    assert [s.id for s in history.history(local_store, QUERY)] == [mine.id, tried.id, one.id]


def test_undo_goes_back_once_and_says_how_to_go_forth_again(
    local_store: Store, live: Location
) -> None:
    with pytest.raises(NotFoundError, match="totals was never rolled back"):
        find(local_store, BeforeLast())
    back(local_store, live, local_store.catalog.find("latest~1").id, 2)
    undo = find(local_store, BeforeLast())
    assert undo.batch_id == 3
    back(local_store, live, BeforeLast(), 3)
    with pytest.raises(UsageError, match="has already been undone, by op-") as refused:
        find(local_store, BeforeLast())
    assert "savepoints rollback sp-" in refused.value.hint


def test_what_had_nothing_to_save_cannot_be_undone_as_something_older(
    local_store: Store, live: Location
) -> None:
    first = local_store.catalog.find("latest~1").id
    back(local_store, live, first, 2)
    current = Location.of(local_store.generations.current(QUERY).checkpoint)
    current.delete([info.path for info in current.list("commits")])
    back(local_store, live, first, 3)
    with pytest.raises(NotFoundError, match="took no safety savepoint, so"):
        find(local_store, BeforeLast())


def test_without_a_name_a_store_says_which_queries_it_has(
    live: Location, on_local: Location, local_store: Store
) -> None:
    empty = Store.at(str(on_local / "empty")).make()
    with pytest.raises(NotFoundError, match="empty has no queries yet"):
        target.query_of(empty, None)
    assert target.query_of(local_store, None) == QUERY
    take(local_store, unpack("hdfs", on_local / "other"), query="others")
    with pytest.raises(UsageError, match="has 2 queries") as refused:
        target.query_of(local_store, None)
    assert "(in the store: others, totals)" in refused.value.hint
