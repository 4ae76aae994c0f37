"""Groups of savepoints are listed, copied and expired as one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from savepoints.errors import AmbiguousNameError, NotAlignedError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.inspect.verify import verify
from savepoints.operations.maintain import expire, tag
from savepoints.operations.pipeline import group_savepoint, groups
from savepoints.store.retention_policy import RetentionPolicy
from tests.operations.pipeline.test_group_savepoint import chain, taken
from tests.pipelines import Queries
from tests.samples import take

pytestmark = pytest.mark.drawn(2)

NAMES = ["gold", "silver", "bronze"]


@pytest.fixture
def queries(local_store: Store, on_local: Location) -> Queries:
    found = Queries(local_store, on_local)
    chain(found)
    return found


def test_a_group_without_a_name_is_called_by_its_time() -> None:
    moment = datetime(2026, 11, 25, 10, 15, tzinfo=UTC)
    assert groups.tag_of(moment) == "group-20261125T101500Z"


def test_they_are_listed_the_newest_first_with_what_is_missing(queries: Queries) -> None:
    taken(queries, "first")
    taken(queries, "group-2")
    store = queries.configured_store
    gold = next(one for one in store.catalog.all() if one.query == "gold" and "first" in one.tags)
    untag(store, gold.id)

    newest, first = groups.groups(store, "bronze")

    assert (newest.tag, [one.query for one in newest.savepoints]) == ("group-2", NAMES)
    assert newest.problems == ()
    assert (first.tag, first.missing) == ("first", ("gold",))


def untag(store: Store, savepoint_id: str) -> None:
    """Take a savepoint's tags away."""
    store.catalog.relabel([savepoint_id], lambda labels: replace(labels, tags=()))


def test_trap_of_two_savepoints_with_one_tag_the_older_one_was_the_group_s(
    queries: Queries, on_local: Location
) -> None:
    """As a killed `tag --move` leaves them; the older one is the one that it takes the tag from."""
    taken(queries, "group")
    second = take(queries.store, queries.checkpoint("gold"), query="gold")
    store = queries.configured_store
    store.catalog.relabel([second.id], lambda labels: replace(labels, tags=("group",)))
    calls: list[Callable[[], object]] = [
        lambda: group_savepoint.read(store, "bronze", "group"),
        lambda: group_savepoint.plan(store, "bronze", name="group"),
        lambda: groups.plan_copy(store, "bronze", str(on_local / "to"), name="group"),
    ]

    for call in calls:
        with pytest.raises(AmbiguousNameError, match=second.id) as refused:
            call()
        assert "savepoints tag ID group --move" in refused.value.hint

    taken(queries, "other")
    other, half = groups.groups(store, "bronze")
    assert (other.tag, other.problems) == ("other", ()), "its tag is not concerned"
    assert (half.tag, half.ambiguous, half.missing) == ("group", ("gold",), ())
    (said,) = half.problems
    assert second.id in said
    assert said.endswith("finish it with savepoints tag ID group --move")

    tag.execute(tag.plan(store, second.id, add=["group"], move=True), store)
    assert second.id in [one.id for one in group_savepoint.read(store, "gold", "group").savepoints]


def test_trap_a_tag_of_one_query_that_is_half_moved_was_a_group(queries: Queries) -> None:
    """In which all the other queries were said to be missing."""
    taken(queries, "whole")
    gold = next(one for one in queries.store.catalog.all() if one.query == "gold")
    second = take(queries.store, queries.checkpoint("gold"), query="gold")
    store = queries.configured_store
    for one in (gold, second):
        store.catalog.relabel([one.id], lambda old: replace(old, tags=(*old.tags, "release")))

    assert [one.tag for one in groups.groups(store, "bronze")] == ["whole"]


def test_it_is_copied_as_one_and_half_of_it_never(queries: Queries, on_local: Location) -> None:
    taken(queries, "whole")
    store, elsewhere = queries.configured_store, on_local / "elsewhere"

    plan = groups.plan_copy(store, "silver", str(elsewhere), name="whole")
    done = groups.execute_copy(plan, store)

    assert len(done) == 3
    there = Store.at(str(elsewhere)).catalog.all()
    assert {(one.query, one.tags) for one in there} == {(name, ("whole",)) for name in NAMES}
    assert groups.plan_copy(store, "silver", str(elsewhere), name="whole").steps == ()
    half = next(one for one in store.catalog.all() if one.query == "bronze")
    untag(store, half.id)
    with pytest.raises(NotAlignedError, match="bronze has no savepoint with the tag whole"):
        groups.plan_copy(store, "silver", str(elsewhere), name="whole")


def test_trap_a_group_with_a_broken_savepoint_was_said_to_fit_together(
    queries: Queries, on_local: Location
) -> None:
    """And a rollback to it was then refused, or the copy of its last savepoint."""
    taken(queries, "whole")
    store = queries.configured_store
    lost = next(one for one in store.catalog.all() if one.query == "gold")
    store.root.delete([store.manifest(lost.id).native[0].stored_at])
    assert verify(store, lost.id, depth="structure").state == "broken"
    said = f"the savepoint {lost.id} of gold is broken: "

    (found,) = groups.groups(store, "silver")
    assert [one.startswith(said) for one in found.problems] == [True]
    assert group_savepoint.read(store, "silver", "whole").problems == found.problems
    with pytest.raises(NotAlignedError, match=f"cannot be copied: {said}"):
        groups.plan_copy(store, "silver", str(on_local / "elsewhere"), name="whole")
    with pytest.raises(NotAlignedError, match=f"cannot be completed: {said}") as refused:
        taken(queries, "whole")
    assert refused.value.hint.endswith("savepoints pipeline create silver --tag OTHER")


def test_trap_expire_never_removes_half_a_group(queries: Queries) -> None:
    """Not even where one query alone is asked about."""
    for number in range(3):
        taken(queries, f"group-{number}")
    store, one = queries.configured_store, RetentionPolicy(keep_last=1)
    assert expire.plan(store, one, query="silver").removed == ()

    done = expire.execute(expire.plan(store, one), store)

    assert len(done.removed) == 6
    assert {each.tags for each in store.catalog.all()} == {("group-2",)}
    assert group_savepoint.read(store, "gold", "group-2").problems == ()


def test_a_savepoint_of_its_own_beside_groups_goes_as_ever(queries: Queries) -> None:
    alone = take(queries.store, queries.checkpoint("gold"), query="gold")
    taken(queries, "group-1")
    store = queries.configured_store
    done = expire.execute(expire.plan(store, RetentionPolicy(keep_last=1)), store)
    assert done.removed == (alone.id,)
