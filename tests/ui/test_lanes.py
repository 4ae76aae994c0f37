"""Lanes of generations and forks: what counts, what was rolled back, when nothing ran."""

from __future__ import annotations

import dataclasses

from savepoints.model import Origin
from savepoints.ui.facts import SourceFacts, StoreFacts
from savepoints.ui.families import families, family_of
from savepoints.ui.lanes import downtimes, lanes
from tests.ui import stories
from tests.ui.stories import NOW, generation, hour, saved, standing


def rolled_back() -> StoreFacts:
    """Make a query that was rolled back at 10 to its savepoint of 4, and runs again from 11 on."""
    before = [saved(at) for at in (8, 6, 4, 2)]
    after = [saved(at, of=2) for at in (14, 12)]
    return StoreFacts(
        "/s", hour(15), (*after, *before),
        (generation("orders", 2, 10, "rollback", begun_from=before[2].id),
         generation("orders", 1, 0, ended=10)),
    )  # fmt: skip


def test_the_newest_generation_is_on_top_and_forks_are_below() -> None:
    facts = stories.story()
    family = family_of("orders", facts.savepoints, facts.generations)

    drawn = lanes(facts.of(family), family)

    assert [(one.query, one.generation, one.row) for one in drawn] == [
        ("orders", 3, 0), ("orders", 2, 1), ("orders", 1, 2), ("orders_b", 1, 3),
    ]  # fmt: skip


def test_what_follows_the_savepoint_that_was_gone_back_to_no_longer_counts() -> None:
    new, old = lanes(rolled_back(), ["orders"])

    assert new.counts_until is None
    assert old.counts_until == hour(4)
    assert [old.counts(hour(at)) for at in (3, 4, 4.1)] == [True, True, False]
    assert new.origin == (1, hour(4))


def test_trap_a_generation_that_was_left_altogether_does_not_count_at_all() -> None:
    """Two rollbacks to the same savepoint: the second generation is on no line any more."""
    facts = rolled_back()
    origin = facts.generations[0].begun_from
    twice = dataclasses.replace(
        facts,
        generations=(
            generation("orders", 3, 14.5, "rollback", begun_from=origin),
            dataclasses.replace(facts.generations[0], status="ended", ended_at=hour(14.5)),
            facts.generations[1],
        ),
    )

    third, second, first = lanes(twice, ["orders"])

    assert (third.counts_until, second.counts_until) == (None, second.begun_at)
    assert first.counts_until == hour(4)


def test_trap_a_page_of_what_began_from_an_expired_savepoint_is_an_error() -> None:
    """`expire` keeps only what present generations began from; that of those before may go."""
    facts = rolled_back()
    origin = facts.savepoints[4]
    facts = dataclasses.replace(
        facts,
        savepoints=tuple(one for one in facts.savepoints if one != origin),
        generations=(
            generation("orders", 3, 14.5, "rollback", begun_from=facts.savepoints[1].id),
            generation("orders", 2, 10, "rollback", begun_from=origin.id, ended=14.5,
                       origin=Origin.of(origin)),
            facts.generations[1],
        ),
    )  # fmt: skip

    third, second, first = lanes(facts, ["orders"])

    assert (third.counts_until, second.counts_until) == (None, hour(12))
    assert first.counts_until == hour(2), "the last batch that is known to count"
    none_left = dataclasses.replace(
        facts, savepoints=tuple(one for one in facts.savepoints if one.generation > 1)
    )
    assert lanes(none_left, ["orders"])[2].counts_until == first.begun_at


def test_downtime_is_from_the_last_known_batch_to_the_first_of_the_next_generation() -> None:
    facts = rolled_back()

    (gap,) = downtimes(facts, lanes(facts, ["orders"]))

    assert (gap.begin, gap.end, gap.over) == (hour(8), hour(12), True)


def test_trap_the_first_savepoint_of_a_promotion_is_of_a_batch_of_the_fork() -> None:
    """It was committed before the live query's last batch, and the generation began after that."""
    theirs, last = saved(3, query="fork"), saved(6)
    taken, after = saved(3.5, of=2), saved(9, of=2)
    made = (
        generation("orders", 2, 7, "promote", begun_from=theirs.id),
        generation("orders", 1, 0, ended=7),
    )
    facts = StoreFacts("/s", hour(10), (after, last, taken, theirs), made)

    drawn = lanes(facts, ["orders"])
    (gap,) = downtimes(facts, drawn)

    assert (drawn[0].begun_at, drawn[0].moment_of(taken)) == (hour(7), hour(7))
    assert drawn[0].moment_of(after) == after.cut.committed_at
    assert (gap.begin, gap.end) == (last.cut.committed_at, after.cut.committed_at)


def test_the_checkpoint_may_know_an_earlier_batch_and_none_means_until_now() -> None:
    facts = rolled_back()
    earlier = {"orders": SourceFacts(standing("orders", 2, 50, 11, 0))}
    known = dataclasses.replace(facts, sources=earlier)
    (gap,) = downtimes(known, lanes(known, ["orders"]))
    assert (gap.end, gap.over) == (hour(11), True)

    silent = dataclasses.replace(facts, savepoints=facts.savepoints[2:])
    (gap,) = downtimes(silent, lanes(silent, ["orders"]))
    assert (gap.end, gap.over) == (hour(15), False)

    for lag, gaps in ((7, 1), (0, 0)):
        place = {"orders": SourceFacts(standing("orders", 2, 40, 7, lag))}
        read = dataclasses.replace(silent, sources=place)
        found = list(downtimes(read, lanes(read, ["orders"])))
        assert len(found) == gaps, "a query that has read all is not down"


def test_a_fork_and_the_first_run_are_no_downtime() -> None:
    facts = stories.story()
    family = ("orders", "orders_b")
    drawn = lanes(facts.of(family), family)

    assert {drawn[one.row].generation for one in downtimes(facts, drawn)} == {2, 3}


def test_savepoints_whose_generation_nobody_knows_have_a_lane() -> None:
    facts = StoreFacts("/s", NOW, (saved(3, of=4), saved(1, of=4)))

    (lane,) = lanes(facts, ["orders"])

    assert (lane.generation, lane.begun_at, lane.ended_at) == (4, hour(1), hour(3))
    assert lane.counts_until is None


def test_lanes_that_ended_before_since_are_not_drawn() -> None:
    facts = dataclasses.replace(rolled_back(), since=hour(11))

    assert [one.generation for one in lanes(facts, ["orders"])] == [2]
    assert lanes(facts, ["orders"])[0].origin is None


def test_families_are_what_hangs_together_and_the_origin_comes_first() -> None:
    facts = stories.story()

    assert families(facts.savepoints, facts.generations) == (("clicks",), ("orders", "orders_b"))
    assert family_of("orders_b", facts.savepoints, facts.generations) == ("orders", "orders_b")
    assert family_of("nobody", facts.savepoints, facts.generations) == ("nobody",)


def test_trap_a_promoted_fork_makes_no_circle() -> None:
    """The fork began from the origin, whose next generation began from the fork."""
    mine, theirs = saved(1), saved(3, query="fork")
    made = (
        generation("fork", 1, 2, "fork", begun_from=mine.id),
        generation("orders", 2, 4, "promote", begun_from=theirs.id),
        generation("orders", 1, 0, ended=4),
    )
    facts = StoreFacts("/s", hour(5), (theirs, mine), made)

    assert families(facts.savepoints, made) == (("orders", "fork"),)
    promoted, _, fork = lanes(facts, ["orders", "fork"])
    assert (promoted.origin, fork.origin) == ((2, hour(3)), (1, hour(1)))
