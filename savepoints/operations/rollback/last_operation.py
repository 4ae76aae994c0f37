"""The last operation on a query: what `undo`, and `--undo` of a verb, take back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from savepoints.errors import NotFoundError
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Operation
from savepoints.store.root import Store

# The verbs that take a safety savepoint of the query; a fork is another query, and an append has
# changed nothing that was there.
_UNDONE = frozenset(
    {"rollback", "reset", "promote", "merge", "cascade", "pipeline rollback", "pipeline promote"}
)

# Those with which a query begins, so that there is nothing of it to go back to.
_FIRST = frozenset({"fork", "pipeline fork", "seed", "bootstrap"})


def require(store: Store, query: str, verb: str | None = None) -> Operation:
    """Return the last operation; `rollback` to `BeforeLast` undoes it.

    Raises:
        QueryNotFoundError: If the store does not know the query.
        NotFoundError: If no operation has finished, or the last one cannot be undone.
    """
    wanted = _UNDONE if verb is None else {verb}
    done = [
        one
        for one in journal.all_operations(store.root)
        if one.is_on(query) and one.state == "finished"
    ]
    if done and done[0].verb in wanted:
        return done[0]
    if done:
        refuse_first(done[0], query)
    elif not store.generations.all(query):
        raise store.generations.unknown(query)
    of = f"a {verb} operation on {query}" if verb else f"the last operation on {query}"
    why = (
        f"undo does not work for the {done[0].verb} operation {done[0].id}"
        if done
        else "no operation has finished"
    )
    hint = f"list the operations on the query: savepoints operations list --query {query}"
    if verb and done:
        why = f"the last operation was {done[0].id} ({done[0].verb})"
        if is_undone_alone(done[0]):
            hint = f"undo that one, whatever it was: savepoints undo {query}; or {hint}"
    raise NotFoundError(
        f"cannot undo {of}: {why}",
        hint=hint,
        query=query,
    )


def is_undone_alone(done: Operation) -> bool:
    """Return True if `undo` takes an operation back that was the last one on its query."""
    return done.verb in _UNDONE and not done.is_undo


def way_back(verb: str, query: str) -> str:
    """Say how an operation is taken back once it is finished; nothing if it is not by itself."""
    if verb in _FIRST:
        return f", then end the query, which deletes nothing: savepoints end {query}"
    return f", then undo it: savepoints undo {query}" if verb in _UNDONE else ""


def refuse_first(last: Operation, query: str) -> None:
    """Refuse to take back the operation with which a query has begun."""
    if last.verb in _FIRST:
        raise NotFoundError(
            f"cannot undo the last operation on {query}: the query began with it ({last.verb} "
            f"{last.id}), so there is no earlier state to return to",
            hint=f"end the query, which deletes nothing: savepoints end {query}; or roll it back "
            f"to one of its savepoints: savepoints list --query {query}",
            query=query,
            operation=last.id,
        )


def changed_together(last: Operation, known: Iterable[Operation]) -> Mapping[str, str]:
    """Return what changed several queries together: by query, the id of its part of the operation.

    A merge and the corrections that readers of its tables took over from it have changed them
    together, whichever of these was the last operation on one of them.

    Args:
        known: All of the store.

    Returns:
        Writers before readers; empty for an operation on one query.
    """
    if queries := last.plan.get("queries"):
        return dict.fromkeys(queries, last.id)
    merge = last.follows or last.id
    parts = [one for one in known if merge in (one.id, one.follows) and not one.undone]
    # A reader announces its part before the merge begins.
    parts.sort(key=lambda one: (one.follows is not None, one.begun_at, one.id))
    return {one.query: one.id for one in parts} if len(parts) > 1 else {}
