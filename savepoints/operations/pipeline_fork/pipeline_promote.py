"""`pipeline promote`: the forks of a pipeline take over from their queries, all at equal cuts.

1. The forks are run to where the pipeline stands, while that goes on.
2. The live queries are paused. All queries and forks are run to equal cuts.
3. Checks are run on each pair. If one fails, the live queries go on as if nothing had happened.
4. The live queries' next generations begin together, as the forks are (`pipeline_promotion`).

Killed before step 4 it is begun again by the same command; in step 4 it goes on by its journal.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta

from savepoints import faults
from savepoints.model import new_id
from savepoints.moments import utc_now
from savepoints.observe.recorder import recorded
from savepoints.operations.fork import promote_checks, promote_plan
from savepoints.operations.fork.promote_checks import Check
from savepoints.operations.pipeline import standstill
from savepoints.operations.pipeline.joint_plan import step_of
from savepoints.operations.pipeline_fork import forked_pairs, pipeline_promotion
from savepoints.operations.pipeline_fork.equal_cuts import LATEST, EqualCuts
from savepoints.operations.pipeline_fork.forked_pairs import ForkedPair
from savepoints.operations.pipeline_fork.pipeline_fork_plan import fork_name
from savepoints.operations.pipeline_fork.pipeline_promotion import VERB, PipelinePromotionPlan
from savepoints.operations.pipeline_rollback import rollback_refusals
from savepoints.operations.rollback import generation_change, journalled
from savepoints.operations.rollback.generation_change import BegunGeneration
from savepoints.operations.savepoint import plan_basis
from savepoints.operations.savepoint.plan_basis import Basis
from savepoints.plan import Plan, Progress, silent
from savepoints.store import bindings
from savepoints.store.locks import journal, lease
from savepoints.store.root import Store

_WAIT = timedelta(minutes=10)


@dataclass(frozen=True)
class PipelinePromotePlan(Plan):
    """What `pipeline promote` is going to do.

    Attributes:
        name: Suffix of the forks' names.
        pairs: Each live query with its fork, writers before readers.
        checks: Whether the checks have to pass.
        command: How to do it again as a command line, which also finishes it after a crash.
        bases: What the plan was made from, by query; the queries may continue and take savepoints.
        begun: The interrupted promotion that is finished; None for a new one.
    """

    name: str
    pairs: tuple[ForkedPair, ...]
    checks: bool
    command: str
    bases: tuple[tuple[str, Basis], ...] = ()
    begun: PipelinePromotionPlan | None = None

    @property
    def live(self) -> tuple[str, ...]:
        """The names of the live queries."""
        return tuple(one.live for one in self.pairs)

    @property
    def forks(self) -> tuple[str, ...]:
        """The names of the forks."""
        return tuple(one.fork for one in self.pairs)


@dataclass(frozen=True, kw_only=True)
class PipelineMemberPromoted(BegunGeneration):
    """What was done to one live query.

    Attributes:
        fork: The fork that it becomes.
        safety_id: The safety savepoint of what was there before.
        application: The program that runs from now on.
    """

    fork: str
    safety_id: str | None
    application: str


@dataclass(frozen=True, kw_only=True)
class PipelinePromoted:
    """What a promotion of several queries did.

    Attributes:
        operation_id: Its name in the journal.
        query: The query that was named.
        members: What was done to each live query, writers before readers.
        checks: What the checks found; empty when they were left out, or were made before a crash.
        seconds: How long all of it took.
    """

    operation_id: str
    query: str
    members: tuple[PipelineMemberPromoted, ...]
    checks: tuple[Check, ...]
    seconds: float


def plan(store: Store, query: str, name: str, *, checks: bool = True) -> PipelinePromotePlan:
    """Plan to let forks take over; nothing is written, and the live queries are not touched.

    Args:
        query: One of the queries that were forked together.
        name: Suffix of the forks' names.
        checks: Whether the checks have to pass.

    Raises:
        NotFoundError: If there is no such fork.
        QueryRunningError: If a fork runs, or a live query in a driver of its own.
        UnfinishedOperationError: If another operation on one of them was interrupted.
        NotAlignedError: If late events were merged into a live query that its fork does not have.
    """
    store = store.snapshot()
    command = _command(query, name, checks=checks)
    pairs = forked_pairs.find(store, query, name)
    # A promotion has one journal for all: whichever was named then.
    for one in pairs:
        if journal.unfinished(store.root, one.live) is None:
            continue
        lease.refuse_held(store.root, one.live)
        if begun := journalled.begun(PipelinePromotionPlan, store, one.live, VERB, command):
            return PipelinePromotePlan(
                VERB, query, begun.steps, ("finishing an interrupted promotion",),
                name, pairs, checks, command, (), begun,
            )  # fmt: skip
    alone = [
        promote_plan.plan(store, pair.fork, into=pair.live, checks=checks, has_readers=True)
        for pair in pairs
    ]
    rollback_refusals.running(store, [pair.live for pair in pairs])
    return PipelinePromotePlan(
        verb=VERB,
        query=query,
        steps=tuple(step_of(one.query, step) for one in alone for step in one.steps),
        warnings=tuple(dict.fromkeys(note for one in alone for note in one.warnings)),
        name=name,
        pairs=pairs,
        checks=checks,
        command=command,
        bases=tuple(
            (one, plan_basis.read_but_savepoints(store, one))
            for pair in pairs
            for one in (pair.live, pair.fork)
        ),
    )


@recorded
def execute(
    plan: PipelinePromotePlan, store: Store, *, wait: timedelta = _WAIT, progress: Progress = silent
) -> PipelinePromoted:
    """Promote; goes on where an earlier attempt was killed.

    Args:
        wait: How long to wait for a run to pause, and then to continue.

    Raises:
        CheckFailedError: If a fork must not take over.
        LockedError: If another verb has one of them.
        StalePlanError: If one of them has begun another generation since the plan.
        SavepointsError: If one of them fails on its way to an equal cut.
    """
    started = time.monotonic()
    if plan.begun is not None:
        return finish(plan.begun, store, wait=wait, progress=progress)
    with standstill.leases(store, plan.forks, VERB) as held:
        for one in plan.forks:
            journal.refuse_unfinished(store.root, one)
        _refuse_stale(plan, store)
        ahead = EqualCuts(store, bindings.complete(store), LATEST, held, progress)
        for one in plan.forks:
            ahead.catch_up(one)
        faults.reach(f"{VERB}.caught_up")
        running = rollback_refusals.running(store, plan.live)
        with standstill.paused(
            store, running, reason=_reason(plan.query, plan.name), wait=wait, progress=progress
        ):
            faults.reach(f"{VERB}.paused")
            with standstill.leases(store, plan.live, VERB) as live:
                _refuse_stale(plan, store)
                for one in plan.live:
                    journal.refuse_unfinished(store.root, one)
                settings = bindings.complete(store)
                every = {**held, **live}
                EqualCuts(store, settings, LATEST, every, progress).meet(plan.pairs)
                faults.reach(f"{VERB}.met")
                found = _check(plan, store, progress)
                faults.reach(f"{VERB}.checked")
                moving = pipeline_promotion.plan(
                    store,
                    plan.pairs,
                    query=plan.query,
                    command=plan.command,
                    operation_id=new_id("op", utc_now()),
                    paused=running,
                )
                pipeline_promotion.carry_out(moving, store, every, progress=progress)
    return _promoted(moving, store, started, found)


def finish(
    begun: PipelinePromotionPlan,
    store: Store,
    *,
    wait: timedelta = _WAIT,
    progress: Progress = silent,
) -> PipelinePromoted:
    """Finish the journalled part of a promotion that was interrupted."""
    started = time.monotonic()
    name = begun.forks[0].removeprefix(fork_name(begun.queries[0], ""))
    reason = _reason(begun.query, name)
    with (
        standstill.paused(store, begun.paused, reason=reason, wait=wait, progress=progress),
        standstill.leases(store, [*begun.queries, *begun.forks], VERB) as held,
    ):
        pipeline_promotion.carry_out(begun, store, held, progress=progress)
    return _promoted(begun, store, started, ())


def _check(plan: PipelinePromotePlan, store: Store, progress: Progress) -> tuple[Check, ...]:
    if not plan.checks:
        return ()
    current = store.generations.current
    found = promote_checks.of_pairs(
        store,
        [(current(one.live), current(one.fork)) for one in plan.pairs],
        settings=bindings.complete(store),
        progress=progress,
    )
    promote_checks.refuse_failed(
        found,
        f"the forks {plan.name} cannot take over from {', '.join(plan.live)}",
        hint=f"see how they differ: savepoints pipeline compare {plan.query} {plan.name}",
        query=plan.query,
    )
    return found


def _refuse_stale(plan: PipelinePromotePlan, store: Store) -> None:
    for query, basis in plan.bases:
        plan_basis.refuse_changed(store, query, VERB, basis)


def _promoted(
    moved: PipelinePromotionPlan, store: Store, started: float, checks: tuple[Check, ...]
) -> PipelinePromoted:
    seconds = time.monotonic() - started
    queries = bindings.complete(store).queries
    return PipelinePromoted(
        operation_id=moved.operation_id,
        query=moved.query,
        members=tuple(
            PipelineMemberPromoted(
                **generation_change.summary(one.promotion, seconds),
                fork=one.promotion.fork,
                safety_id=one.promotion.safety_id,
                application=queries[one.query].app,
            )
            for one in moved.members
        ),
        checks=checks,
        seconds=seconds,
    )


def _command(query: str, name: str, *, checks: bool) -> str:
    words = ["savepoints", *VERB.split(), query, name]
    return " ".join([*words, *([] if checks else ["--no-checks"]), "--yes"])


def _reason(query: str, name: str) -> str:
    """Return why the runs are paused, by which a pause that was killed is known as one's own."""
    return f"{VERB} {query} {name}"
