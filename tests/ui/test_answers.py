"""What somebody on call asks first."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from savepoints.store.locks import journal
from savepoints.store.tables.events import BROKEN
from savepoints.ui.answers import QueryAnswers, answers, usual_interval
from savepoints.ui.facts import SourceFacts, StoreFacts
from tests.ui import stories
from tests.ui.stories import HOUR, NOW, availability, event, generation, hour, operation, saved


def store(*ages: float, **more: object) -> StoreFacts:
    """Make a store of one query, with savepoints so many hours old."""
    every = sorted((saved(72 - age) for age in ages), key=lambda one: one.taken_order, reverse=True)
    return StoreFacts("/s", NOW, tuple(every), (generation("orders", 1, 0),), **more)  # type: ignore[arg-type]


def only(facts: StoreFacts) -> QueryAnswers:
    (found,) = answers(facts)
    return found


def answer(facts: StoreFacts, question: str) -> tuple[str, str, str]:
    (one,) = (one for one in only(facts).answers if one.question == question)
    return one.value, one.note, one.level


@pytest.mark.parametrize(("newest", "level"), [(1.9, "good"), (2.1, "bad")])
def test_the_last_savepoint_is_red_from_twice_the_usual_interval_on(
    newest: float, level: str
) -> None:
    found = store(*(newest + one for one in range(5)))

    value, note, got = answer(found, "Last savepoint")

    # A savepoint is taken a minute after its cut.
    assert value == ("1 h 53 min ago" if level == "good" else "2 h 5 min ago")
    assert "usually every 1 h" in note
    assert got == level
    assert bool(only(found).problems) is (level == "bad")


def test_one_long_gap_does_not_change_what_is_usual() -> None:
    taken = [saved(at) for at in (0, 1, 2, 3, 50, 51, 52)]

    assert usual_interval(taken) == HOUR


def test_savepoints_that_verbs_have_taken_say_nothing_about_what_is_usual() -> None:
    """A promotion and its undo take several within minutes, and the next is due when it is due."""
    verbs = [saved(10 + at / 60, kind=kind) for at, kind in enumerate(("safety", "fork", "final"))]

    assert usual_interval(verbs) is None
    assert usual_interval([*verbs, *(saved(at) for at in (9, 8, 7))]) == HOUR


def test_two_savepoints_say_nothing_about_what_is_usual() -> None:
    found = store(40, 71)

    assert answer(found, "Last savepoint")[2] == "plain"
    assert only(found).problems == ()


def test_trap_a_savepoint_that_was_rolled_back_is_not_the_last_one() -> None:
    good = saved(10)
    facts = StoreFacts(
        "/s", NOW, (saved(71, of=1), good),
        (generation("orders", 2, 71.5, "rollback", begun_from=good.id),
         generation("orders", 1, 0, ended=71.5)),
    )  # fmt: skip

    assert answer(facts, "Last savepoint")[0] == "2 d 13 h ago"


def test_trap_a_quiet_query_is_overdue_although_its_newest_batch_is_saved() -> None:
    """Nothing has arrived since: another savepoint would hold the same batch."""
    facts = store(20, 21, 22)
    newest = facts.savepoints[0].cut.batch_id
    assert only(facts).problems

    def standing(batch: int) -> StoreFacts:
        place = stories.standing("orders", 1, batch, 52, 0)
        return dataclasses.replace(facts, sources={"orders": SourceFacts(place)})

    assert only(standing(newest)).problems == ()
    assert only(standing(newest + 1)).problems


def test_a_query_that_has_ended_is_not_overdue() -> None:
    facts = store(20, 21, 22)
    ended = dataclasses.replace(facts, generations=(generation("orders", 1, 0, ended=52),))

    assert only(ended).problems == ()
    assert only(ended).status == "ended"


def test_without_any_whole_savepoint_it_says_which_to_take() -> None:
    broken = dataclasses.replace(store(1), savepoints=(saved(71, state="broken"),))

    texts = [one.text for one in only(broken).problems]
    assert texts[0] == "There is no complete savepoint."
    assert texts[1].startswith("Savepoint sp-20261123-090000-ord001 is broken")


@pytest.mark.parametrize(("hours", "level"), [(23, "bad"), (25, "good")])
def test_restorable_until_is_red_under_a_day(hours: float, level: str) -> None:
    asked = availability(saved(71), NOW + hours * HOUR)
    facts = store(1, sources={"orders": SourceFacts(newest=asked)})

    value, _, got = answer(facts, "Restorable until")

    assert (value, got) == ("23 h left" if hours == 23 else "1 d 1 h left", level)


def test_what_kafka_no_longer_has_is_said_with_the_offsets() -> None:
    asked = availability(saved(71), None, "no")
    facts = store(1, sources={"orders": SourceFacts(newest=asked)})

    assert answer(facts, "Restorable until") == ("not restorable", asked.reason, "bad")
    assert [one.command for one in only(facts).problems] == ["savepoints create orders"]


def test_trap_a_query_that_has_ended_is_to_be_saved_again_because_kafka_forgets() -> None:
    facts = store(1, sources={"orders": SourceFacts(newest=availability(saved(71), None, "no"))})
    ended = dataclasses.replace(facts, generations=(generation("orders", 1, 0, ended=71.5),))

    assert only(ended).problems == ()
    assert answer(ended, "Restorable until")[::2] == ("not restorable", "plain")


def test_trap_a_fork_that_ended_unsaved_after_a_failed_run_is_red_for_ever() -> None:
    """Its command is refused, because it has ended: nothing could clear the line."""
    failed = event("run", 71, "failed", query="orders", message="no such field")
    facts = store(events=(failed,))
    ended = dataclasses.replace(facts, generations=(generation("orders", 1, 0, ended=71.5),))

    assert only(ended).problems == ()
    assert answer(ended, "Last savepoint")[::2] == ("none", "plain")


def test_what_nobody_asked_is_not_checked_and_no_problem() -> None:
    assert answer(store(1), "Restorable until")[::2] == ("not checked", "unknown")
    assert answer(store(1), "Lag")[::2] == ("unknown", "unknown")


def test_the_lag_is_that_of_all_partitions() -> None:
    standing = stories.standing("orders", 1, 700, 71.9, 12_408)
    facts = store(1, sources={"orders": SourceFacts(standing)})

    assert answer(facts, "Lag") == ("12,408 records", "batch 700 committed 6 min ago", "plain")


@pytest.mark.parametrize(
    ("found", "clicks"),
    [({"parameters": {BROKEN: "orders"}}, "good"), ({"error": "VerificationError"}, "bad")],
    ids=["it names the one", "it came to nothing, which looked good for both"],
)
def test_a_verify_of_all_has_failed_only_for_those_that_it_names(
    found: dict[str, object], clicks: str
) -> None:
    said = event("verify", 70, "failed", query=None, **found)
    facts = StoreFacts("/s", NOW, (saved(71), saved(71, query="clicks")), (), events=(said,))

    levels = {
        one.query: next(it.level for it in one.answers if it.question == "Last verify")
        for one in answers(facts)
    }
    assert levels == {"orders": "bad", "clicks": clicks}


def test_after_a_program_that_does_not_fit_the_same_run_is_not_what_to_type() -> None:
    failed = event("run", 70, "failed", message="does not match")
    failed = dataclasses.replace(
        failed, error="LayoutChangedError", parameters={"app": "shop_v2:app"}
    )

    (problem,) = only(store(1, events=(failed,))).problems

    newest = store(1).savepoints[0].id
    assert problem.command == f"savepoints upgrade check --app shop_v2:app --from {newest}"


def test_a_run_that_failed_is_a_problem_until_another_one_or_a_new_generation() -> None:
    failed = event("run", 70, "failed", message="the query orders failed: disk full")

    (problem,) = only(store(1, events=(failed,))).problems
    assert problem.text == "The last run failed 2 h ago: the query orders failed: disk full."
    assert problem.command == "savepoints run orders"
    for others in (
        {"events": (event("run", 71), failed)},
        {"events": (failed,), "busy": {"orders": "run"}},
    ):
        assert only(store(1, **others)).problems == ()
    later = (generation("orders", 2, 71, "rollback"), generation("orders", 1, 0, ended=71))
    facts = dataclasses.replace(store(1, events=(failed,)), generations=later)
    assert not any("run" in one.text for one in only(facts).problems)


def test_an_interrupted_operation_comes_with_the_command_that_ends_it() -> None:
    cut = operation("rollback", 71, "safety", "begin", done=1, command="savepoints rollback x")
    (problem,) = only(store(1, operations=(cut,))).problems

    assert problem.text.endswith("is not finished; done so far: safety.")
    assert (problem.command, problem.other) == (
        "savepoints rollback x",
        f"savepoints operations undo {cut.id}",
    )


def test_trap_an_undo_is_not_offered_once_the_generation_has_begun() -> None:
    cut = operation("rollback", 71, "safety", "begin", done=1, command="savepoints rollback x")
    recorded = {"generation_begun": {"at": "2026-11-20T10:00:00.000Z", "generation": 2}}
    # Killed in between, it has begun in the store, and the journal does not know it.
    later = generation("orders", 2, 71, "rollback")
    planned = {**cut.plan, "generation": 2, "checkpoint": later.checkpoint}
    for begun, known in (
        (dataclasses.replace(cut, done={**cut.done, **recorded}), ()),
        (dataclasses.replace(cut, plan={**planned, "query": "orders"}), (later,)),
    ):
        facts = dataclasses.replace(store(1, operations=(begun,)), generations=known)
        (problem,) = (one for one in only(facts).problems if one.unfinished)
        assert (problem.command, problem.other) == ("savepoints rollback x", "")


def test_trap_an_interrupted_undo_can_only_be_undone_to_its_end() -> None:
    cut = operation("rollback", 71, "safety", journal.UNDOING, "begin", done=2)
    (problem,) = only(store(1, operations=(cut,))).problems

    assert problem.command == f"savepoints operations undo {cut.id}"
    assert problem.other == ""


def test_a_promotion_is_shown_with_its_fork_too() -> None:
    cut = operation("promote", 71, "a", "b", done=1)
    cut = dataclasses.replace(cut, plan={**cut.plan, "fork": "orders_b"})
    fork = StoreFacts("/s", NOW, (saved(71, query="orders_b"),), (), operations=(cut,))

    assert [one.unfinished for one in only(fork).problems] == [True]


def test_those_with_problems_come_first_and_who_runs_is_said() -> None:
    found = answers(stories.story())

    assert [one.query for one in found] == ["orders", "orders_b", "clicks"]
    assert found[2].status == "generation 1, running"


def test_trap_the_program_is_that_of_the_present_generation_or_unknown() -> None:
    """After a rollback to another program, the newest savepoint is one of the old program."""
    taken = dataclasses.replace(saved(70), application="v1:app")
    ran = StoreFacts("/s", NOW, (taken,), (generation("orders", 1, 0),))
    back = generation("orders", 2, 71, begun_from=taken.id)
    ended = dataclasses.replace(ran.generations[0], status="ended")

    assert only(ran).program == "v1:app"
    assert only(dataclasses.replace(ran, generations=(back, ended))).program == ""


def test_a_query_with_a_space_is_quoted_in_commands() -> None:
    facts = StoreFacts("/s", NOW, tuple(saved(at, query="my query") for at in (3, 2, 1)))

    assert only(facts).problems[0].command == "savepoints create 'my query'"


def test_the_drill_says_how_long_it_took_to_recover() -> None:
    said = event("drill", 60, message="same: restored in 12.4 s, compared with live")

    assert answer(store(1, events=(said,)), "Last drill") == ("12 h ago", said.message, "good")
    assert hour(60) - hour(0) == timedelta(hours=60)


def test_trap_a_drill_that_left_state_uncompared_is_not_good() -> None:
    """The command itself exits with 3 then; the page showed it as any other."""
    message = "restored: restored in 12.4 s, but for the state of operator 0"
    said = event("drill", 60, message=message, parameters={"not_compared": "0"})

    found = answer(store(1, events=(said,)), "Last drill")
    assert found == ("partly 12 h ago", message, "unknown")
