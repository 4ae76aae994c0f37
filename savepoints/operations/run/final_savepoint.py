"""The savepoint of where a query ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from savepoints.checkpoint import position
from savepoints.errors import NoCommittedBatchError
from savepoints.io import Location
from savepoints.model import Form, Generation, Savepoint
from savepoints.operations.savepoint import create, history
from savepoints.plan import Progress
from savepoints.store.root import Store


def savepoint(
    store: Store,
    generation: Generation,
    *,
    forms: Sequence[Form],
    moved: bool,
    progress: Progress,
    app: str | None = None,
    outputs: Mapping[str, str] | None = None,
    output_topics: Sequence[str] | None = None,
) -> Savepoint | None:
    """Return a savepoint of the newest batch of a generation that nobody runs.

    Returns:
        One that is there already, a new one, or None when nothing has been committed yet.
    """
    if not moved:
        batch = position.read(Location.of(generation.checkpoint)).committed
        there = history.saved(store, generation.query, generation.generation, batch, forms)
        # Taken while another batch ran, it does not say where the topics end that the query writes.
        if there is not None and all(one.is_exact for one in there.output_topics):
            return there
    taken = take(
        store, generation.query, forms=forms, outputs=outputs, output_topics=output_topics, app=app
    )
    if taken is not None:
        progress(f"took the savepoint {taken.id} of batch {taken.cut.batch_id}")
    return taken


def take(
    store: Store,
    query: str,
    *,
    checkpoint: Location | None = None,
    forms: Sequence[Form],
    outputs: Mapping[str, str] | None,
    output_topics: Sequence[str] | None,
    app: str | None = None,
) -> Savepoint | None:
    """Take a savepoint of the newest batch of a query, or of a checkpoint that has none yet.

    Returns:
        None when nothing has been committed yet.
    """
    try:
        plan = create.plan(
            store,
            query=query,
            checkpoint=None if checkpoint is None else str(checkpoint),
            forms=forms,
            outputs=outputs,
            output_topics=output_topics,
            app=app,
            kind="final",
        )
    except NoCommittedBatchError:
        return None
    return create.execute(plan, store)
