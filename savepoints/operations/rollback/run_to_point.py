"""Running a restored checkpoint on to exact positions, before its generation begins."""

from __future__ import annotations

from collections.abc import Callable

from savepoints.checkpoint import position
from savepoints.config.settings import Settings
from savepoints.errors import UsageError
from savepoints.io import Location
from savepoints.model import Savepoint, kafka_offsets
from savepoints.plan import Progress, silent
from savepoints.runtime import app as apps
from savepoints.runtime import bounded, compatibility
from savepoints.runtime.archive_of import archives_of, runner_of
from savepoints.runtime.inputs import Inputs
from savepoints.runtime.runner import Runner
from savepoints.sources.combined import availability
from savepoints.store.root import Store


def require_possible(
    query: str, settings: Settings, application: str | None, *, rewind_outputs: bool
) -> None:
    """Refuse what could not be run on exactly."""
    if query not in settings.queries or application is None:
        raise UsageError(
            f"reaching a point between two savepoints means running {query}, which is not in the "
            "settings",
            hint=f"add a table [queries.{query}] with app, checkpoints and outputs, or choose "
            f"a savepoint: savepoints list --query {query}",
            query=query,
        )
    if not rewind_outputs:
        raise UsageError(
            "reaching that point means running the query, which writes to its outputs, so they "
            "must be rewound first",
            hint="omit --outputs, or choose a savepoint",
            query=query,
        )
    apps.load_for(query, settings.queries[query].model_copy(update={"app": application}))


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
    progress: Progress = silent,
) -> None:
    """Run a checkpoint on to exactly these positions; run again after a crash, it goes on.

    Args:
        ends: Where the topics are to be, as Spark's JSON.
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
    progress(f"running {app} to {ends}")
    wanted = kafka_offsets(ends) or {}
    with store.scratch() as scratch:
        bounded.run_to(
            runner,
            wanted,
            availability.ranges(list(wanted), settings.kafka, archives_of(settings, query)),
            scratch=scratch,
            check=check,
            progress=progress,
        )


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
        app: What runs the query, as `package.module:attribute`.
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
    progress("comparing the program with the restored state")
    compatibility.require_layout(store, runner, checkpoint, app)
    return runner
