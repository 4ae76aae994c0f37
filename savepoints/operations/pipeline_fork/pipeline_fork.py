"""`pipeline fork`: a second version of a query and all its readers, with tables of its own.

Nothing of the pipeline is touched. Each query becomes a fork as by `fork`, and a fork that reads
what another one writes goes on in that one's copy of the table. There is one journal for all of
them; killed anywhere, the same command goes on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from savepoints import faults
from savepoints.checkpoint import position
from savepoints.checkpoint.logs import table_position
from savepoints.errors import UsageError
from savepoints.io import Location
from savepoints.observe.recorder import recorded, recording
from savepoints.operations.fork import fork
from savepoints.operations.fork.fork import Forked
from savepoints.operations.pipeline import follow, standstill
from savepoints.operations.pipeline.joint_plan import step_of
from savepoints.operations.pipeline_fork.pipeline_fork_plan import (
    VERB,
    ForkedMember,
    PipelineForkPlan,
)
from savepoints.operations.rollback import generation_change, journalled, taking_back
from savepoints.operations.rollback.run_to_point import RestoredQuery
from savepoints.outputs.delta import batch_version
from savepoints.plan import Plan, Progress, silent
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Journal
from savepoints.store.root import Store
from savepoints.uri import spelled


@dataclass(frozen=True, kw_only=True)
class PipelineForked:
    """What a fork of several queries did.

    Attributes:
        operation_id: Its name in the journal.
        query: The fork of the query that was named.
        name: Suffix of the forks' names, after the names of their queries.
        forks: The forks, writers before readers.
        seconds: How long all of it took.
    """

    operation_id: str
    query: str
    name: str
    forks: tuple[Forked, ...]
    seconds: float


@recorded
def execute(plan: PipelineForkPlan, store: Store, *, progress: Progress = silent) -> PipelineForked:
    """Make the forks, holding the leases of their names; goes on where an earlier one was killed.

    Raises:
        TargetExistsError: If a query of one of the names was made since the plan.
        LockedError: If another process makes one of them.
        SavepointsError: If a reader fails on its way to where the copies begin.
    """
    started = time.monotonic()
    if plan.finished:
        there = tuple(
            replace(fork.forked(one.fork, 0.0, 0), already_forked=True) for one in plan.members
        )
        return _summary(plan, there, 0.0)
    with standstill.leases(store, plan.queries, VERB) as held:
        log = journalled.begin_or_resume(plan, store, lambda: _refuse_taken(plan, store))
        with ExitStack() as generations:
            for one in plan.members:
                part, lease = log.part(one.query), held[one.query]
                write = partial(
                    generation_change.restored, one.fork, store, form=one.fork.form,
                    query_id=one.fork.query_id, progress=progress,
                )  # fmt: skip
                generations.enter_context(
                    generation_change.new_generation(one.fork, store, write, part, lease)
                )
                fork.isolate_outputs(one.fork, part, lease, progress)
            for one in plan.members:
                held[one.query].check()
                _follow(one, store, plan.copies, log.part(one.query), progress)
                fork.refuse_rolled_back(one.fork, store)
        log.finish()
    seconds = time.monotonic() - started
    made = tuple(_forked(one, log.part(one.query), seconds) for one in plan.members)
    return _summary(plan, made, seconds)


def undo_plan(plan: PipelineForkPlan) -> Plan:
    """Say what taking interrupted forks back would do."""
    steps = [
        step_of(one.query, step) for one in plan.members for step in fork.undo_plan(one.fork).steps
    ]
    return Plan("undo", plan.query, tuple(steps), ())


def refuse_undo(plan: PipelineForkPlan, store: Store) -> None:
    """Refuse to undo forks.

    Raises:
        UsageError: If one of them has begun, so that only a formality is left to do.
    """
    for one in plan.members:
        if store.generations.all(one.query):
            raise UsageError(
                f"the forked query {one.query} already exists, so the operation can no longer be "
                "undone",
                hint=f"finish it: savepoints operations resume {plan.operation_id}",
                operation=plan.operation_id,
            )


def undo(plan: PipelineForkPlan, store: Store, *, progress: Progress = silent) -> None:
    """Remove what interrupted forks have made, and nothing else; killed, it is run again.

    Raises:
        UsageError: See `refuse_undo`.
        NotAlignedError: If others have written to a table of theirs.
    """
    with (
        standstill.leases(store, plan.queries, VERB) as held,
        recording(store, "undo", query=plan.query, operation=plan.operation_id),
    ):
        log = journalled.reopen(plan, store)
        refuse_undo(plan, store)
        log.record(journal.UNDOING)
        for one in plan.members:
            fork.remove_outputs(one.fork, held[one.query].check, progress)
            taking_back.discard(one.fork, store, progress)
            faults.reach(f"{VERB}.undo_{one.query}")
        log.finish(undone=True)


def _follow(
    member: ForkedMember, store: Store, copies: Mapping[str, str], log: Journal, progress: Progress
) -> None:
    """Let a fork read what its table had at the cut, and go on in the copy of the table."""
    if not member.reads or log.is_done("followed"):
        return
    checkpoint = Location.of(member.fork.checkpoint)
    run = partial(_run_planned, member, store, copies, progress)
    follow.catch_up(member.query, checkpoint, member.reads, run, progress)
    faults.reach(f"{VERB}.{member.query}.caught_up")
    ids = {
        uri: batch_version.table_id(batch_version.open_table(copies[uri]))
        for uri in {read.table_uri for read in member.reads}
    }
    # The rows of the cut are version 0 of the copy.
    follow.go_on_at(
        checkpoint,
        {read.source: table_position.after(ids[read.table_uri], 0).text for read in member.reads},
    )
    log.record("followed")


def _run_planned(
    member: ForkedMember, store: Store, copies: Mapping[str, str], progress: Progress
) -> None:
    """Run the batch that is planned: the fork's program over the original tables."""
    query = RestoredQuery.of(member.fork, store, progress)
    originals = {copy: uri for uri, copy in copies.items()}
    bound = query.settings.queries[query.query]
    tables = {one: originals.get(spelled(uri), uri) for one, uri in bound.tables.items()}
    queries = {**query.settings.queries, query.query: bound.model_copy(update={"tables": tables})}
    settings = query.settings.model_copy(update={"queries": queries})
    replace(query, settings=settings).runner().run_planned()


def _refuse_taken(plan: PipelineForkPlan, store: Store) -> None:
    for one in plan.members:
        journal.refuse_unfinished(store.root, one.query)
        fork.refuse_taken(one.fork, store)


def _forked(member: ForkedMember, log: Journal, seconds: float) -> Forked:
    made = fork.forked(member.fork, seconds, fork.bytes_written(member.fork, log))
    reached = position.read(Location.of(member.fork.checkpoint)).committed
    assert reached is not None
    return replace(made, batch_id=reached)


def _summary(plan: PipelineForkPlan, forks: tuple[Forked, ...], seconds: float) -> PipelineForked:
    return PipelineForked(
        operation_id=plan.operation_id,
        query=plan.query,
        name=plan.name,
        forks=forks,
        seconds=seconds,
    )
