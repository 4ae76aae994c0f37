"""The savepoint of where a query ended."""

from __future__ import annotations

from dataclasses import replace

from savepoints.checkpoint import position
from savepoints.errors import NoCommittedBatchError
from savepoints.io import Location
from savepoints.model import Generation, Savepoint
from savepoints.operations.savepoint import create, history
from savepoints.operations.savepoint.create import Saved
from savepoints.plan import Progress
from savepoints.store.root import Store


def savepoint(
    store: Store, generation: Generation, saved: Saved, *, moved: bool, progress: Progress
) -> Savepoint | None:
    """Return a savepoint of the newest batch of a generation that nobody runs.

    Args:
        saved: What of the generation's query and checkpoint, whichever it names.
        moved: Whether it has run a batch since it was last saved.

    Returns:
        One that is there already, a new one, or None when nothing has been committed yet.
    """
    if not moved:
        batch = position.read(Location.of(generation.checkpoint)).committed
        there = history.saved(store, generation.query, generation.generation, batch, saved.forms)
        # Taken while another batch ran, it does not say where the topics end that the query writes.
        if there is not None and all(one.is_exact for one in there.output_topics):
            return there
    taken = take(store, replace(saved, query=generation.query, checkpoint=None))
    if taken is not None:
        progress(f"took the savepoint {taken.id} of batch {taken.cut.batch_id}")
    return taken


def take(store: Store, saved: Saved) -> Savepoint | None:
    """Take a savepoint of the newest batch of a query, or of a checkpoint that has none yet.

    Returns:
        None when nothing has been committed yet.
    """
    try:
        plan = create.plan(store, **vars(saved), kind="final")
    except NoCommittedBatchError:
        return None
    return create.execute(plan, store)
