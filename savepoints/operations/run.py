"""`run`: run the current generation of a query, with periodic savepoints."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from savepoints import app as apps
from savepoints.checkpoint import state_layout
from savepoints.checkpoint.layout import committed_batches
from savepoints.config import QuerySettings, Settings
from savepoints.errors import NoCommittedBatchError, UsageError
from savepoints.io import Location
from savepoints.model import FORMS, Form, Generation, Savepoint
from savepoints.operations import create, periodic
from savepoints.operations.plan import Progress, silent
from savepoints.operations.recorded import recording
from savepoints.operations.rollback import checkpoint_of
from savepoints.runner import Ran, Runner, stopped_by_signals
from savepoints.schedule import parse_schedule
from savepoints.store import journal, lease
from savepoints.store.root import Store
from savepoints.ticker import Ticker


def run(
    store: Store,
    query: str,
    *,
    settings: Settings,
    app: str | None = None,
    every: str | None = None,
    until_latest: bool = False,
    forms: Sequence[Form] = FORMS,
    final_savepoint: bool = True,
    accept_state_names: bool = False,
    progress: Progress = silent,
) -> tuple[Ran, Savepoint | None]:
    """Run the query until it is stopped by a signal, or has caught up; then take a savepoint.

    Args:
        store: Where the query's generations and savepoints are.
        query: Its name in the settings.
        settings: What the application is bound to.
        app: An application to run instead of the one in the settings, such as a fixed version.
        every: Interval or cron expression of periodic savepoints, instead of the one in the
            settings.
        until_latest: End when everything is read that the sources had at the start.
        forms: Forms of the savepoints.
        final_savepoint: Whether to take one at the end.
        accept_state_names: Go on with restored state whose fields the program calls otherwise;
            gives up that aggregates of one type that changed places are found.
        progress: Told what happens.

    Returns:
        What was run, and the savepoint taken at the end; None when nothing has been committed yet.

    Raises:
        UsageError: If the query is not in the settings, or the application has another name.
        QueryRunningError: If it runs already.
        UnfinishedOperationError: If an operation on it was interrupted.
        LayoutChangedError: If fields of the restored state have other names in the program.
        SavepointsError: If the query fails.
    """
    bound = _bound(settings, query, app)
    when = every or bound.every
    schedule = parse_schedule(when) if when else None
    application = apps.load(bound.app)
    if application.name != query:
        raise UsageError(
            f"{bound.app} is the application {application.name!r}, not {query!r}",
            hint=f"savepoints run {application.name}",
        )
    with (
        lease.hold(store.root, query, "run") as held,
        recording(store, "run", query=query, parameters={"app": bound.app, "every": when}) as noted,
    ):
        journal.refuse_unfinished(store.root, query)
        from savepoints.spark import session

        progress("starting Spark")
        spark = session(settings, f"savepoints run {query}")
        generation = _generation(store, bound, query)

        def save() -> Savepoint:
            taken = create.execute(
                create.plan(store, query=query, settings=settings, forms=forms, app=bound.app),
                store,
                settings=settings,
            )
            progress(f"savepoint {taken.id}: batch {taken.cut.batch_id}")
            return taken

        def take() -> None:
            periodic.take(
                store, query=query, settings=settings, forms=forms, app=bound.app, progress=progress
            )

        runner = Runner(
            spark,
            application,
            bound,
            settings,
            generation=generation.generation,
            checkpoint=Location.of(generation.checkpoint),
        )
        if not accept_state_names and _is_restored(store, generation):
            progress("comparing the program with the state that it goes on with")
            _require_layout(store, runner, generation, bound.app)
        ticker = Ticker(schedule, take, f"savepoints of {query}") if schedule else nullcontext()
        with stopped_by_signals(runner), ticker:
            progress(f"running {bound.app}, generation {generation.generation}")
            ran = runner.run(until_latest=until_latest, check=held.check)
        ended = f"{ran.ended} after {ran.batches} batches, {ran.input_rows} rows"
        progress(ended)
        noted.note(message=ended, rows=ran.input_rows, seconds=ran.seconds)
        try:
            last = save() if final_savepoint else None
        except NoCommittedBatchError:
            last = None
    return ran, last


def _is_restored(store: Store, generation: Generation) -> bool:
    """Say whether a generation has run no batch since it began from a savepoint."""
    if generation.begun_from is None:
        return False
    origin = store.manifest(generation.begun_from).savepoint.cut.batch_id
    return committed_batches(Location.of(generation.checkpoint).list())[-1:] == [origin]


def _require_layout(store: Store, runner: Runner, generation: Generation, app: str) -> None:
    """Compare the program's state layout with the restored one, on empty inputs, by name."""
    with store.scratch() as scratch:
        runner.run_on_nothing(scratch)
        now = state_layout.read(scratch / "checkpoint")
    was = state_layout.read(Location.of(generation.checkpoint))
    state_layout.require_names(was, now, app)


def _bound(settings: Settings, query: str, app: str | None) -> QuerySettings:
    bound = settings.queries.get(query)
    if bound is None:
        raise UsageError(
            f"the query {query!r} is not in the settings",
            hint=f"add a table [queries.{query}] with app, checkpoints and outputs to "
            f"savepoints.toml; it has: {', '.join(settings.queries) or 'none'}",
        )
    return bound if app is None else bound.model_copy(update={"app": app})


def _generation(store: Store, bound: QuerySettings, query: str) -> Generation:
    """Return the current generation; a query that never ran begins its first."""
    current = store.generations.find_current(query)
    if current is not None:
        return current
    number = store.generations.next_number(query)
    checkpoint = checkpoint_of(bound.checkpoints, query, number)
    return store.generations.begin(query, number, checkpoint, by="run")
