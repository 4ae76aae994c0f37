"""The last operation on a query: what `undo`, and `--undo` of a verb, take back."""

from __future__ import annotations

from savepoints.errors import NotFoundError
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Operation
from savepoints.store.root import Store

# The verbs that take a safety savepoint of the query; a fork is another query, and an append has
# changed nothing that was there.
_UNDONE = frozenset({"rollback", "reset", "promote", "merge"})


def require(store: Store, query: str, verb: str | None = None) -> Operation:
    """Return the last operation; `rollback` to `BeforeLast` undoes it.

    Raises:
        NotFoundError: If the last operation on the query was another one.
    """
    wanted = _UNDONE if verb is None else {verb}
    done = [
        one
        for one in journal.all_operations(store.root)
        if one.query == query and one.state == "finished"
    ]
    if done and done[0].verb in wanted:
        return done[0]
    what = (
        f"the last operation was the {done[0].verb} {done[0].id}"
        if done
        else "no operation has finished"
    )
    raise NotFoundError(
        f"{query} has no {verb or 'operation'} to undo: {what}",
        hint=f"list its operations: savepoints operations list --query {query}",
        query=query,
    )
