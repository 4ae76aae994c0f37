"""Running a restored checkpoint on to exact positions, before its generation begins."""

from __future__ import annotations

from collections.abc import Callable

from savepoints.checkpoint import position
from savepoints.checkpoint.logs.kafka_position import by_partition, kafka_offsets
from savepoints.checkpoint.position import CheckpointPosition
from savepoints.config.settings import Settings
from savepoints.errors import UsageError
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.plan import Progress, silent
from savepoints.runtime import app as apps
from savepoints.runtime import compatibility
from savepoints.runtime.archive_of import archives_of, runner_of
from savepoints.runtime.bounded import table_ends
from savepoints.runtime.bounded.bounded_run import KafkaEnd, Limits
from savepoints.runtime.bounded.bounded_tables import TableEnd
from savepoints.runtime.inputs import Inputs
from savepoints.runtime.runner import Ran, Runner
from savepoints.sources.combined import availability
from savepoints.store.root import Store


def application_of(
    query: str, settings: Settings, app: str | None = None, *, rewind_outputs: bool
) -> str:
    """Return what runs a query on to exact ends, having refused what would not be exact.

    Args:
        app: What runs it, if not the application in the settings.
    """
    bound = settings.queries.get(query)
    application = app or (bound.app if bound else None)
    if bound is None or application is None:
        raise UsageError(
            f"no savepoint lies exactly at the point, so {query} has to run to reach it, but "
            f"{query} is not in the settings",
            hint="use the newest savepoint before that time (--at without --exact), or choose a "
            f"savepoint: savepoints list --query {query}; to reach the point itself, which "
            f"requires an App, add a section [queries.{query}] with app, checkpoints and outputs "
            "to the settings",
            query=query,
        )
    if not rewind_outputs:
        raise UsageError(
            f"no savepoint lies exactly at the point, so {query} has to run to reach it; the run "
            "writes to the query's outputs, which must be rewound first",
            hint=f"omit --outputs none, or choose a savepoint: savepoints list --query {query}",
            query=query,
        )
    apps.load_for(query, bound.model_copy(update={"app": application}))
    return application


def to(
    ends: str,
    *,
    query: str,
    app: str,
    settings: Settings,
    generation: int,
    checkpoint: Location,
    store: Store,
    begun_from: Savepoint | None = None,
    check: Callable[[], None] = lambda: None,
    committed: Callable[[int | None], None] = lambda _batch: None,
    progress: Progress = silent,
) -> Ran:
    """Run a checkpoint on to exactly these positions; run again after a crash, it goes on.

    Args:
        check: Called all the time; raises when the run must not continue.
        committed: Told, as often, the newest batch that this run has committed.
    """
    runner = bind(
        query,
        app,
        settings,
        generation=generation,
        checkpoint=checkpoint,
        store=store,
        begun_from=begun_from,
        progress=progress,
    )
    progress(f"running {app} to {what(ends)}")
    tables = table_ends.parse(ends)
    end: KafkaEnd | TableEnd
    if tables is not None:
        end = TableEnd.of(tables, settings.queries[query].tables.values())
    else:
        wanted = kafka_offsets(ends) or {}
        archives = archives_of(settings, query)
        end = KafkaEnd(wanted, availability.ranges(list(wanted), settings.kafka, archives))

    def look() -> None:
        check()
        committed(runner.last_batch)

    with store.scratch() as scratch:
        return end.run(runner, scratch=scratch, limits=Limits(), check=look, progress=progress)


def bind(
    query: str,
    app: str,
    settings: Settings,
    *,
    generation: int,
    checkpoint: Location,
    store: Store,
    begun_from: Savepoint | None,
    progress: Progress,
) -> Runner:
    """Start Spark and bind a program to a restored checkpoint, having compared the two.

    Args:
        begun_from: The savepoint that the generation begins from, where it has not begun yet.
    """
    from savepoints.spark.session import session

    progress("starting Spark")
    spark = session(settings, f"savepoints run to a point of {query}")
    bound = settings.queries[query].model_copy(update={"app": app})
    application = apps.load_for(query, bound)
    runner = runner_of(
        spark,
        store,
        Inputs(application, bound, settings.kafka),
        generation=generation,
        checkpoint=checkpoint,
        position=position.read(checkpoint).offsets,
        begun_from=begun_from,
    )
    compatibility.ProgramLayout(store, progress).require(
        runner, checkpoint, app, begun_from.id if begun_from else None
    )
    return runner


def what(ends: str) -> str:
    """Return ends as a person reads them."""
    tables = table_ends.parse(ends)
    if tables is None:
        return ends
    read = (f"version {one.version - 1} of table {one.table_id}" for one in tables.values())
    return ", ".join(read)


def is_beyond(now: CheckpointPosition, ends: str) -> bool:
    """Return True if a checkpoint has read more than up to some ends."""
    tables = table_ends.parse(ends)
    if tables is not None:
        return not TableEnd(tables, ()).is_within(now.positions)
    wanted = kafka_offsets(ends) or {}
    return any(
        offset > wanted.get(topic, {}).get(partition, -1)
        for topic, partition, offset in by_partition(now.offsets)
    )
