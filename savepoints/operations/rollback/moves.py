"""What has moved a query in its sources, so that it is not where an earlier savepoint leads to.

A reset with kept state has, a rollback with `--source`, one together with the writer of a topic,
which has set it behind what was rolled back there, and a merge into the writer of its table, whose
correction it took over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote

from savepoints.checkpoint.logs.kafka_position import lowest_offsets
from savepoints.model import Generation, Savepoint
from savepoints.store.lineage import CASCADE, TOGETHER, goes_elsewhere
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Operation
from savepoints.store.root import Store


@dataclass(frozen=True)
class Moved:
    """What has moved a query in its sources as it began a generation, with its state kept.

    Attributes:
        by: The operation; None if its journal is gone.
    """

    generation: Generation
    by: Operation | None

    def __str__(self) -> str:
        """Name it."""
        return f"the {self.generation.begun_by} that began generation {self.generation.generation}"


def since(store: Store, savepoint: Savepoint) -> list[Moved]:
    """Return what has moved a query in its sources since a savepoint that it comes from.

    Returns:
        The newest first.
    """
    generations = {one.place: one for one in store.generations.all()}
    at: Generation | None = store.generations.current(savepoint.query)
    if at is None or not (at.begun_from and at.went_on_after(savepoint.created_at)):
        return []
    begun, found = journal.by_generation(store.root), []
    while at is not None and at.begun_from and at.went_on_after(savepoint.created_at):
        moved = Moved(at, begun.get(at.place))
        if _is_move(moved, savepoint):
            found.append(moved)
        came = at.origin
        at = None if came is None else generations.get(came.place)
    return found


def _is_move(one: Moved, savepoint: Savepoint) -> bool:
    if one.by is None and one.generation.begun_by == TOGETHER:
        # It may have been set behind something in a topic.
        return bool(lowest_offsets(savepoint.cut.offsets))
    return one.generation.begun_by == CASCADE or goes_elsewhere(one.generation, one.by)


def way_back(savepoint: Savepoint, moves: Sequence[Moved], *options: str) -> str:
    """Say how to go to a savepoint from before moves, and how to make these again from there.

    Args:
        moves: The newest first.
        options: Of the rollback.
    """
    first = moves[-1]
    starts = first.by.starts if first.by and first.generation.begun_from == savepoint.id else ()
    sources = (f"--source {quote(one)}" for one in starts)
    back = " ".join(["savepoints rollback", savepoint.id, *options, *sources])
    later = list(reversed(moves[:-1] if starts else moves))
    # An undo cannot be done again, nor a merge that the store knows, nor a rollback to a savepoint
    # that is damaged.
    if not later or any(
        one.by is None or one.by.is_undo or one.by.follows or one.by.starts for one in later
    ):
        return back
    again = ", ".join(one.by.command for one in later if one.by)
    return f"{back}; then, before it runs, do that again: {again}"
