"""The table of savepoints, what changed between two, operations, events and growth."""

from __future__ import annotations

import dataclasses

from savepoints.model import FORMS, Generation, OperatorState, OutputVersion
from savepoints.ui.answers import answers
from savepoints.ui.facts import StoreFacts
from savepoints.ui.growth import growth
from savepoints.ui.operation_rows import MOST_EVENTS, MOST_OPERATIONS, log
from savepoints.ui.savepoint_rows import changes, rows
from tests.ui import stories
from tests.ui.stories import NOW, event, generation, operation, saved


def test_a_row_says_what_list_says() -> None:
    found = {one.id: one for one in rows(stories.story(), ("orders", "orders_b"))}

    gone, broken = found["sp-20261121-060000-ord001"], found["sp-20261121-180000-ord002"]
    assert (gone.status, broken.status) == ("rolled back", "broken")
    assert ("Why broken", "state/0/3/7.zip is missing") in broken.facts
    tagged = found["sp-20261120-180000-ord001"]
    assert tagged.tags == ("before-release", "v1.4", "pinned")
    assert tagged.forms == "native + canonical"
    assert tagged.restorable == "no"
    assert tagged.offsets == (("orders", "0", "96000"), ("orders", "1", "94400"))


def test_changes_since_the_savepoint_before_are_counted_by_hand() -> None:
    found = {one.name: one for one in changes(saved(1), saved(3))}

    assert (found["batch"].before, found["batch"].after, found["batch"].by) == ("10", "30", "+20")
    assert found["source 0, orders/0"].by == "+24,000"
    assert found["rows of operator 0 (stateStoreSave)"].by == "+800"
    assert found["version of output totals"].after == "33"


def test_trap_after_a_rollback_the_savepoint_is_compared_with_the_bug() -> None:
    """Its parent is what was newest then; what it came from is what was gone back to."""
    first, bug = saved(1), saved(2)
    fixed = saved(3, of=2, batch=15, parent=bug.id, application="fixed:app")
    again = saved(4, of=2, batch=16, parent=fixed.id, application="fixed:app")
    generations = (
        generation("orders", 2, 2.5, "rollback", begun_from=first.id),
        generation("orders", 1, 0, ended=2.5),
    )
    facts = StoreFacts("/s", NOW, (again, fixed, bug, first), generations)

    found = {one.id: one for one in rows(facts, ("orders",))}

    assert [found[one.id].before for one in facts.savepoints] == [
        fixed.id,
        first.id,
        first.id,
        None,
    ]
    assert ("program", "shop.totals:app", "fixed:app", "") in [
        (it.name, it.before, it.after, it.by) for it in found[fixed.id].changes
    ]


def test_other_contents_of_as_many_rows_are_a_change() -> None:
    state = OperatorState(0, "dedupe", ("default",), 1, 7, 70, "a")
    one = saved(1, operators=(state,))
    other = saved(1, operators=(dataclasses.replace(state, content_hash="b"),))
    without = saved(1, operators=())

    assert [it.by for it in changes(one, other) if "operator" in it.name] == ["different contents"]
    assert [it.after for it in changes(one, without) if "operator" in it.name] == ["no operator"]


def test_an_output_that_is_new_is_a_change() -> None:
    new = OutputVersion("audit", "/a", "t", 0, "a", 1)
    one = saved(1)

    (change,) = changes(one, dataclasses.replace(one, outputs=(*one.outputs, new)))[1:]

    assert (change.name, change.before, change.after) == ("version of output audit", "-", "0")


def test_steps_of_a_journal_have_the_time_since_it_began() -> None:
    cut = operation("rollback", 3, "safety", "checkpoint", "begin", done=2)
    (found,) = log(StoreFacts("/s", NOW, operations=(cut,))).operations

    assert [(one.name, one.after) for one in found.steps] == [
        ("safety", "after 7 s"), ("checkpoint", "after 14 s"), ("begin", "not done"),
    ]  # fmt: skip
    assert (found.state, found.took) == ("unfinished", "-")


