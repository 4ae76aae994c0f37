"""What beginning a query from a batch has in common, whether from rows of state or from events.

The query has run nothing yet. Its first generation is made as a whole, and a savepoint of it is
taken at once, so that everything can go back to where it began.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from savepoints.checkpoint import position
from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import NotFoundError, StalePlanError, TargetExistsError
from savepoints.io import Location
from savepoints.model import Form, Savepoint, SavepointKind
from savepoints.operations.rollback import journalled
from savepoints.operations.rollback.generation_change import BegunGeneration, GenerationPlan
from savepoints.operations.rollback.query_context import checkpoint_of
from savepoints.operations.savepoint import create
from savepoints.outputs.delta import batch_version, write
from savepoints.outputs.delta.write import app_id, owner_prefix
from savepoints.outputs.rewind import rewind
from savepoints.plan import Progress, Step
from savepoints.runtime import app as apps
from savepoints.runtime.app import App
from savepoints.runtime.inputs import Inputs
from savepoints.store import bindings
from savepoints.store.locks.journal import Journal
from savepoints.store.root import Store
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SAVED = "savepoint_taken"


@dataclass(frozen=True, kw_only=True)
class BeginningPlan(GenerationPlan):
    """What a verb that begins a query from a batch is going to do.

    Attributes:
        app: The program, as `package.module:attribute`.
        outputs: URI of each output.
        query_id: Spark's id of the new query.
        first_savepoint: Id of the savepoint that is taken where it begins.
        forms: The forms that it has the state in.
    """

    app: str
    outputs: dict[str, str]
    query_id: str
    first_savepoint: str
    forms: tuple[Form, ...]


@dataclass(frozen=True, kw_only=True)
class Begun(BegunGeneration):
    """A query that was begun from a batch.

    Attributes:
        savepoint_id: The savepoint that was taken where it begins.
        batch_id: It continues with the batch after this one.
    """

    batch_id: int


@dataclass(frozen=True)
class NewQuery:
    """A query of the settings that has run nothing yet.

    Attributes:
        generation: Number of the generation to be.
    """

    settings: Settings
    bound: QuerySettings
    inputs: Inputs
    generation: int
    checkpoint: str

    @property
    def outputs(self) -> dict[str, str]:
        """URI of each output."""
        return {name: self.bound.outputs[name] for name in self.inputs.app.outputs}


def find(store: Store, query: str, verb: str) -> NewQuery:
    """Return a query that has run nothing yet.

    Raises:
        UsageError: If the settings do not say what it runs.
        TargetExistsError: If it has run.
    """
    refuse_run(store, query, verb)
    settings = bindings.complete(store)
    bound = settings.bound(query, f"there is no program to {verb}")
    number = store.generations.next_number(query)
    inputs = Inputs(apps.load_for(query, bound), bound, settings.kafka)
    checkpoint = str(checkpoint_of(bound.checkpoints, query, number))
    return NewQuery(settings, bound, inputs, number, checkpoint)


def refuse_run(store: Store, query: str, verb: str) -> None:
    """Refuse a query that has run: its state is not to be replaced."""
    for one in store.generations.all(query):
        now = position.read(Location.of(one.checkpoint))
        if now.committed is None and now.begun is None and one.status == "current":
            continue
        raise TargetExistsError(
            f"the query {query} already has generation {one.generation} (begun by "
            f"{one.begun_by}, checkpoint {one.checkpoint}), but {verb} needs a query that has not "
            "run yet",
            hint="add a query with another name to the settings: [queries.OTHER] with app_name "
            f'= "{query}"; or fork this one: savepoints fork latest NAME --query {query}; or '
            f"start it over with empty state: savepoints reset {query} --to-earliest --state empty",
            query=query,
            generation=one.generation,
        )


def refuse_changed(plan: BeginningPlan, store: Store) -> None:
    """Refuse a plan if the query has run, or got another generation, since it was made."""
    refuse_run(store, plan.query, plan.verb)
    if store.generations.next_number(plan.query) != plan.generation:
        raise StalePlanError(
            f"a new generation of {plan.query} was begun after the plan was made",
            hint=f"run savepoints {plan.verb} again to make a new plan",
            query=plan.query,
        )


def make_outputs(outputs: Mapping[str, str], app: App, session: SparkSession, result: str) -> None:
    """Make the tables of outputs that do not exist, so that a savepoint can say how they were.

    Args:
        outputs: URI by name.
        result: The columns of the program's result, as Spark's JSON of their type; each output
            gets its part of them.
    """
    for name, uri in outputs.items():
        selection = app.outputs[name].selection
        write.ensure_table(Uri.parse(uri), selection.type_of(result, name, session))


def has_rows(uri: str) -> bool:
    """Say whether there is a table that has rows."""
    try:
        return bool(batch_version.open_table(uri).file_uris())
    except NotFoundError:
        return False


def take_over_outputs(
    plan: BeginningPlan,
    batch_id: int,
    settings: Settings,
    *,
    check: Callable[[], None],
    progress: Progress,
) -> None:
    """Let tables that somebody has filled belong to the batch with which a query begins.

    An empty commit has the transaction id of that batch, as if the query had written it. Without
    it nobody could tell which version of the table belongs to the first savepoint. Tables that are
    new and empty need nothing.
    """
    for name, uri in plan.outputs.items():
        own = app_id(plan.query, name, plan.generation)
        there = batch_version.present(name, uri, own)
        is_new = there.version == 0 and not has_rows(uri)
        if there.app_version == batch_id or is_new:
            continue
        check()
        progress(f"recording batch {batch_id} in {uri} with an empty commit")
        of_batch = rewind.plan(replace(there, app_version=batch_id), owner_prefix(plan.query), own)
        rewind.execute(of_batch, plan.operation_id, rewind.session_for([of_batch], settings))


def save(
    plan: BeginningPlan,
    store: Store,
    log: Journal,
    kind: SavepointKind,
    *,
    check: Callable[[], None],
    progress: Progress,
) -> Savepoint:
    """Take the savepoint of where a query begins, unless it was taken before a crash."""
    with journalled.left_unfinished(plan, log):
        check()
        saving = create.plan(
            store,
            query=plan.query,
            forms=plan.forms,
            savepoint_id=plan.first_savepoint,
            description=f"the start of {plan.query}, from {plan.verb}",
            app=plan.app,
            kind=kind,
        )
        saved = create.execute(saving, store, progress=progress)
    log.record(_SAVED, savepoint=saved.id)
    return saved


def last_steps(generation: int, savepoint_id: str, forms: Sequence[Form]) -> tuple[Step, ...]:
    """Return the steps that both verbs end with."""
    return (
        Step("generation_begun", f"begin generation {generation}"),
        Step(
            _SAVED,
            f"take the first savepoint of that generation, {savepoint_id} ({' and '.join(forms)})",
        ),
    )
