"""Journals of readers: in which order, what they wait for, and when they are taken back."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from savepoints.errors import UnfinishedOperationError
from savepoints.handle import Store
from savepoints.model import OutputVersion
from savepoints.moments import rfc3339, utc_now
from savepoints.operations import unfinished
from savepoints.operations.cascade import carry_out, cascade
from savepoints.operations.cascade.cascade import Downstream, in_order
from savepoints.operations.cascade.cascade_plan import VERB, CascadePlan, Followed
from savepoints.operations.merge.plan import MergingPlan, SplicePlan
from savepoints.operations.merge.prepare import MergeRequest
from savepoints.operations.rollback import last_operation
from savepoints.outputs.correct.correct import Correction
from savepoints.outputs.rewind.planned_rewind import Rewind
from savepoints.store.locks import journal, lease
from savepoints.store.locks.journal import Journal, Operation
from savepoints.store.tables.merge_ledger import MergeFacts

MERGE = "op-20261125-101500-aaaaaa"


def plan(query: str, reads: str, number: int = 1) -> CascadePlan:
    """Return what a reader of a table would do, which writes one of its own name."""
    output = OutputVersion("out", f"/lake/{query}", "id", 3, f"{query}/out/2", 7)
    correction = Correction(
        Rewind(output, 3, {}, f"{query}/", None), "append", (), "customer_id", "a", 7, "op"
    )
    return CascadePlan(
        verb=VERB,
        query=query,
        steps=(),
        warnings=(),
        command="savepoints merge bronze --batch late --downstream merge --yes",
        operation_id=f"op-20261125-101500-{number:06d}",
        savepoint_id="sp-1",
        safety_id="sp-1",
        from_checkpoint="/lake/checkpoint",
        from_batch=7,
        generation=2,
        checkpoint="/lake/checkpoint/2",
        outputs=(),
        follows=Followed(MERGE, "bronze", f"/lake/{reads}", "id", f"{reads}/out/2", 7),
        batch_id=7,
        place="/lake/scratch",
        replayed_batch=1,
        entity_fields={"0": "customer_id"},
        corrections=(correction,),
        entities=1,
        rows_removed=1,
        rows_added=2,
        controls=3,
        paused=False,
        first_id="sp-2",
    )


def begun(store: Store) -> Journal:
    """Begin the merge that readers follow."""
    saved = {"safety_id": "sp-0"}
    operation = Operation(MERGE, "merge", "bronze", saved, "savepoints merge", rfc3339(utc_now()))
    return Journal.begin(store.root, operation)


def merged(store: Store, *, undone: bool = False) -> None:
    """Let the merge that readers follow be finished, or undone."""
    begun(store).finish(undone=undone)


def test_who_writes_a_table_comes_before_who_reads_it() -> None:
    gold, silver, other = plan("gold", "silver"), plan("silver", "bronze"), plan("top", "gold")
    assert [one.query for one in in_order([other, gold, silver])] == ["silver", "gold", "top"]


def test_the_journal_keeps_all_of_a_plan(local_store: Store) -> None:
    made = plan("silver", "bronze")
    carry_out.announce(made, local_store)
    read = unfinished.plan(local_store, made.operation_id)
    assert read == replace(made, resumed=True)
    assert journal.unfinished(local_store.root, "silver") is not None


def test_one_that_was_only_announced_is_withdrawn(local_store: Store) -> None:
    made = plan("silver", "bronze")
    carry_out.announce(made, local_store)
    carry_out.withdraw(made, local_store)
    (operation,) = journal.all_operations(local_store.root)
    assert operation.state == "undone"


def test_trap_an_undone_merge_left_its_readers_before_a_correction_that_was_taken_back(
    local_store: Store, tmp_path: Path
) -> None:
    """Their next run failed: neither commit is one that a stream goes over."""
    table = str(tmp_path / "bronze")
    announced = plan("silver", "bronze")
    follows = replace(announced.follows, table=table)
    carry_out.announce(replace(announced, follows=follows), local_store)

    def write(batch: int) -> None:
        written = Transaction(follows.app_id, batch)
        properties = CommitProperties(app_transactions=[written])
        rows = pa.table({"customer_id": [1]})
        write_deltalake(table, rows, mode="append", commit_properties=properties)

    write(follows.batch_id - 1)
    carry_out.refuse_undo_of_followed(MERGE, local_store)
    write(follows.batch_id)
    carry_out.refuse_undo_of_followed("another", local_store)
    with pytest.raises(UnfinishedOperationError, match="silver, which reads that") as refused:
        carry_out.refuse_undo_of_followed(MERGE, local_store)
    assert announced.command in refused.value.hint


@pytest.mark.parametrize("undone", [None, True])
def test_none_is_finished_before_the_merge_that_it_follows(
    local_store: Store, undone: bool | None
) -> None:
    made = plan("silver", "bronze")
    if undone is not None:
        merged(local_store, undone=undone)
    carry_out.announce(made, local_store)
    how = "was undone" if undone else "was never begun"
    with pytest.raises(UnfinishedOperationError, match=how) as raised:
        unfinished.resume(local_store, made.operation_id)
    assert raised.value.hint == (
        f"run the whole merge again: {made.command}; or undo it: savepoints operations undo "
        f"{made.operation_id}"
    )
    unfinished.undo_plan(local_store, made.operation_id)


@pytest.mark.parametrize("has_begun", [False, True])
def test_trap_two_refusals_named_each_other_while_the_merge_was_unfinished(
    local_store: Store, has_begun: bool
) -> None:
    """Of the correction alone; only who ran the whole merge again, or undid it, got out."""
    made = plan("silver", "bronze")
    carry_out.announce(made, local_store)
    merge = begun(local_store)
    if has_begun:
        merge.record(journal.GENERATION_BEGUN, generation=2)
    undo = "" if has_begun else f"; or undo it: savepoints operations undo {MERGE}"

    with pytest.raises(UnfinishedOperationError) as refused:
        journal.refuse_unfinished(local_store.root, "silver")
    assert refused.value.hint == f"finish it first: {made.command}"
    with pytest.raises(UnfinishedOperationError, match="is unfinished") as refused:
        unfinished.resume(local_store, made.operation_id)
    assert refused.value.hint == f"run the whole merge again: {made.command}"
    for undoing in (unfinished.undo_plan, unfinished.undo):
        with pytest.raises(UnfinishedOperationError, match="bronze is unfinished") as refused:
            undoing(local_store, made.operation_id)
        assert refused.value.hint == f"finish all of it: {made.command}{undo}"


def test_none_is_finished_before_the_table_that_it_reads_is_corrected(local_store: Store) -> None:
    made = plan("gold", "silver")
    merged(local_store)
    carry_out.announce(made, local_store)
    with pytest.raises(UnfinishedOperationError, match="/lake/silver, which gold reads, has not"):
        unfinished.resume(local_store, made.operation_id)


def test_none_is_undone_once_the_merge_is_done(local_store: Store) -> None:
    made = plan("silver", "bronze")
    merged(local_store)
    carry_out.announce(made, local_store)
    # That it could be was planned, and said where it was in the way.
    for undo in (unfinished.undo, unfinished.undo_plan):
        with pytest.raises(
            UnfinishedOperationError,
            match=f"the merge {MERGE} has already corrected .*must be corrected too",
        ):
            undo(local_store, made.operation_id)
    with pytest.raises(UnfinishedOperationError) as refused:
        journal.refuse_unfinished(local_store.root, "silver")
    assert "undo" not in refused.value.hint


@pytest.mark.parametrize("downstream", ["plan", "none"])
def test_trap_who_asked_for_a_plan_alone_finished_the_merge_that_was_interrupted(
    local_store: Store, downstream: Downstream
) -> None:
    """And who asked for no readers finished it without them."""
    asked = MergeRequest("bronze", "late.parquet", through=True)
    command = replace(asked, through=downstream == "none").command
    made = plan("bronze", "none")
    interrupted = MergingPlan(
        **{one.name: getattr(made, one.name) for one in fields(SplicePlan)}
        | {"command": command, "operation_id": MERGE},
        facts=MergeFacts(
            input="orders",
            batch="late.parquet",
            content_hash="",
            first_event_time=None,
            last_event_time=None,
        ),
        base_versions={},
        descent=(),
        archive="/lake/archive",
        still_since=None,
    ).to_json()
    operation = Operation(MERGE, "merge", "bronze", interrupted, command, rfc3339(utc_now()))
    Journal.begin(local_store.root, operation)

    with pytest.raises(UnfinishedOperationError) as refused:
        cascade.prepare(local_store, replace(asked, through=False), downstream)

    assert f"savepoints operations undo {MERGE}" in refused.value.hint


def test_trap_one_that_another_process_is_about_to_begin_is_left_alone(local_store: Store) -> None:
    from savepoints.errors import LockedError
    from savepoints.operations.cascade import cascade

    made = plan("silver", "bronze")
    with lease.hold(local_store.root, "silver", VERB):
        carry_out.announce(made, local_store)
        with pytest.raises(LockedError):
            cascade._withdraw_stale(local_store, [made])
    assert cascade._withdraw_stale(local_store, [made]) == []
    assert journal.unfinished(local_store.root, "silver") is None


def test_a_merge_and_what_readers_took_over_of_it_are_one_operation(local_store: Store) -> None:
    """Whichever of these a query was changed by last; what was withdrawn is no part."""
    silver, gold, other = plan("silver", "bronze", 2), plan("gold", "silver", 1), plan("x", "y", 3)
    for one in (silver, gold, other):
        carry_out.announce(one, local_store)
    carry_out.withdraw(other, local_store)
    merged(local_store)

    parts = {"bronze": MERGE, "gold": gold.operation_id, "silver": silver.operation_id}
    every = journal.all_operations(local_store.root)
    known = {operation.id: operation for operation in every}
    for part in parts.values():
        assert last_operation.changed_together(known[part], every) == parts


def test_trap_a_merge_is_taken_back_from_under_a_reader_that_has_not_taken_it_over(
    local_store: Store,
) -> None:
    carry_out.announce(plan("silver", "bronze"), local_store)
    merged(local_store)
    last = last_operation.require(local_store, "bronze")
    with pytest.raises(UnfinishedOperationError, match="of silver was interrupted"):
        unfinished.undo_together_plan(local_store, last)


def test_corrections_are_undone_with_the_merge_that_they_follow(local_store: Store) -> None:
    made = plan("silver", "bronze")
    carry_out.announce(made, local_store)
    merged(local_store)
    Journal(local_store.root, unfinished.find(local_store, made.operation_id)).finish()
    back = Operation(
        "op-20261126-101500-bbbbbb", "pipeline rollback", "bronze",
        {"undoes": MERGE, "queries": ["bronze", "silver"]}, "", rfc3339(utc_now()),
    )  # fmt: skip
    Journal.begin(local_store.root, back).finish()
    assert journal.undone_by(journal.all_operations(local_store.root)) == {
        MERGE: back.id,
        made.operation_id: back.id,
    }
