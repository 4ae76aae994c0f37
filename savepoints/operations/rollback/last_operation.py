"""What was done to a query last: what `--undo` of a verb takes back."""

from __future__ import annotations

from savepoints.errors import NotFoundError
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Operation
from savepoints.store.root import Store


def require(store: Store, query: str, verb: str) -> Operation:
    """Refuse to undo what was another verb; `rollback` to `BeforeLast` does the rest.

    Raises:
        NotFoundError: If the last thing done to the query was something else.
    """
    done = [
        one
        for one in journal.all_operations(store.root)
        if one.query == query and one.state == "finished"
    ]
    if done and done[0].verb == verb:
        return done[0]
    what = (
        f"the last thing done was the {done[0].verb} {done[0].id}" if done else "nothing was done"
    )
    raise NotFoundError(
        f"{query} has no {verb} to undo: {what}",
        hint=f"see what was done: savepoints operations list --query {query}",
        query=query,
    )
