"""Running a generation of a query to exact ends, as two that are compared or exchanged need it."""

from __future__ import annotations

from collections.abc import Callable

from savepoints.checkpoint import position
from savepoints.checkpoint.position import CheckpointPosition
from savepoints.config.settings import Settings
from savepoints.errors import NoCommittedBatchError
from savepoints.io import Location
from savepoints.model import Generation
from savepoints.operations.fork.verdict import RunCost
from savepoints.operations.rollback.run_to_point import RestoredQuery
from savepoints.plan import Progress
from savepoints.runtime import compatibility
from savepoints.runtime.archive_of import archives_of
from savepoints.store.batch_log import Recorder
from savepoints.store.root import Store


def position_of(generation: Generation) -> CheckpointPosition:
    """Return where a generation stands that is to be run to equal ends with another.

    Raises:
        NoCommittedBatchError: If it has not committed a batch.
    """
    found = position.read(Location.of(generation.checkpoint))
    if found.committed is None:
        raise NoCommittedBatchError(
            f"{generation.query} has no committed batch, so its position is unknown",
            hint=f"run the query first: savepoints run {generation.query} --until latest",
            query=generation.query,
        )
    return found


def to(
    ends: str,
    generation: Generation,
    store: Store,
    *,
    settings: Settings,
    check: Callable[[], None],
    progress: Progress,
) -> RunCost | None:
    """Run a generation to exactly there; run again after a crash, it goes on.

    Args:
        ends: Offsets or positions in tables, as `RestoredQuery.run_to` takes them.
        settings: Completed.
        check: Raises when the lease was lost.

    Returns:
        What it cost, None if it was there already.

    Raises:
        NotAlignedError: If a topic was deleted and recreated since the generation began.
        UsageError: If it has read more already.
        SavepointsError: If the query fails.
    """
    archives = archives_of(settings, generation.query)
    compatibility.require_same_topics(store, generation, settings.kafka, progress, archives)
    query = RestoredQuery(
        query=generation.query,
        app=settings.queries[generation.query].app,
        settings=settings,
        generation=generation.generation,
        checkpoint=Location.of(generation.checkpoint),
        store=store,
        progress=progress,
    )
    place = query.query, query.generation, query.checkpoint
    with Recorder(store.root, *place, retained=settings.spark.retained_batches) as recorder:
        ran = query.run_to(ends, check=check, committed=recorder.committed)
    return RunCost.of(ran) if ran.batches else None
