"""The journal: an interrupted verb is remembered until it is finished."""

from __future__ import annotations

import dataclasses
import json

import pytest

from savepoints.errors import LockedError, UnfinishedOperationError, VerificationError
from savepoints.io import Location, ObjectInfo, in_parallel
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Journal, Operation
from tests import second_s3
from tests.faults.s3_proxy import Request, proxy_of

place = second_s3.place


def operation(query: str = "orders", number: int = 1) -> Operation:
    return Operation(
        id=f"op-{number}",
        verb="rollback",
        query=query,
        plan={"savepoint_id": "sp-1", "outputs": [{"uri": "s3://b/t"}]},
        command="savepoints rollback sp-1 --yes",
        begun_at="2026-11-20T10:00:00.000Z",
    )


def test_a_begun_operation_refuses_its_query_and_no_other(place: Location) -> None:
    Journal.begin(place, operation())

    with pytest.raises(UnfinishedOperationError) as refused:
        journal.refuse_unfinished(place, "orders")
    journal.refuse_unfinished(place, "clicks")

    assert refused.value.exit_code == 11
    assert not refused.value.retryable
    assert refused.value.hint == (
        "finish it first: savepoints rollback sp-1 --yes; "
        "or undo it: savepoints operations undo op-1"
    )
    assert refused.value.details == {"query": "orders", "operation": "op-1"}
    assert "done so far: no steps" in refused.value.message


@pytest.mark.parametrize(
    ("verb", "steps"),
    [
        ("rollback", {"generation_begun": 2}),
        ("pipeline rollback", {"silver.checkpoint_written": 2, "silver.generation_begun": 2}),
        ("append", {}),
    ],
)
def test_trap_the_refusal_names_an_undo_that_is_refused(
    verb: str, steps: dict[str, int], place: Location
) -> None:
    """Once a generation has begun, or a topic has some events, it can only be finished."""
    log = Journal.begin(place, dataclasses.replace(operation(), verb=verb))
    for step, generation in steps.items():
        log.record(step, generation=generation)

    with pytest.raises(UnfinishedOperationError) as refused:
        journal.refuse_unfinished(place, "orders")

    assert refused.value.hint == "finish it first: savepoints rollback sp-1 --yes"


def test_recorded_steps_are_found_by_the_next_process(place: Location) -> None:
    first = Journal.begin(place, operation())
    first.record("safety_savepoint", savepoint="sp-9")
    first.record("checkpoint_written", checkpoint="s3://b/c")

    found = journal.unfinished(place, "orders")

    assert found is not None
    again = Journal(place, found)
    assert again.operation == first.operation
    assert again.is_done("safety_savepoint")
    assert not again.is_done("generation_begun")
    assert again.operation.done["safety_savepoint"]["savepoint"] == "sp-9"
    with pytest.raises(UnfinishedOperationError, match="safety savepoint, checkpoint written"):
        journal.refuse_unfinished(place, "orders")


@pytest.mark.s3
def test_a_finished_operation_is_moved_and_refuses_nothing(place: Location) -> None:
    log = Journal.begin(place, operation())
    log.record("generation_begun", generation=2)

    log.finish()

    assert [info.path for info in place.list()] == ["operations/finished/op-1.json"]
    assert journal.unfinished(place, "orders") is None
    kept = json.loads(place.get("operations/finished/op-1.json"))
    assert kept["finished_at"].endswith("Z")
    assert kept["schema_version"] == 1
    assert kept["plan"] == operation().plan


@pytest.mark.s3
@pytest.mark.parametrize("ended", [True, False])
def test_trap_a_process_that_slept_past_its_lease_does_not_begin_an_operation_again(
    ended: bool, place: Location
) -> None:
    """What it recorded would hide that another has taken the operation back, or is doing so."""
    sleeping = Journal.begin(place, operation())
    found = journal.unfinished(place, "orders")
    assert found is not None
    other = Journal(place, found)
    other.record(journal.UNDOING)
    if ended:
        other.finish(undone=True)

    with pytest.raises(LockedError, match="another process has worked on the operation op-1"):
        sleeping.record("checkpoint_written")

    now = journal.unfinished(place, "orders")
    assert (now is None) == ended
    assert now is None or set(now.done) == {journal.UNDOING}


