"""An operation that begins the next generations of several queries together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from savepoints.errors import SavepointsError
from savepoints.operations.rollback import generation_change, journalled, taking_back
from savepoints.operations.rollback.generation_change import TransitionPlan
from savepoints.operations.rollback.journalled import JournalledPlan
from savepoints.plan import Progress, Step
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Journal
from savepoints.store.root import Store

T = TypeVar("T")


def step_of(query: str, step: Step) -> Step:
    """Return a step of one of the queries as a step of the whole, under the query's name."""
    return Step(f"{query}.{step.name}", f"{query}: {step.what}")


@dataclass(frozen=True, kw_only=True)
class JointPlan(JournalledPlan):
    """What such an operation is going to do; each query has its part of the one journal.

    Attributes:
        queries: Names of the queries, writers before readers.
        paused: Those that are running and will be paused for it.
    """

    queries: tuple[str, ...]
    paused: tuple[str, ...] = ()

    @property
    def transitions(self) -> tuple[TransitionPlan, ...]:
        """What is done to each query."""
        raise NotImplementedError

    def has_changed_tables(self) -> bool:
        """Return True if rows of a table were exchanged: its readers cannot go on as they were."""
        raise NotImplementedError


def carry_out(plan: JointPlan, store: Store, move: Callable[[Journal], T], progress: Progress) -> T:
    """Begin or resume an operation whose leases are held, and do to the queries what it does."""
    log = journalled.begin_or_resume(plan, store, lambda: _refuse_changed(plan, store))
    if plan.resumed or log.operation.done:
        for one in plan.transitions:
            generation_change.refuse_gone_on(one, log.part(one.query))
    try:
        with journalled.left_unfinished(plan, log):
            moved = move(log)
    except SavepointsError:
        if log.operation.undone:
            # One could not even begin, and nobody was touched yet.
            discard(plan, store, progress)
        raise
    log.finish()
    return moved


def discard(plan: JointPlan, store: Store, progress: Progress) -> None:
    """Remove the checkpoints that an operation wrote whose generations did not begin."""
    for one in plan.transitions:
        taking_back.discard(one, store, progress)


def _refuse_changed(plan: JointPlan, store: Store) -> None:
    """Refuse to begin what was planned from something else than is there now."""
    for one in plan.transitions:
        journal.refuse_unfinished(store.root, one.query)
        generation_change.refuse_changed(one, store)
