"""`pipeline rollback`: queries that read each other's tables go back together, as one plan.

Each query goes back to a savepoint as by `rollback`: a new checkpoint, its outputs rewound by one
commit each. Readers of these outputs are then brought to exactly the versions that they go back to
and set behind the commits (`follow`). Safety savepoints of all come first and generations of all
last; there is one journal, and the leases of all queries are held in the order of their names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from savepoints import faults
from savepoints.checkpoint import position
from savepoints.errors import SavepointsError
from savepoints.io import Location
from savepoints.observe.recorder import recorded, recording
from savepoints.operations.pipeline import follow, joint_plan, standstill, topic_reads
from savepoints.operations.pipeline.joint_plan import JointPlan
from savepoints.operations.pipeline.pipeline import pipeline
from savepoints.operations.pipeline_rollback import exact_time, rollback_plan, rollback_refusals
from savepoints.operations.pipeline_rollback.pipeline_member import PipelineMember
from savepoints.operations.pipeline_rollback.rollback_plan import VERB, PipelineRollbackPlan
from savepoints.operations.rollback import generation_change, journalled, taking_back
from savepoints.operations.rollback.rollback import RolledBack
from savepoints.operations.rollback.run_to_point import RestoredQuery
from savepoints.outputs.rewind import rewind
from savepoints.plan import Progress, silent
from savepoints.store import bindings
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Journal
from savepoints.store.locks.lease import Lease
from savepoints.store.root import Store

_WAIT = timedelta(minutes=10)


@dataclass(frozen=True, kw_only=True)
class PipelineRolledBack:
    """What a rollback of several queries did.

    Attributes:
        operation_id: Its name in the journal.
        query: The query that was named.
        members: What was done to each query, writers before readers.
        seconds: How long all of it took.
    """

    operation_id: str
    query: str
    members: tuple[RolledBack, ...]
    seconds: float


@recorded
def execute(
    plan: PipelineRollbackPlan,
    store: Store,
    *,
    wait: timedelta = _WAIT,
    progress: Progress = silent,
) -> PipelineRolledBack:
    """Take the queries back, holding the leases of all; goes on where an earlier one was killed.

    Args:
        wait: How long to wait for a run to pause, and then to continue.

    Raises:
        QueryRunningError: If a query runs, or its checkpoint changed since the plan.
        LockedError: If another verb has one of them.
        UnfinishedOperationError: If another operation was begun since the plan.
        SavepointsError: If a reader fails on its way to where its tables go back to.
    """
    started = time.monotonic()
    with _paused(plan, store, wait, progress):
        if plan.paused and not plan.resumed:
            plan = rollback_plan.again(store, plan)
        with standstill.leases(store, plan.queries, VERB) as held:
            _refuse_left_behind(plan, store)
            members = joint_plan.carry_out(
                plan, store, lambda log: _begun(plan, store, log, held, progress), progress
            )
    return PipelineRolledBack(
        operation_id=plan.operation_id,
        query=plan.query,
        members=members,
        seconds=time.monotonic() - started,
    )


def undo(
    plan: JointPlan, store: Store, *, wait: timedelta = _WAIT, progress: Progress = silent
) -> None:
    """Take an interrupted operation on several queries back; killed, it is run again.

    As long as no table was taken back, the queries are as they were. From then on their readers
    could not go on, so all go to their safety savepoints, in generations of their own.

    Raises:
        UsageError: If a generation has begun, so that only a formality is left to do.
    """
    with (
        _paused(plan, store, wait, progress),
        standstill.leases(store, plan.queries, plan.verb) as held,
        recording(store, "undo", query=plan.query, operation=plan.operation_id),
    ):
        log = journalled.reopen(plan, store)
        taking_back.refuse_begun(plan, plan.transitions, store)
        back = _way_back(plan, store, log, progress)
        joint_plan.discard(plan, store, progress)
        faults.reach(f"{plan.verb}.undo_checkpoints")
        if back is not None:
            _move(back.members, store, partial(_part_of_undo, log), held, progress)
        log.finish(undone=True)


def _way_back(
    plan: JointPlan, store: Store, log: Journal, progress: Progress
) -> PipelineRollbackPlan | None:
    """Return how the queries go back, None if they are as they were.

    A driver that nobody knows of may have gone on since an undo was interrupted, and have written
    into tables that it had put back: their rows would be there twice, or keep others out.
    """
    if not log.is_done(journal.UNDOING):
        # From here on nothing that was done counts any more.
        log.record(journal.UNDOING, plan=rollback_plan.way_back(store, plan))
    back = rollback_plan.undoing(log.operation)
    if back is None:
        return None
    parts = {one.query: _part_of_undo(log, one.query) for one in back.transitions}
    begun = any(one.is_done(journal.GENERATION_BEGUN) for one in parts.values())
    gone_on = any(generation_change.has_gone_on(one, parts[one.query]) for one in back.transitions)
    if gone_on and not begun:
        joint_plan.discard(back, store, progress)
        way = rollback_plan.way_back(store, plan)
        log.record_instead(journal.UNDO, journal.UNDOING, plan=way)
        return way
    for one in back.transitions:
        generation_change.refuse_gone_on(one, parts[one.query])
    return back


def _refuse_left_behind(plan: PipelineRollbackPlan, store: Store) -> None:
    """Refuse a reader that has come since the plan, as a fork does: it takes no lease of these."""
    rollback_refusals.refuse_left_behind(store, pipeline(store, plan.query), plan.queries)


def _begun(
    plan: PipelineRollbackPlan,
    store: Store,
    log: Journal,
    held: Mapping[str, Lease],
    progress: Progress,
) -> tuple[RolledBack, ...]:
    """Take the queries back whose operation is in the journal, where forks look before they begin.

    One that looked before may have begun since this operation looked for forks.
    """
    if not log.operation.done:
        try:
            _refuse_left_behind(plan, store)
        except SavepointsError:
            log.finish(undone=True)
            raise
    return _move(plan.members, store, log.part, held, progress)


def _part_of_undo(log: Journal, query: str) -> Journal:
    return log.part(f"{journal.UNDO}{query}")


def _move(
    members: Sequence[PipelineMember],
    store: Store,
    part_of: Callable[[str], Journal],
    held: Mapping[str, Lease],
    progress: Progress,
) -> tuple[RolledBack, ...]:
    """Do what is to be done to each query, step by step of all; done before, it is left out."""
    started = time.monotonic()
    outputs = (output for one in members for output in one.rollback.outputs)
    spark = rewind.session_for(outputs, store.settings)
    for one in members:
        held[one.query].check()
        generation_change.save_present(one.rollback, store, part_of(one.query), progress)
    # Before any reader catches up, which may write into topics of its own.
    ended = _topics_ended(members, store, part_of)
    with ExitStack() as generations:
        for one in members:
            write = partial(
                generation_change.restored, one.rollback, store, form=one.rollback.form,
                progress=progress,
            )  # fmt: skip
            generations.enter_context(
                generation_change.new_generation(
                    one.rollback, store, write, part_of(one.query), held[one.query]
                )
            )
        versions = {
            one.query: generation_change.rewind_outputs(
                one.rollback, part_of(one.query), held[one.query], progress, spark
            )
            for one in members
        }
        made = {
            output.output.uri: versions[one.query][output.output.name]
            for one in members
            for output in one.rollback.outputs
        }
        for one in members:
            held[one.query].check()
            _follow(one, store, made, ended, part_of(one.query), progress)
        for one in members:
            _run_on(one, store, part_of(one.query), held[one.query], progress)
    for one in members:
        # Behind what was rolled back in what it reads: no earlier savepoint is.
        saved = generation_change.first_savepoint(one.rollback, one.first_id, store, progress)
        generation_change.do(saved, part_of(one.query), held[one.query])
    return tuple(
        RolledBack(
            **generation_change.summary(one.rollback, time.monotonic() - started),
            safety_id=one.rollback.safety_id,
            outputs=versions[one.query],
            bytes_written=int(part_of(one.query).operation.done["checkpoint_written"]["bytes"]),
            batch_id=_newest(one),
        )
        for one in members
    )


def _topics_ended(
    members: Sequence[PipelineMember], store: Store, part_of: Callable[[str], Journal]
) -> dict[str, Sequence[int]]:
    """Return where the topics end that the queries read of each other: all stand still."""
    found: dict[str, Sequence[int]] = {}
    for one in members:
        mine = [read for each in members for read in each.topic_reads if read.writer == one.query]
        if not mine:
            continue
        log = part_of(one.query)
        if not log.is_done("topics_ended"):
            now = topic_reads.ends_now(mine, store.settings.kafka)
            log.record("topics_ended", ends={topic: one.ends for topic, one in now.items()})
        found |= log.operation.done["topics_ended"]["ends"]
    return found


def _follow(
    member: PipelineMember,
    store: Store,
    made: Mapping[str, int],
    ended: Mapping[str, Sequence[int]],
    log: Journal,
    progress: Progress,
) -> None:
    """Bring a reader to where its writers went back to, and behind what was taken back."""
    if not (member.reads or member.topic_reads) or log.is_done("followed"):
        return
    checkpoint = Location.of(member.rollback.checkpoint)
    run = partial(_run_planned, member, store, progress)
    follow.catch_up(
        member.query, checkpoint, member.reads, run, progress, topic_reads=member.topic_reads
    )
    faults.reach(f"{VERB}.{member.query}.caught_up")
    follow.skip_rewinds(checkpoint, member.reads, made, member.topic_reads, ended)
    log.record("followed")


def _run_on(
    member: PipelineMember, store: Store, log: Journal, held: Lease, progress: Progress
) -> None:
    """Run a query on to an exact time; those that it reads from are there already."""
    if member.ends is None or log.is_done("advanced"):
        return
    held.check()
    exact_time.run(member, store, held.check, progress)
    log.record("advanced")


def _run_planned(member: PipelineMember, store: Store, progress: Progress) -> None:
    """Run the batch that is planned, with the program and tables of the generation to be."""
    if member.writer is None:
        RestoredQuery.of(member.rollback, store, progress).runner().run_planned()
        return
    going = member.rollback
    settings = bindings.complete(store, generations={member.query: going.generation})
    build = follow.load_writer(member.query, member.writer)
    follow.run_writer(member.query, Location.of(going.checkpoint), build, settings)


def _newest(member: PipelineMember) -> int:
    newest = position.read(Location.of(member.rollback.checkpoint)).committed
    assert newest is not None
    return newest


def _paused(
    plan: JointPlan, store: Store, wait: timedelta, progress: Progress
) -> AbstractContextManager[None]:
    reason = f"{plan.verb} {plan.operation_id}"
    return standstill.paused(store, plan.paused, reason=reason, wait=wait, progress=progress)
