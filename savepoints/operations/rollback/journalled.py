"""Operations of several steps, kept in the journal: killed anywhere, one is finished or undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from savepoints.errors import SavepointsError, UnfinishedOperationError, UsageError
from savepoints.json_values import from_json
from savepoints.moments import rfc3339, utc_now
from savepoints.plan import Plan
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Journal, Operation
from savepoints.store.root import Store
from savepoints.store.tables import catalog

P = TypeVar("P", bound="JournalledPlan")


@dataclass(frozen=True, kw_only=True)
class JournalledPlan(Plan):
    """What an operation of several steps is going to do.

    Attributes:
        command: How to do it again as a command line, which also finishes it after a crash.
        operation_id: Id of the operation, as in the journal and in what it writes.
        resumed: The plan was begun before and is continued.
    """

    command: str
    operation_id: str
    resumed: bool = False

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read a plan from the journal, to resume it."""
        return from_json(cls, {**data, "resumed": True})


def begun(kind: type[P], store: Store, query: str, verb: str, command: str) -> P | None:
    """Return the plan of the same command that was interrupted, None when nothing was."""
    operation = journal.unfinished(store.root, query)
    if operation is None:
        return None
    is_same = operation.verb == verb and operation.plan["command"] == command
    if is_same and journal.UNDOING not in operation.done:
        return kind.from_json(operation.plan)
    raise journal.refusal(store.root, operation)


def relative(name: str) -> str | None:
    """Return how a savepoint is named if it may be another one later; None for an id or a tag."""
    return name if catalog.is_relative(name) else None


def asked_for(store: Store, query: str, name: str) -> str | None:
    """Return the savepoint of an interrupted operation that was asked for by the same name.

    `latest`, `latest~1` and `@TIME` come to mean another one: with the operation's own safety
    savepoint and generation, and with what the query saves as it runs.
    """
    operation = journal.unfinished(store.root, query) if catalog.is_relative(name) else None
    if operation is None or operation.plan.get("named") != name:
        return None
    return str(operation.plan["savepoint_id"])


def same_as_begun(plan: P, store: Store, given: Mapping[str, object]) -> P:
    """Return a plan that was interrupted, if it was begun with what is given now.

    Args:
        given: Fields of it that were given now; None for what was not.
    """
    other = [
        f"{name.replace('_', ' ')} {getattr(plan, name)}"
        for name, value in given.items()
        if value is not None and value != getattr(plan, name)
    ]
    if other:
        raise begun_otherwise(plan, store, f"with other options ({', '.join(other)})")
    return plan


def begun_otherwise(plan: JournalledPlan, store: Store, how: str) -> UsageError:
    """Return the refusal of an interrupted operation that is not what was asked for now."""
    return UsageError(
        f"the {plan.verb} operation {plan.operation_id} was interrupted; it was started {how}, and "
        "has to be ended first",
        hint=reopen(plan, store).operation.ways_out(
            store.root,
            "finish it with the options that it was started with: savepoints operations resume "
            f"{plan.operation_id}",
        ),
        operation=plan.operation_id,
    )


@contextmanager
def left_unfinished(plan: JournalledPlan, log: Journal) -> Iterator[None]:
    """Let an error within say how the operation is finished, if a generation has begun by then."""
    try:
        yield
    except SavepointsError as error:
        begun = [f"generation {it} of {query}" for query, it in log.operation.generations_begun]
        if not begun:
            raise
        raise type(error)(
            f"{' and '.join(begun)} {'have' if begun[1:] else 'has'} begun, but the {plan.verb} "
            f"operation {plan.operation_id} is not finished: {error.message}",
            hint=f"{error.hint}; then finish it: {plan.command}" if error.hint else plan.command,
            **{**error.details, "operation": plan.operation_id},
        ) from error


def begin(plan: JournalledPlan, store: Store) -> Journal:
    """Begin the journal of an operation, before its first step."""
    begun_at = rfc3339(utc_now())
    return Journal.begin(
        store.root,
        Operation(plan.operation_id, plan.verb, plan.query, plan.to_json(), plan.command, begun_at),
    )


def begin_or_resume(
    plan: JournalledPlan, store: Store, refuse_stale: Callable[[], None]
) -> Journal:
    """Return the journal in which the next steps are recorded; the caller holds the lease."""
    # The plan was made without the lease, so the journal is asked again: another process may have
    # begun the same plan since (it is resumed here), or finished one that was to be resumed.
    if not plan.resumed and journal.unfinished(store.root, plan.query) is None:
        refuse_stale()
        return begin(plan, store)
    log = reopen(plan, store)
    if log.is_done(journal.UNDOING):
        raise journal.refusal(store.root, log.operation)
    return log


def reopen(plan: JournalledPlan, store: Store) -> Journal:
    """Return the journal of an operation that was interrupted."""
    operation = journal.unfinished(store.root, plan.query)
    if operation is None:
        raise UnfinishedOperationError(
            f"the {plan.verb} operation {plan.operation_id} has since been finished by another "
            "process",
            hint=f"see the result: savepoints operations list --query {plan.query}",
            operation=plan.operation_id,
        )
    if operation.id != plan.operation_id:
        raise journal.refusal(store.root, operation)
    return Journal(store.root, operation)
