"""Tags, descriptions and pins: what changes, and what is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from savepoints.errors import SavepointNotFoundError, TargetExistsError, UsageError
from savepoints.handle import Store
from savepoints.operations.maintain import tag
from savepoints.store.savepoint import labels
from savepoints.store.tables.catalog import Catalog
from tests.samples import contents, savepoint

pytestmark = pytest.mark.drawn(3)

ONE, TWO, OTHER = savepoint(1, tags=("first",)), savepoint(2), savepoint(3, query="clicks")


@pytest.fixture
def filled(store: Store) -> Store:
    for one in (ONE, TWO, OTHER):
        store.catalog.add(one)
    return store


def change(store: Store, name: str, **how: Any) -> Any:
    return tag.execute(tag.plan(store, name, **how), store)


def test_everything_that_may_change_is_changed_and_nothing_else(filled: Store) -> None:
    changed = change(filled, TWO.id, add=("a", "b"), description="for people", pinned=True)

    assert changed == dataclasses.replace(
        TWO, tags=("a", "b"), description="for people", pinned=True
    )
    assert filled.catalog.find("a", query="orders") == changed
    assert labels.read(filled.root, TWO.id) == changed.labels
    assert {one.id: one for one in filled.catalog.all()}[ONE.id] == ONE


def test_what_is_not_asked_for_stays(filled: Store) -> None:
    change(filled, ONE.id, add=("second",), description="d", pinned=True)

    changed = change(filled, ONE.id, remove=("first",))
    assert (changed.tags, changed.description, changed.pinned) == (("second",), "d", True)

    changed = change(filled, ONE.id, description="", pinned=False)
    assert (changed.tags, changed.description, changed.pinned) == (("second",), "", False)


def test_a_plan_that_is_executed_again_changes_nothing_more(filled: Store) -> None:
    plan = tag.plan(filled, ONE.id, add=("x",), remove=("first",), pinned=True)

    first = tag.execute(plan, filled)

    assert tag.execute(plan, filled) == first


def test_a_tag_of_another_savepoint_of_the_query_is_refused(filled: Store) -> None:
    before = contents(filled.root)

    with pytest.raises(TargetExistsError, match=ONE.id) as refused:
        tag.plan(filled, TWO.id, add=("first",))

    assert refused.value.details == {"tag": "first", "savepoint": ONE.id}
    assert "--move" in refused.value.hint
    assert contents(filled.root) == before


def test_a_tag_that_it_has_itself_or_another_query_has_is_free(filled: Store) -> None:
    assert change(filled, ONE.id, add=("first",)).tags == ("first",)
    assert change(filled, OTHER.id, add=("first",)).tags == ("first",)


def test_a_moved_tag_names_one_savepoint(filled: Store) -> None:
    plan = tag.plan(filled, TWO.id, add=("first",), move=True)

    assert plan.taken_from == {"first": ONE.id}
    assert [step.name for step in plan.steps] == ["tagged", "moved"]
    tag.execute(plan, filled)

    assert filled.catalog.find("first", query="orders").id == TWO.id
    assert {one.id: one.tags for one in filled.catalog.all()} == {
        ONE.id: (),
        TWO.id: ("first",),
        OTHER.id: (),
    }


def test_a_tag_that_was_given_away_between_plan_and_execute_is_refused(filled: Store) -> None:
    plan = tag.plan(filled, TWO.id, add=("new",))
    change(filled, ONE.id, add=("new",))

    with pytest.raises(TargetExistsError, match=ONE.id):
        tag.execute(plan, filled)


def test_what_begins_to_be_removed_after_the_plan_is_not_tagged_and_no_tag_is_lost(
    filled: Store,
) -> None:
    plan = tag.plan(filled, TWO.id, add=("first",), move=True)
    filled.catalog.relabel([TWO.id], lambda old: dataclasses.replace(old, state="expired"))

    with pytest.raises(SavepointNotFoundError, match=TWO.id):
        tag.execute(plan, filled)

    assert filled.catalog.find("first", query="orders").id == ONE.id


def just_before_relabelling(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let somebody else act when a tag is about to be written, once."""
    relabel = Catalog.relabel

    def late(catalog: Catalog, *how: Any) -> Any:
        monkeypatch.setattr(Catalog, "relabel", relabel)
        act()
        return catalog.relabel(*how)

    monkeypatch.setattr(Catalog, "relabel", late)


def test_trap_what_begins_to_be_removed_while_it_is_tagged_is_not_said_to_be_tagged(
    filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tag.plan(filled, TWO.id, add=("first",), move=True)
    catalog = filled.catalog

    def mark() -> None:
        catalog.relabel([TWO.id], lambda old: dataclasses.replace(old, state="expired"))

    just_before_relabelling(monkeypatch, mark)

    with pytest.raises(SavepointNotFoundError, match=TWO.id):
        tag.execute(plan, filled)

    assert catalog.find("first", query="orders").id == ONE.id


def test_trap_two_who_give_one_tag_at_one_moment_do_not_both_have_it(
    filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = (tag.plan(filled, one.id, add=("new",)) for one in (ONE, TWO))
    just_before_relabelling(monkeypatch, lambda: tag.execute(other, filled))

    with pytest.raises(TargetExistsError, match=TWO.id):
        tag.execute(mine, filled)

    assert filled.catalog.find("new", query="orders").id == TWO.id
    assert filled.catalog.find(ONE.id).tags == ("first",)


def test_a_move_that_was_killed_half_way_is_moved_again(filled: Store) -> None:
    for first, second in ((ONE, TWO), (TWO, ONE)):
        both = [first.id, second.id]
        filled.catalog.relabel(both, lambda old: dataclasses.replace(old, tags=("moving",)))

        change(filled, second.id, add=("moving",), move=True)

        assert filled.catalog.find("moving", query="orders").id == second.id


def test_the_tag_of_what_is_being_removed_is_free(filled: Store) -> None:
    filled.catalog.relabel([ONE.id], lambda old: dataclasses.replace(old, state="expired"))

    assert change(filled, TWO.id, add=("first",)).tags == ("first",)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({}, "no tag or option was given"),
        ({"add": ("latest",)}, "cannot be a tag"),
        ({"add": ("latest~1",)}, "cannot be a tag"),
        ({"add": ("sp-1",)}, "cannot be a tag"),
        ({"add": ("../x",)}, "invalid tag name"),
        ({"add": ("",)}, "invalid tag name"),
        ({"remove": ("none",)}, "has no tag 'none'"),
    ],
)
def test_what_makes_no_sense_is_refused(how: Any, says: str, filled: Store) -> None:
    with pytest.raises(UsageError, match=says):
        tag.plan(filled, ONE.id, **how)


def test_an_unknown_savepoint_is_not_found(filled: Store) -> None:
    with pytest.raises(SavepointNotFoundError):
        tag.plan(filled, "none", add=("x",))


def test_a_savepoint_that_was_removed_meanwhile_is_not_found(filled: Store) -> None:
    plan = tag.plan(filled, ONE.id, add=("x",))
    filled.catalog.remove([ONE.id])

    with pytest.raises(SavepointNotFoundError):
        tag.execute(plan, filled)


def test_it_is_in_the_events(filled: Store) -> None:
    change(filled, TWO.id, add=("golden",))

    (event,) = filled.events.all()
    assert (event.verb, event.result, event.savepoint) == ("tag", "done", TWO.id)
    assert "golden" in event.parameters["add"]