def test_trap_a_journal_that_a_power_failure_emptied_is_no_operation(place: Location) -> None:
    """The file is there, what was written to it is not; tables may have been taken back."""
    Journal.begin(place, operation())
    place.put("operations/op-1.json", b"")

    for look in (journal.refuse_unfinished, journal.unfinished):
        with pytest.raises(VerificationError, match=r"operations/op-1\.json is damaged"):
            look(place, "orders")


def test_the_operation_of_one_query_is_found_among_several(on_local: Location) -> None:
    for number, query in enumerate(("clicks", "orders", "logins")):
        Journal.begin(on_local, operation(query, number))

    found = journal.unfinished(on_local, "orders")

    assert found is not None
    assert found.id == "op-1"


def test_without_operations_nothing_is_refused(place: Location) -> None:
    assert journal.unfinished(place, "orders") is None
    journal.refuse_unfinished(place, "orders")


def test_trap_each_verb_lists_all_operations_that_were_ever_finished(
    on_s3: Location, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a year of hourly merges took nine requests more, in each verb."""
    in_parallel(
        lambda number: on_s3.put(f"operations/finished/op-{number}.json", b"{}"), range(1001)
    )
    Journal.begin(on_s3, operation())
    sent: list[Request] = []
    with proxy_of(s3_endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        with proxy.faults(sent.append):
            assert journal.unfinished(on_s3, "orders") == operation()

    assert len(sent) == 2, "one list and one document"


@pytest.mark.parametrize("lists", [1, 2])
def test_trap_an_operation_that_ends_between_two_lists_is_in_none(
    on_local: Location, lists: int
) -> None:
    """Its undo was then refused, since there was no such operation."""
    ending, killed = (
        Journal.begin(on_local, operation()),
        Journal.begin(on_local, operation(number=2)),
    )
    journal.document(on_local, "operations/finished/op-2.json").put(killed.operation)

    class Meanwhile(Location):
        """The same place, where the operation ends just before one of the lists."""

        def list(self, prefix: str = "", *, after: str = "") -> list[ObjectInfo]:
            seen.append(prefix)
            if len(seen) == lists:
                ending.finish()
            return super().list(prefix, after=after)

    seen: list[str] = []
    found = journal.all_operations(Meanwhile(on_local.uri))

    assert len(seen) == 2
    assert [(one.id, one.state) for one in found] == [("op-2", "unfinished"), ("op-1", "finished")]


def test_trap_what_an_undo_of_several_queries_began_is_found_by_their_names(
    on_local: Location,
) -> None:
    """It was recorded for a query `undo.silver`, which nobody asks for."""
    back = {"members": [{"rollback": {"query": "silver"}, "topic_reads": ["a read"]}]}
    begun = Journal.begin(on_local, operation("silver"))
    begun.record(journal.UNDOING, plan=back)
    part = begun.part(f"{journal.UNDO}silver")
    part.record("topics_ended", ends={"lines": [7]})
    part.record(journal.GENERATION_BEGUN, generation=3)
    begun.finish(undone=True)

    found = journal.by_generation(on_local)["silver", 3]

    assert found.members["silver"]["topic_reads"] == ["a read"]
    assert found.step_of("silver", "topics_ended")["ends"] == {"lines": [7]}


def test_members_of_what_does_not_roll_back_are_none(on_local: Location) -> None:
    """Forks of a pipeline have members of another kind."""
    plan = {"members": [{"fork": {"query": "silver_fix"}}]}
    begun = dataclasses.replace(operation("silver_fix"), plan=plan)

    assert begun.members == {}
