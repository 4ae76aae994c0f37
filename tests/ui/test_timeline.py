"""The drawing: where things lie, which sign they have, and that nothing lies over another."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from itertools import pairwise

import hypothesis
from hypothesis import strategies as st

from savepoints.ui.axis import Axis
from savepoints.ui.facts import StoreFacts
from savepoints.ui.history import history
from savepoints.ui.timeline import WIDTH, Timeline, shortened, timeline
from tests.ui import stories
from tests.ui.stories import NOW, generation, hour, saved

FAMILY = ("orders", "orders_b")


def drawn(facts: StoreFacts, *family: str) -> Timeline:
    found = timeline(facts, family or FAMILY)
    assert found is not None
    return found


def test_savepoints_have_the_sign_of_their_forms_and_states() -> None:
    found = drawn(stories.story())
    kinds = {one.anchor: one.kind for one in found.marks if one.anchor}

    assert kinds["sp-20261120-180000-ord001"] == "both"
    assert kinds["sp-20261120-120000-ord001"] == "native"
    assert kinds["sp-20261121-180000-ord002"] == "broken"
    assert kinds["sp-20261122-021500-edited"] == "edit"
    others = [one.kind for one in found.marks if not one.anchor]
    assert sorted(others) == ["begin", "begin", "merge"], "a merge begins its generation"


def test_what_was_rolled_back_is_faded_and_dashed() -> None:
    found = drawn(stories.story())
    faded = {one.anchor for one in found.marks if one.faded}

    assert faded == {
        f"sp-{hour(at):%Y%m%d-%H%M%S}-ord001" for at in (18, 20, 22, 24, 24.5)
    }  # the rollback went to the savepoint of hour 16
    assert [one.kind for one in found.lines] == ["alive", "alive", "gone", "alive", "gone", "fork"]


def test_marks_lie_on_the_lanes_of_their_generations_in_the_order_of_time() -> None:
    found = drawn(stories.story())
    rows = {label.title.rpartition(",")[0]: label.y for label in found.labels}
    third = [one for one in found.marks if one.anchor.endswith("ord003")]

    assert {one.y for one in third} == {rows["orders, generation 3"]}
    assert all(a.x < b.x for a, b in pairwise(third))
    assert all(0 <= one.x <= WIDTH and 0 <= one.y <= found.height for one in found.marks)


def test_the_band_ends_at_the_last_savepoint_that_kafka_cannot_follow() -> None:
    found = drawn(stories.story())
    (last,) = (one for one in found.marks if one.anchor == "sp-20261120-180000-ord001")

    assert found.lost is not None
    assert found.lost.x + found.lost.width == last.x + 8
    assert "2026-11-20 18:00:00Z" in found.lost.title
    assert drawn(dataclasses.replace(stories.story(), sources={})).lost is None


def test_a_long_query_name_is_shortened_in_the_middle() -> None:
    facts = StoreFacts(
        "/s", NOW, (saved(1, query=stories.UUID),),
        (generation(stories.UUID, 1, 0), generation("fork", 1, 2, "fork", begun_from="x")),
    )  # fmt: skip
    label = drawn(facts, stories.UUID, "fork").labels[0]

    assert label.name == "7f1d3a52-93…2f7b0f6e11"[:11] + "…" + stories.UUID[-11:]
    assert stories.UUID in label.title
    assert shortened("short", 23) == "short"


def test_trap_chips_never_lie_over_each_other() -> None:
    """A thousand savepoints, a hundred of them tagged: what has no room becomes a dot."""
    found = drawn(stories.large(), "orders")
    texts = sorted((one for one in found.chips if one.text), key=lambda one: (one.y, one.x))

    assert len(found.chips) > 140
    assert texts
    assert all(a.y != b.y or a.x + a.width <= b.x for a, b in pairwise(texts))
    assert all(one.x + one.width <= WIDTH for one in found.chips)


def test_a_thousand_savepoints_of_twenty_generations_are_all_drawn() -> None:
    found = drawn(stories.large(), "orders")

    assert sum(bool(one.anchor) for one in found.marks) == 1000
    assert len(found.labels) == 20
    assert len(found.branches) == 19


def test_one_savepoint_and_none() -> None:
    one = StoreFacts("/s", hour(1), (saved(1),))
    found = drawn(one, "orders")

    assert len(found.marks) == 1
    assert timeline(StoreFacts("/s", NOW), ["orders"]) is None


def test_with_since_the_time_axis_begins_there() -> None:
    facts = dataclasses.replace(stories.story(), since=hour(40))
    found = drawn(facts)

    # Of the lanes only that of the first generation, which had ended, is gone.
    assert [one.note for one in found.labels] == [
        "generation 3, current", "generation 2, by rollback", "generation 1, current",
    ]  # fmt: skip
    assert {one.anchor for one in found.marks if one.anchor} == {
        one.id for one in facts.savepoints if one.created_at >= hour(40) and one.query != "clicks"
    }
    assert min(one.x1 for one in found.lines) == 178.0


@hypothesis.given(
    seconds=st.integers(0, 60 * 60 * 24 * 365 * 30),
    most=st.integers(2, 12),
    start=st.integers(0, 10**9),
)
def test_ticks_are_few_round_and_on_the_axis(seconds: int, most: int, start: int) -> None:
    first = hour(0) + timedelta(seconds=start)
    axis = Axis.between(first, first + timedelta(seconds=seconds), 10, 100)

    ticks = axis.ticks(most)

    assert len(ticks) <= most + 1
    assert all(10 <= one.x <= 100 for one in ticks)
    assert all(a.x < b.x for a, b in pairwise(ticks))


def test_the_list_has_the_same_as_the_drawing_the_newest_first() -> None:
    facts = stories.story()
    entries = history(facts, FAMILY)
    told = sum(
        int(one.text.split()[0]) if one.until else 1 for one in entries if one.until or one.anchor
    )

    assert told == sum(bool(one.anchor) for one in drawn(facts).marks)
    assert all(a.at >= b.at for a, b in pairwise(entries))
    assert [one.text for one in entries if one.kind == "begin"] == [
        "generation 1 of orders_b begun by fork from sp-20261121-220000-ord002",
        "generation 2 of orders begun by rollback from sp-20261121-020000-ord001",
        "generation 1 of orders begun by run",
    ]


def test_trap_a_tagged_or_broken_savepoint_is_never_folded_away() -> None:
    entries = history(stories.story(), FAMILY)

    assert [one.tags for one in entries if one.tags] == [("before-release", "v1.4", "pinned")]
    assert [one.kind for one in entries].count("broken") == 1
    large = stories.large()
    tagged = [one.tags for one in history(large, ["orders"]) if one.tags]
    assert len(tagged) == sum(bool(one.tags) for one in large.savepoints)
    assert all(one.plain for one in entries if one.until)


def test_lanes_are_indented_no_deeper_than_a_phone_allows() -> None:
    entries = history(stories.large(), ["orders"])

    assert {one.depth for one in entries} == {0, 1, 2, 3, 4}
    assert len(entries) < 700, "of a thousand, although every seventh has a tag"


def test_trap_a_savepoint_of_an_undone_promotion_is_faded_wherever_it_stands() -> None:
    """Its batch was committed by the fork, before anything that was undone."""
    theirs, safety, taken = saved(3, query="fork"), saved(6), saved(3.5, of=2)
    made = (
        generation("orders", 3, 8, "rollback", begun_from=safety.id),
        generation("orders", 2, 7, "promote", begun_from=theirs.id, ended=8),
        generation("orders", 1, 0, ended=7),
    )
    facts = StoreFacts("/s", hour(9), (safety, taken, theirs), made)

    drawn = timeline(facts, ["orders"])
    listed = {one.anchor: one.faded for one in history(facts, ["orders"]) if one.anchor}

    assert drawn is not None
    assert {one.anchor: one.faded for one in drawn.marks if one.anchor} == listed
    assert listed == {safety.id: False, taken.id: True}
