"""An operation that begins the next generations of several queries together."""

from __future__ import annotations

from dataclasses import dataclass

from savepoints.operations.rollback.generation_change import TransitionPlan
from savepoints.operations.rollback.journalled import JournalledPlan
from savepoints.plan import Step


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
