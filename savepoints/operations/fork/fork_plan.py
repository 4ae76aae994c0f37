"""What `fork` is going to do: which query, checkpoint and tables come to be of a savepoint."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from savepoints.checkpoint.logs import table_position
from savepoints.checkpoint.logs.kafka_position import lowest_offsets
from savepoints.config.settings import Settings
from savepoints.errors import TargetExistsError, UsageError
from savepoints.io import Location
from savepoints.model import Form, Savepoint, checked_name, new_id
from savepoints.moments import utc_now
from savepoints.operations.fork import fork_binding
from savepoints.operations.fork.fork_binding import Bound
from savepoints.operations.migrate import migrate
from savepoints.operations.migrate.migrate import MigrationOptions, PreparedMigration
from savepoints.operations.rollback import journalled
from savepoints.operations.rollback.generation_change import GenerationPlan
from savepoints.operations.rollback.query_context import checkpoint_of
from savepoints.operations.savepoint import restore, restore_checks
from savepoints.operations.savepoint.restore import RestorePlan
from savepoints.outputs.delta.write import app_id
from savepoints.outputs.fork import isolated_copy
from savepoints.outputs.fork.isolated_copy import CopyMode, Isolation
from savepoints.plan import Plan, Progress, Step, silent
from savepoints.sources.combined import availability, available_ranges
from savepoints.store import bindings
from savepoints.store.bindings import Binding, CloneOf
from savepoints.store.locks import journal, lease
from savepoints.store.root import Store
from savepoints.texts import bytes_text, count_text
from savepoints.uri import lies_in

VERB = "fork"
# The first generation of the new query.
FIRST = 1


@dataclass(frozen=True)
class ForkOptions:
    """What a fork is asked to be, besides its name.

    Attributes:
        app: What it runs, None for what the origin runs.
        way: `copy`: its outputs get files of their own; `clone`: they read those of the originals.
        checkpoints: Directory below which its generations get theirs, None for that of the origin.
        outputs: Tables of outputs that do not go to `<original>_forks/<name>`.
        form: Form to restore from; native when the savepoint has it.
        check_source: Whether Kafka is asked if it still has the records that come next, and files
            that the origin has read since are looked for.
        even_broken: Also of a savepoint that `verify` found broken.
        migration: How its state is converted for `app`, None if that goes on with it as it is.
    """

    app: str | None = None
    way: CopyMode = "copy"
    checkpoints: str | None = None
    outputs: Mapping[str, str] | None = None
    form: Form | None = None
    check_source: bool = True
    even_broken: bool = False
    migration: MigrationOptions | None = None

    def words(self) -> list[str]:
        """Return it as options of a command line."""
        given = [
            *(["--app", self.app] if self.app else []),
            *(["--outputs", self.way] if self.way != "copy" else []),
            *(["--checkpoints", self.checkpoints] if self.checkpoints else []),
            *(["--format", self.form] if self.form else []),
            *([] if self.check_source else ["--no-source-check"]),
            *(["--even-broken"] if self.even_broken else []),
            *(self.migration.words() if self.migration else []),
        ]
        for name, uri in sorted((self.outputs or {}).items()):
            given += ["--table", f"{name}={uri}"]
        return given

    def command_again(self, savepoint_id: str, app: str) -> str:
        """Return the command for another fork of the same, besides which this one's places stay.

        Args:
            app: What this one runs, which may have come from settings for its name.
        """
        tables = dict.fromkeys(self.outputs or {}, "NEW_URI")
        words = replace(self, app=app, outputs=tables).words()
        return shlex.join(["savepoints", VERB, savepoint_id, "NEW_NAME", *words, "--yes"])


@dataclass(frozen=True, kw_only=True)
class ForkPlan(GenerationPlan):
    """What `fork` is going to do for one name.

    Attributes:
        origin: The query that the savepoint is of.
        query_id: Spark's id of the new query.
        form: The form that the state is restored from.
        batch_id: The fork continues with the batch after this one.
        outputs: The tables that are made for it.
        binding: Its program with tables and topics.
        migration: How the state is converted for its program, None if it is taken as it is.
        state: What will be written, in a word: of a program that was changed since it is another.
        finished: The same fork exists already; nothing will be done.
        again: Command that makes another one like it, with `NEW_NAME` for its name.
        named: How the savepoint was named, if it was `latest`, `latest~1` or `@TIME`.
    """

    savepoint_id: str
    origin: str
    query_id: str
    form: Form
    batch_id: int
    outputs: tuple[Isolation, ...]
    binding: Binding
    migration: MigrationOptions | None = None
    state: str | None = None
    finished: bool = False
    again: str = ""
    named: str | None = None


@dataclass(frozen=True)
class ForksPlan(Plan):
    """What `fork` is going to do for several names, one after the other.

    Attributes:
        forks: The plan of each; each is an operation of its own.
    """

    forks: tuple[ForkPlan, ...]


def plan_all(
    store: Store,
    savepoint: str,
    names: Sequence[str],
    options: ForkOptions = ForkOptions(),
    *,
    query: str | None = None,
    progress: Progress = silent,
) -> ForksPlan:
    """Plan several forks of one savepoint, each an operation of its own; see `plan`.

    Raises:
        TargetExistsError: If two of them would write to one place.
    """
    store = store.snapshot()
    if not names or len(set(names)) < len(names):
        raise UsageError(
            f"each fork needs a different name, but got: {', '.join(names) or 'none'}",
            hint="pass different names, for example: savepoints fork SAVEPOINT variant_a variant_b",
        )
    # One savepoint for all of them, also when a new one is taken meanwhile.
    found = _find(store, savepoint, names, query)
    plans = tuple(_plan(store, found, name, options, savepoint, progress) for name in names)
    refuse_overlaps([place for one in plans if not one.finished for place in places(one)])
    return ForksPlan(
        verb=VERB,
        query=found.query,
        steps=tuple(
            replace(step, what=f"{one.query}: {step.what}") for one in plans for step in one.steps
        ),
        warnings=tuple(note for one in plans for note in one.warnings),
        forks=plans,
    )


def plan(
    store: Store,
    savepoint: str,
    name: str,
    options: ForkOptions = ForkOptions(),
    *,
    query: str | None = None,
    progress: Progress = silent,
) -> ForkPlan:
    """Find out what a fork would be and refuse what could not be done exactly; writes nothing.

    An interrupted fork of the same savepoint and name is resumed: its own plan is returned.

    Raises:
        TargetExistsError: If the query or one of its places exists and is not this very fork.
        NotAlignedError: If the version of an output is gone.
        IncompatibleError: If an output has features of which a copy is not known to be exact, or a
            source keeps nothing.
        SourceDataGoneError: If records or files are gone that the origin has read since.
        LayoutChangedError: If the state cannot be converted for the program.
        UnfinishedOperationError: If records of a topic that it reads are being rolled back.
    """
    store = store.snapshot()
    saved = _find(store, savepoint, [name], query)
    return _plan(store, saved, name, options, savepoint, progress)


def _find(store: Store, savepoint: str, names: Sequence[str], query: str | None) -> Savepoint:
    """Return the savepoint that is meant: that of an interrupted fork which was asked for alike."""
    begun = [journalled.asked_for(store, checked_name(name, "query"), savepoint) for name in names]
    return store.catalog.find(next(filter(None, begun), savepoint), query=query)


def _plan(
    store: Store, saved: Savepoint, name: str, options: ForkOptions, asked: str, progress: Progress
) -> ForkPlan:
    command = shlex.join(["savepoints", VERB, saved.id, name, *options.words(), "--yes"])
    if (known := _known(store, name, saved, command)) is not None:
        return known
    made = plan_one(
        store, saved, name, options, command=command, operation_id=new_id("op", utc_now()),
        progress=progress,
    )  # fmt: skip
    notes = (*made.warnings, *_incomparable(saved, name))
    return replace(made, warnings=notes, named=journalled.relative(asked))


def plan_one(
    store: Store,
    saved: Savepoint,
    name: str,
    options: ForkOptions,
    *,
    command: str,
    operation_id: str,
    progress: Progress = silent,
) -> ForkPlan:
    """Plan a fork of a name that is free, as an operation of its own or a part of one."""
    bound = fork_binding.bind_fork(
        store, saved, name, app=options.app, checkpoints=options.checkpoints,
        outputs=options.outputs or {},
    )  # fmt: skip
    complete = bindings.complete(store)
    restore_checks.refuse_rolling_back(store, saved)
    again = restore_checks.topics_read_again(store, saved)
    notes = _source_notes(store, saved, bound, complete) if options.check_source else []
    if bound.has_other_program and options.migration is None:
        notes.append(
            "whether its program fits the state is checked before the first batch, or now: "
            f"savepoints upgrade check --app {bound.settings.app} --from {saved.id}"
        )
    if not options.even_broken:
        restore_checks.refuse_broken(saved)
    query_id = str(uuid.uuid4())
    checkpoint = str(checkpoint_of(bound.settings.checkpoints, name, FIRST))
    restoring = _restoring(
        store, saved.id, checkpoint, bound.settings.app, options,
        query_id=query_id, operation_id=operation_id, progress=progress,
    )  # fmt: skip
    wanted = restoring.compared.program.outputs if isinstance(restoring, PreparedMigration) else {}
    outputs = _isolations(saved, name, bound, options.way, complete, wanted)
    planned = ForkPlan(
        verb=VERB,
        query=name,
        steps=_steps(saved, restoring, name, outputs),
        warnings=(*restoring.warnings, *bound.notes, *_consequences(outputs), *notes, *again),
        command=command,
        operation_id=operation_id,
        savepoint_id=saved.id,
        origin=saved.query,
        query_id=query_id,
        generation=FIRST,
        checkpoint=checkpoint,
        form=restoring.form,
        batch_id=saved.cut.batch_id,
        outputs=outputs,
        binding=_binding(name, bound, outputs),
        migration=options.migration,
        state=restoring.owner if options.migration else None,
        again=options.command_again(saved.id, bound.settings.app),
    )
    refuse_overlaps(places(planned))
    return planned


def _restoring(
    store: Store,
    savepoint_id: str,
    checkpoint: str,
    app: str,
    options: ForkOptions,
    *,
    query_id: str,
    operation_id: str,
    progress: Progress,
) -> RestorePlan:
    """Plan the checkpoint of a fork, with the state as it was saved or converted."""
    if options.migration is None:
        return restore.plan(
            store, savepoint_id, checkpoint,
            form=options.form, query_id=query_id, owner=operation_id, asked=False,
        )  # fmt: skip
    if options.form == "native":
        raise UsageError(
            "--migrate converts rows, but --format native copies files without reading them",
            hint="omit --format native",
        )
    return plan_migration(
        store, savepoint_id, checkpoint, app, options.migration,
        query_id=query_id, operation_id=operation_id, progress=progress,
    )  # fmt: skip


def plan_migration(
    store: Store,
    savepoint_id: str,
    checkpoint: str,
    app: str,
    migration: MigrationOptions,
    *,
    query_id: str,
    operation_id: str,
    progress: Progress,
) -> PreparedMigration:
    """Plan the checkpoint of a fork whose state is converted; the program is run on nothing."""
    return migrate.plan(
        store, savepoint_id, checkpoint,
        app=app,
        maps=migration.maps,
        defaults=migration.defaults,
        allow_dropped_state=migration.allow_dropped_state,
        query_id=query_id,
        owner=operation_id,
        asked=False,  # The fork has asked all of that.
        progress=progress,
    )  # fmt: skip


def _source_notes(store: Store, saved: Savepoint, bound: Bound, settings: Settings) -> list[str]:
    """Refuse a fork whose records or files are gone; return what to know of the others."""
    found = availability.require_available(
        saved.cut.offsets,
        settings.kafka,
        topics=saved.topics,
        archives=tuple(bound.settings.archives.values()),
    )
    logs = restore_checks.logs_of(store, store.manifest(saved.id))
    return [
        *available_ranges.notes(lowest_offsets(saved.cut.offsets), found),
        *restore_checks.require_read_again(store, saved.query, logs, accept="--no-source-check"),
    ]


def _isolations(
    saved: Savepoint,
    name: str,
    bound: Bound,
    way: CopyMode,
    settings: Settings,
    wanted: Mapping[str, str],
) -> tuple[Isolation, ...]:
    tables = bound.settings.outputs
    for uri in tables.values():
        isolated_copy.refuse_taken(uri)
        _refuse_another_s(settings, name, str(Location.of(uri)))
    return tuple(
        isolated_copy.plan(
            one,
            str(Location.of(tables[one.name])),
            way,
            app_id(name, one.name, FIRST),
            saved.cut.batch_id,
            wanted.get(one.name),
        )
        for one in bound.copied
    )


def _known(store: Store, name: str, saved: Savepoint, command: str) -> ForkPlan | None:
    """Return the plan of the same fork, whether interrupted or finished; None for a new one."""
    if journal.unfinished(store.root, name) is not None:
        lease.refuse_held(store.root, name)
        return journalled.begun(ForkPlan, store, name, VERB, command)
    generations = store.generations.all(name)
    if not generations:
        lease.refuse_held(store.root, name)
        return None
    first = min(generations, key=lambda one: one.generation)
    for one in journal.all_operations(store.root):
        same = (one.query, one.verb, one.plan.get("command")) == (name, VERB, command)
        if same and not one.undone and first.begun_from == saved.id:
            return replace(ForkPlan.from_json(one.plan), steps=(), warnings=(), finished=True)
    refuse_known(store, name)
    return None


def refuse_known(store: Store, name: str) -> None:
    """Refuse a name that a query of the store has."""
    generations = store.generations.all(name)
    if not generations:
        return
    first = min(generations, key=lambda one: one.generation)
    what = f"begun by {first.begun_by}" + (f" from {first.begun_from}" if first.begun_from else "")
    raise TargetExistsError(
        f"the store already has a query named {name}, {what}",
        hint="choose another name for the fork; to see the names in use: savepoints lineage",
        query=name,
    )


def _binding(name: str, bound: Bound, outputs: tuple[Isolation, ...]) -> Binding:
    clones = {
        one.output.name: CloneOf(one.output.uri, one.output.version)
        for one in outputs
        if one.way == "clone"
    }
    return bindings.fresh(name, FIRST, bound.settings, clones)


def _steps(
    saved: Savepoint, restoring: RestorePlan, name: str, outputs: tuple[Isolation, ...]
) -> tuple[Step, ...]:
    what = f"restore {saved.id} (batch {saved.cut.batch_id}, {restoring.form}) to "
    what += restoring.target
    if isinstance(restoring, PreparedMigration):
        what += f", with the state converted for {restoring.app}: "
        what += "; ".join(one.what for one in restoring.steps if one.name == migrate.STATE)
    return (
        Step("checkpoint_written", what),
        *(Step(step_of(one), what_of(one)) for one in outputs),
        Step(
            "generation_begun", f"begin generation {FIRST} of {name}, with its own Spark query id"
        ),
    )


def step_of(one: Isolation) -> str:
    """Return what making a table is called in the journal."""
    return f"output_{one.output.name}_isolated"


def what_of(one: Isolation) -> str:
    """Say how a table is made."""
    version = f"version {one.output.version} of {one.output.uri}"
    if one.way == "clone":
        return f"make {one.uri} a shallow clone of {version}"
    size = f"{count_text(one.files, 'file')}, {bytes_text(one.bytes)}"
    added = ", ".join(f"{column} {kind}" for column, kind in one.added)
    return f"copy {version} to {one.uri}: {size}" + (f", and add {added}" if added else "")


def _incomparable(saved: Savepoint, name: str) -> list[str]:
    """Tell what `compare` will refuse, before the fork is made."""
    if not any(table_position.parse(one) for one in saved.cut.offsets):
        return []
    return [
        (
            f"{saved.query} reads a table, so savepoints compare will refuse {name}; for a fork "
            f"that can be compared: savepoints pipeline fork {saved.query} {saved.id} NAME, then "
            f"savepoints pipeline compare {saved.query} NAME"
        )
    ]


def _consequences(outputs: tuple[Isolation, ...]) -> list[str]:
    return [
        f"{one.uri} reads the files of version {one.output.version} of {one.output.uri}: once "
        "that version is older than the table's retention, VACUUM there breaks the clone, and "
        "savepoints cannot prevent this"
        for one in outputs
        if one.way == "clone"
    ]


def _refuse_another_s(settings: Settings, name: str, uri: str) -> None:
    """Refuse a table that another query is bound to, which may not have written it yet."""
    for query, bound in settings.queries.items():
        taken = {str(Location.of(place)) for place in bound.outputs.values()}
        if query != name and uri in taken:
            raise TargetExistsError(
                f"{uri} is already an output of {query}, and two queries must not write to the "
                "same table",
                hint=f"give this output of {name} a table of its own: --table OUTPUT=URI",
                uri=uri,
            )


def places(plan: ForkPlan) -> list[tuple[str, str]]:
    """Return everything that a fork writes to, with what it is."""
    tables = plan.binding.settings().outputs
    return [
        (f"the checkpoint of {plan.query}", plan.checkpoint),
        *((f"the output {name} of {plan.query}", uri) for name, uri in tables.items()),
    ]


def refuse_overlaps(places: Sequence[tuple[str, str]]) -> None:
    """Refuse forks that would write to one place, or one within the other."""
    for (one, first), (other, second) in combinations(places, 2):
        if lies_in(first, second) or lies_in(second, first):
            raise TargetExistsError(
                f"{one} and {other} would overlap: {first} and {second}",
                hint="choose separate locations with --table NAME=URI and --checkpoints URI",
            )
