"""What has moved a query in its sources, so that it is not where an earlier savepoint leads to.

A reset with kept state has, a rollback with `--source`, and one together with the writer of a
topic, which has set it behind what was rolled back there.
"""

from __future__ import annotations

from collections.abc import Iterator

from savepoints.model import Generation, Savepoint
from savepoints.store.lineage import TOGETHER
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Operation
from savepoints.store.root import Store


def since(store: Store, savepoint: Savepoint) -> Iterator[tuple[Generation, Operation | None]]:
    """Return the generations of its query that begin with a move since a savepoint, newest first.

    Returns:
        Each with the operation that began it, as far as the journal has it.
    """
    generations = {(one.query, one.generation): one for one in store.generations.all()}
    at: Generation | None = store.generations.current(savepoint.query)
    if at is None or not (at.begun_from and at.went_on_after(savepoint)):
        return
    begun = journal.by_generation(store.root)
    while at is not None and at.begun_from and at.went_on_after(savepoint):
        by = begun.get((at.query, at.generation))
        together = by.members.get(at.query, {}) if by and at.begun_by == TOGETHER else {}
        if at.begun_by == "reset" or together.get("topic_reads") or (by and by.starts):
            yield at, by
        came = at.origin
        at = None if came is None else generations.get((came.query, came.generation))
