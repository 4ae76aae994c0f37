"""The ledger: which merges there were, and which of them a generation has in its state."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from savepoints.errors import NotAlignedError
from savepoints.io import Location
from savepoints.model import Cut, Generation, Origin, OutputVersion, Savepoint
from savepoints.store.tables import merge_ledger
from savepoints.store.tables.merge_ledger import Ledger, Merge

# What the generations of merges descend from, as the ledger knows it of itself.
DESCENT = {2: ("orders/1",), 3: ("orders/1", "orders/2"), 5: ("orders/1", "orders/2", "orders/4")}
START = datetime(2026, 11, 22, tzinfo=UTC)


def at(minute: int) -> datetime:
    return START + timedelta(minutes=minute)


def merge(number: int, query: str = "orders", **other: object) -> Merge:
    """Return the merge that began a generation."""
    made = Merge(
        id=f"op-20261122-0000{number:02}-aaaaaa",
        query=query,
        generation=number,
        input="orders",
        batch="/late/*.json",
        content_hash=f"{number:032x}",
        rows=10,
        known=2,
        entities=3,
        first_event_time=at(-600),
        last_event_time=at(-500),
        policy="exact",
        way="short",
        controls=20,
        controls_differing=0,
        batch_id=7,
        offsets={"orders": {0: 11, 1: 12}, "clicks": {0: 5}},
        outputs=(OutputVersion("totals", "/totals", "id", 9, "orders/totals/2", 7),),
        descent=DESCENT.get(number, ()),
        pause_seconds=1.5,
        by="somebody",
        at=at(number),
    )
    return replace(made, **other)  # type: ignore[arg-type]


def life(
    number: int, begun_from: str | None, query: str = "orders", begun: int | None = None
) -> Generation:
    minute = number if begun is None else begun
    return Generation(query, number, f"/{query}/{number}", "ended", at(minute), "x", begun_from)


def saved(id_: str, generation: int, query: str = "orders") -> Savepoint:
    cut = Cut(7, START, 0, (None,), "rocksdb", 2)
    return Savepoint(id_, query, "id", generation, cut, START, ("native",), (), ())


def test_a_merge_is_read_as_it_was_added_and_only_once(on_local: Location) -> None:
    book = Ledger(on_local)
    nothing = merge(3, rows=0, first_event_time=None, last_event_time=None, way=None)
    for one in (merge(2), nothing, merge(2)):
        book.add(one)

    assert book.all() == [nothing, merge(2)]
    assert book.all("clicks") == []


# 1 -> merged 2 -> merged 3; rolled back to a savepoint of 2: 4; merged 5.
LIVES = [life(1, None), life(2, "sp-1"), life(3, "sp-2"), life(4, "sp-2b"), life(5, "sp-4")]
SAVED = [saved("sp-1", 1), saved("sp-2", 2), saved("sp-2b", 2), saved("sp-4", 4)]
MERGES = [merge(5), merge(3), merge(2)]


@pytest.mark.parametrize(
    ("generation", "expected"), [(1, []), (2, [2]), (3, [2, 3]), (4, [2]), (5, [2, 5])]
)
def test_a_merge_counts_where_its_generation_is_an_ancestor(
    generation: int, expected: list[int]
) -> None:
    """What was rolled back does not count, so the same batch can be merged again."""
    descent = merge_ledger.ancestry("orders", generation, LIVES, SAVED, MERGES)

    found = merge_ledger.in_effect(MERGES, descent)

    assert [one.generation for one in found] == expected
    assert merge_ledger.find_same_batch(found, "orders", f"{3:032x}") == (
        MERGES[1] if 3 in expected else None
    )
    assert merge_ledger.find_same_batch(found, "clicks", f"{2:032x}") is None


def test_a_fork_has_the_merges_of_the_query_it_began_from() -> None:
    lives = [*LIVES, life(1, "sp-2b", "trial", begun=9)]

    descent = merge_ledger.ancestry("trial", 1, lives, SAVED, MERGES)

    assert merge_ledger.in_effect([*MERGES, merge(1, "trial")], descent) == [
        merge(1, "trial"),
        merge(2),
    ]


def test_a_reset_to_an_empty_state_reads_what_was_merged_again() -> None:
    """It begins from no savepoint, and has the merges of the generation that it put an end to."""
    anew = replace(life(6, None), begun_by="reset")
    other = replace(life(6, None, "clicks"), begun_by="reset")
    first = life(1, None, "clicks")
    lives = [*LIVES, anew, life(7, "sp-6"), other, first]
    taken = [*SAVED, saved("sp-6", 6)]
    for number in (6, 7):
        known = merge_ledger.ancestry("orders", number, lives, taken, MERGES)
        assert known.generations >= {("orders", one) for one in (number, 6, 5, 4, 2, 1)}
        assert merge_ledger.in_effect(MERGES, known) == [merge(2), merge(5)]
    assert merge_ledger.ancestry("clicks", 6, lives, taken, MERGES).generations == {
        ("clicks", 6),
        ("clicks", 1),
    }
    fresh = replace(anew, begun_by="run")
    assert merge_ledger.ancestry("orders", 6, [*LIVES, fresh], SAVED, MERGES).generations == {
        ("orders", 6)
    }


def test_trap_an_expired_savepoint_makes_no_merge_forgotten() -> None:
    """What began from a savepoint that is gone might have any earlier merge, or might not."""
    left = [one for one in SAVED if one.id == "sp-4"]
    merges = [one for one in MERGES if one.generation != 5]
    descent = merge_ledger.ancestry("orders", 5, LIVES, left, merges)

    with pytest.raises(
        NotAlignedError, match="sp-2b, from which this generation began, was deleted"
    ) as refused:
        merge_ledger.in_effect(merges, descent)

    assert refused.value.details["merges"] == [one.id for one in merges]
    assert merge_ledger.in_effect([], descent) == [], "nothing is unsure without them"


def test_trap_many_merges_are_known_when_their_savepoints_are_gone() -> None:
    """Each merge begins from a savepoint, which retention removes after a while."""
    descent = merge_ledger.ancestry("orders", 5, LIVES, [], MERGES)

    assert [one.generation for one in merge_ledger.in_effect(MERGES, descent)] == [2, 5]


def test_trap_a_query_whose_origins_were_expired_is_not_refused_for_ever() -> None:
    """What a generation began from is written down with it."""
    taken = {one.id: one for one in SAVED}
    lives = [
        replace(one, origin=Origin.of(taken[one.begun_from]) if one.begun_from else None)
        for one in LIVES
    ]
    merges = [one for one in MERGES if one.generation != 5]

    descent = merge_ledger.ancestry("orders", 5, lives, [], merges)

    assert descent.lost is None
    assert [one.generation for one in merge_ledger.in_effect(merges, descent)] == [2]
