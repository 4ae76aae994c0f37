"""Operations with the steps of their journals, and events: who did what, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from savepoints.moments import parse_rfc3339
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Operation
from savepoints.store.tables.events import Event
from savepoints.texts import moment_text, span_text
from savepoints.ui.facts import StoreFacts

# Of what is older a count is given, and the command that lists it.
MOST_EVENTS, MOST_OPERATIONS = 50, 30


@dataclass(frozen=True)
class StepRow:
    """A step of an operation. `after` is how long after the beginning it was done, if it was."""

    name: str
    what: str
    after: str


@dataclass(frozen=True)
class OperationRow:
    """An operation with its steps.

    Attributes:
        undid: Id of the operation that it took back, empty without one.
        undone_by: Id of the operation that took it back after it was finished, likewise.
    """

    id: str
    verb: str
    query: str
    begun: str
    took: str
    state: str
    command: str
    steps: tuple[StepRow, ...]
    undid: str
    undone_by: str


@dataclass(frozen=True)
class Log:
    """What was done to a store.

    Attributes:
        older_operations: How many are not listed.
        older_events: Likewise.
    """

    operations: tuple[OperationRow, ...]
    older_operations: int
    events: tuple[Event, ...]
    older_events: int


def log(facts: StoreFacts) -> Log:
    """List operations and events, the newest first; all that are unfinished."""
    operations = [
        one
        for one in facts.operations
        if one.state == "unfinished" or facts.shows(parse_rfc3339(one.begun_at))
    ]
    kept = [
        one
        for at, one in enumerate(operations)
        if at < MOST_OPERATIONS or one.state == "unfinished"
    ]
    events = [one for one in facts.events if facts.shows(one.at)]
    undone = journal.undone_by(facts.operations)
    undid = {by: of for of, by in undone.items()}
    return Log(
        tuple(_operation(one, undid.get(one.id, ""), undone.get(one.id, "")) for one in kept),
        len(operations) - len(kept),
        tuple(events[:MOST_EVENTS]),
        max(0, len(events) - MOST_EVENTS),
    )


def _operation(one: Operation, undid: str, undone_by: str) -> OperationRow:
    begun = parse_rfc3339(one.begun_at)
    end = parse_rfc3339(one.finished_at) if one.finished_at else None
    planned = {step["name"]: str(step["what"]) for step in one.plan.get("steps", ())}
    # What was done without having been planned, such as undoing, comes last.
    names = [*planned, *(name for name in one.done if name not in planned)]
    return OperationRow(
        one.id,
        one.verb,
        one.query,
        moment_text(begun),
        span_text(end - begun) if end else "-",
        one.state,
        one.command,
        tuple(
            StepRow(
                name,
                planned.get(name, ""),
                f"after {span_text(parse_rfc3339(str(one.done[name]['at'])) - begun)}"
                if "at" in one.done.get(name, {})
                else "not done",
            )
            for name in names
        ),
        undid,
        undone_by,
    )
