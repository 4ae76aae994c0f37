"""Running a restored checkpoint on to exact positions, before its generation begins."""

from __future__ import annotations

from savepoints import app as apps
from savepoints.config import Settings
from savepoints.errors import UsageError
from savepoints.io import Location
from savepoints.model import kafka_offsets
from savepoints.operations import bounded
from savepoints.operations.plan import Progress, silent
from savepoints.runner import Runner
from savepoints.sources import kafka
from savepoints.store.root import Store


def require_possible(
    query: str, settings: Settings, application: str | None, *, rewind_outputs: bool
) -> None:
    """Refuse what could not be run on exactly.

    Raises:
        UsageError: If the query is not in the settings, or its outputs stay as they are.
    """
    if query not in settings.queries or application is None:
        raise UsageError(
            f"going to a point between two savepoints runs {query}, which is not in the settings",
            hint=f"add a table [queries.{query}] with app, checkpoints and outputs, or go to a "
            f"savepoint: savepoints list --query {query}",
            query=query,
        )
    if not rewind_outputs:
        raise UsageError(
            "running on writes the outputs, which must have been taken back before",
            hint="leave --outputs out, or go to a savepoint",
            query=query,
        )


def to(
    ends: str,
    *,
    query: str,
    app: str,
    settings: Settings,
    generation: int,
    checkpoint: Location,
    store: Store,
    progress: Progress = silent,
) -> None:
    """Run a checkpoint on to exactly these positions; run again after a crash, it goes on.

    Args:
        ends: Where the topics are to be, as Spark's JSON.
        query: The query.
        app: What runs.
        settings: What it is bound to.
        generation: Number of the generation, under which the outputs are written.
        checkpoint: The checkpoint.
        store: Where there is room for trying out.
        progress: Told what happens.

    Raises:
        SourceDataGoneError: If Kafka no longer has the records.
        SavepointsError: If the query fails.
    """
    from savepoints.spark import session

    progress("starting Spark")
    spark = session(settings, f"savepoints run on {query}")
    runner = Runner(
        spark,
        apps.load(app),
        settings.queries[query],
        settings,
        generation=generation,
        checkpoint=checkpoint,
    )
    progress(f"running {app} on to {ends}")
    wanted = kafka_offsets(ends) or {}
    with store.scratch() as scratch:
        bounded.run_to(
            runner,
            wanted,
            kafka.ranges(list(wanted), settings.kafka),
            scratch=scratch,
            progress=progress,
        )