def test_trap_an_old_operation_that_is_unfinished_is_always_listed() -> None:
    many = [operation("rollback", 70 - at, "a") for at in range(MOST_OPERATIONS + 5)]
    cut = operation("merge", 1, "a", "b", done=1)
    facts = StoreFacts("/s", NOW, operations=(*many, cut), since=stories.hour(60))

    found = log(facts)

    assert found.operations[-1].id == cut.id
    assert log(dataclasses.replace(facts, since=None)).older_operations == 5


def test_more_events_than_fit_are_counted() -> None:
    found = log(StoreFacts("/s", NOW, events=tuple(event("create", 1) for _ in range(60))))

    assert (len(found.events), found.older_events) == (MOST_EVENTS, 10)


def test_growth_is_drawn_from_zero_and_ends_at_the_newest() -> None:
    taken = tuple(saved(at) for at in (3, 2, 1))
    rows_, bytes_, seconds = growth(StoreFacts("/s", NOW, taken), "orders")

    assert (rows_.newest, rows_.most, rows_.change) == ("21,200 rows", "21,200 rows", "+4%")
    assert rows_.end == (334.0, 10.0)
    first = rows_.points.split()[0].split(",")
    assert first[0] == "6.0"
    assert abs(float(first[1]) - (84 - 74 * 20_400 / 21_200)) < 0.1
    assert bytes_.title.startswith("New bytes")
    assert seconds.newest == "1.7 s"


def test_trap_the_age_of_a_savepoint_was_that_of_its_batch_and_another_one_in_the_card() -> None:
    """A query that waits for data is saved long after its newest batch."""
    taken = dataclasses.replace(saved(60), created_at=stories.hour(71))
    facts = StoreFacts("/s", NOW, (taken,))

    (row,) = rows(facts, ("orders",))

    assert row.age == "1 h"
    ((card,),) = ([one for one in each.answers if one.question == "Last savepoint"]
                  for each in answers(facts))  # fmt: skip
    assert card.value == "1 h ago"


def test_trap_one_in_the_native_form_alone_makes_savepoints_look_cheaper() -> None:
    """A verb takes such a one before it acts; it copies no rows."""
    taken = tuple(dataclasses.replace(saved(hour), forms=FORMS) for hour in (4, 3, 2, 1))
    cost = dataclasses.replace(taken[0].cost, bytes_copied=1, export_bytes=0)
    quick = dataclasses.replace(saved(5), forms=("native",), cost=cost)

    facts = StoreFacts("/s", NOW, taken)
    _, bytes_, seconds = growth(dataclasses.replace(facts, savepoints=(quick, *taken)), "orders")

    assert (bytes_, seconds) == growth(facts, "orders")[1:]
    assert bytes_.title == "New bytes per savepoint (native and canonical)"


def test_two_savepoints_are_no_growth() -> None:
    assert growth(StoreFacts("/s", NOW, (saved(2), saved(1))), "orders") == ()


def test_an_operation_that_was_undone_later_and_the_one_that_undid_it_say_so() -> None:
    done = operation("promote", 3, "begin")
    done = dataclasses.replace(done, plan={**done.plan, "safety_id": "sp-1"})
    undoing = operation("rollback", 5, "begin")
    plan = {**undoing.plan, "savepoint_id": "sp-1", "command": "savepoints rollback --undo --yes"}
    undoing = dataclasses.replace(undoing, plan=plan, done={"generation_begun": {"generation": 3}})
    back = dataclasses.replace(undoing, id="op-2", plan={**plan, "command": "savepoints rollback"})
    facts = StoreFacts("/s", NOW, operations=(undoing, back, done))

    first, named, promoted = log(facts).operations

    assert (first.undid, first.undone_by) == (done.id, "")
    assert (named.undid, promoted.undone_by) == ("", undoing.id)
    begun = Generation("orders", 3, "/c", "current", NOW, "rollback")
    assert facts.is_undo(begun)
    assert not facts.is_undo(dataclasses.replace(begun, generation=4))
