"""`rollback`: take state, offsets and outputs back to an earlier point, as one plan.

The point is a savepoint, a batch that Spark retains, or a time: then the query is run on from the
savepoint before it, by planned batches, to the very offsets of that time. See
`savepoints.operations.rollback.generation_change` for the steps and
`savepoints.operations.rollback.target` for the points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from savepoints.checkpoint.cut import committed_batches
from savepoints.checkpoint.logs.source_positions import Starts, checked, going_on
from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import (
    FileSinkError,
    IncompatibleError,
    NotAlignedError,
    NotFoundError,
    UsageError,
)
from savepoints.io import Location
from savepoints.model import Form, Generation, kafka_position, lowest_offsets, new_id, utc_now
from savepoints.observe.recorder import recorded
from savepoints.operations.rollback import (
    activity,
    generation_change,
    journalled,
    output_ids,
    run_to_point,
    safety_savepoint,
)
from savepoints.operations.rollback import (
    target as rollback_target,
)
from savepoints.operations.rollback.generation_change import (
    Moved,
    NewCheckpoint,
    OwnStep,
    TransitionPlan,
    Work,
)
from savepoints.operations.rollback.next_checkpoint import next_checkpoint
from savepoints.operations.rollback.target import Named, Point, ResolvedTarget
from savepoints.operations.savepoint import history, plan_basis, restore
from savepoints.outputs.delta import batch_version
from savepoints.outputs.delta.write import owner_prefix
from savepoints.outputs.rewind import rewind
from savepoints.outputs.rewind.rewind import Rewind
from savepoints.plan import Progress, Step, silent
from savepoints.runtime.archive_of import archives_of
from savepoints.sources.combined import availability, available_ranges
from savepoints.store import bindings
from savepoints.store.bindings import Binding
from savepoints.store.root import Store

VERB = "rollback"


@dataclass(frozen=True, kw_only=True)
class RollbackPlan(TransitionPlan):
    """What `rollback` is going to do.

    Attributes:
        form: From which form the state is restored.
        batch_id: The batch of the savepoint; the query goes on with the one after it, or runs on to
            `ends` first.
        takes: The savepoint does not exist yet: it is taken of the retained batch first.
        ends: Where the topics are to be at the end, as Spark's JSON; None to stay at the savepoint.
        application: What runs the query on to `ends`, None without.
        outputs_are: Whether the outputs go back too.
        sources: Where each source of the program goes on, None for as they were there.
    """

    form: Form = "native"
    batch_id: int = -1
    takes: bool = False
    ends: str | None = None
    application: str | None = None
    outputs_are: Literal["rewound", "kept"] = "rewound"
    sources: Starts | None = None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RollbackPlan:
        """Read a plan from the journal, to go on with it."""
        sources = data.get("sources")
        return generation_change.from_json(cls, data, sources=sources and tuple(sources))


@dataclass(frozen=True)
class RolledBack(Moved):
    """What a rollback did.

    Attributes:
        batch_id: The query goes on with the batch after this one.
    """

    batch_id: int


def plan(
    store: Store,
    point: str | Point,
    *,
    query: str | None = None,
    settings: Settings | None = None,
    to: str | None = None,
    form: Form | None = None,
    sources: Starts | None = None,
    app: str | None = None,
    rewind_outputs: bool = True,
    check_source: bool = True,
    save_present: bool = True,
    even_broken: bool = False,
    accept_unreplayable: bool = False,
    stopped: bool = False,
) -> RollbackPlan:
    """Find out what a rollback would do and refuse what it could not do exactly; writes nothing.

    An interrupted rollback of the same query to the same point is taken up again: its own plan is
    returned.

    Args:
        store: Where the savepoint is.
        point: Where to; a text is the name of a savepoint.
        query: Only savepoints of this query.
        settings: Where Kafka is and where the query's checkpoints lie.
        to: Checkpoint directory of the new generation, for a query that is not in the settings.
        form: Which form to restore the state from.
        sources: Where each source of the program goes on, for one that reads another topic or
            table: `keep:0`, `new`, or a position as Spark's JSON, one text each.
        app: What runs the query on to a point in time, if not the one in the settings.
        rewind_outputs: Whether the outputs go back too; without, they keep rows that the rolled
            back batches wrote.
        check_source: Whether to ask Kafka if it still has the records to go on with.
        save_present: Whether to take a safety savepoint; without, the rollback cannot be undone.
            For a present that is damaged.
        even_broken: Also to a savepoint that `verify` found broken.
        accept_unreplayable: Also where a source cannot be read again.
        stopped: Somebody has made sure that no driver runs the query; see `activity`.

    Raises:
        QueryRunningError: If the query runs.
        LockedError: If another verb has the query.
        UnfinishedOperationError: If another operation on the query was interrupted.
        SourceDataGoneError: If Kafka no longer has the records.
        NotAlignedError: If an output cannot be taken back without loss.
    """
    store = store.snapshot()
    given_settings = settings or Settings()
    settings = bindings.complete(store, given_settings)
    sources = sources and tuple(map(checked, sources))
    wanted = Named(point) if isinstance(point, str) else point
    given = {
        "checkpoint": to and str(Location.of(to)),
        "form": form,
        "application": app,
        "outputs_are": _are(rewind_outputs),
        "sources": sources,
    }
    if not isinstance(wanted, Named):
        # Before the point is looked up: an interrupted rollback may have changed what it means.
        name = rollback_target.query_of(store, query)
        command = _command(rollback_target.words(wanted, name), rewind_outputs=rewind_outputs)
        if resumed := _resumed(store, name, command, given):
            return resumed
    found = rollback_target.resolve(store, wanted, query=query, settings=settings)
    command = _command(found.words, rewind_outputs=rewind_outputs)
    if resumed := _resumed(store, found.query, command, given):
        return resumed
    basis = plan_basis.read(store, found.query)
    current = store.generations.current(found.query)
    if sources is not None and (not found.is_saved or found.ends is not None):
        raise UsageError(
            "--source works with a savepoint only",
            hint="go to the point first, then to its savepoint with --source",
        )
    read = list(activity.refuse_active(store, current, settings, stopped=stopped))
    if check_source:
        goes_on = found.offsets if sources is None else going_on(sources, found.offsets)
        there = availability.require_available(
            goes_on,
            settings.kafka,
            topics=found.topics,
            archives=archives_of(settings, found.query),
        )
        read += available_ranges.notes(lowest_offsets(goes_on), there)
    number = store.generations.next_number(found.query)
    target = to or next_checkpoint(settings, found.query, number)
    chosen, target = _restoring(
        store,
        found,
        target,
        form,
        sources,
        even_broken=even_broken,
        accept_unreplayable=accept_unreplayable,
    )
    binding = _binding(store, found, current, number, given_settings)
    then = bindings.apply(given_settings, found.query, binding)
    bound = then.queries.get(found.query)
    application = app or (bound.app if bound else None)
    if found.ends is not None:
        run_to_point.require_possible(found.query, then, application, rewind_outputs=rewind_outputs)
    uris = history.output_uris(store, found.query, settings)
    outputs, notes = (
        _taken_back(store, found, number, bound, uris)
        if rewind_outputs
        else _kept(found, current, number, bound)
    )
    from_batch, safety_id = (
        safety_savepoint.plan(current, uris, settings)
        if save_present
        else (safety_savepoint.newest_batch(current.checkpoint), None)
    )
    return RollbackPlan(
        verb=VERB,
        query=found.query,
        steps=(
            *safety_savepoint.step(safety_id, current.checkpoint, from_batch),
            *_steps(found, chosen, target, number, outputs),
        ),
        warnings=(*_warnings(current.checkpoint, from_batch, safety_id), *notes, *read),
        command=command,
        operation_id=new_id("op", utc_now()),
        savepoint_id=found.savepoint_id,
        safety_id=safety_id,
        from_checkpoint=current.checkpoint,
        from_batch=from_batch,
        generation=number,
        checkpoint=target,
        outputs=outputs,
        output_uris=uris,
        binding=binding,
        basis=basis,
        form=chosen,
        batch_id=found.batch_id,
        takes=not found.is_saved,
        outputs_are=_are(rewind_outputs),
        sources=sources,
        ends=None if found.ends is None else kafka_position(found.ends),
        application=application if found.ends is not None else None,
    )


@recorded
def execute(
    plan: RollbackPlan,
    store: Store,
    *,
    settings: Settings | None = None,
    progress: Progress = silent,
) -> RolledBack:
    """Roll back, holding the query's lease; goes on where an earlier attempt was killed.

    Raises:
        QueryRunningError: If the query runs, or its checkpoint changed since the plan.
        LockedError: If another verb has the query.
        UnfinishedOperationError: If another operation was begun since the plan.
        SavepointsError: If the query fails while it is run on.
    """
    given = settings or Settings()
    settings = bindings.complete(store, given)

    def save_batch(_check: Callable[[], None]) -> None:
        assert plan.savepoint_id is not None
        progress(f"saving batch {plan.batch_id} as {plan.savepoint_id}")
        rollback_target.save_batch(
            store,
            query=plan.query,
            checkpoint=plan.from_checkpoint,
            batch_id=plan.batch_id,
            savepoint_id=plan.savepoint_id,
            settings=settings,
        )

    def write() -> NewCheckpoint:
        return generation_change.restored(
            plan,
            store,
            form=plan.form,
            sources=plan.sources,
            settings=settings,
            progress=progress,
        )

    def run_on(check: Callable[[], None]) -> None:
        assert plan.ends is not None
        assert plan.application is not None
        assert plan.savepoint_id is not None
        run_to_point.to(
            plan.ends,
            query=plan.query,
            app=plan.application,
            settings=bindings.complete(store, given, generations={plan.query: plan.generation}),
            generation=plan.generation,
            begun_from=store.manifest(plan.savepoint_id).savepoint,
            checkpoint=Location.of(plan.checkpoint),
            store=store,
            check=check,
            progress=progress,
        )

    work = Work(
        write,
        prepare=OwnStep("batch_saved", save_batch) if plan.takes else None,
        complete=OwnStep("advanced", run_on) if plan.ends is not None else None,
    )
    moved = generation_change.execute(plan, store, work, settings=settings, progress=progress)
    reached = committed_batches(Location.of(plan.checkpoint).list())[-1]
    return RolledBack(**vars(moved), batch_id=reached)


def _are(rewind_outputs: bool) -> Literal["rewound", "kept"]:
    return "rewound" if rewind_outputs else "kept"


def _command(words: tuple[str, ...], *, rewind_outputs: bool) -> str:
    kept = [] if rewind_outputs else ["--outputs", "none"]
    return " ".join(["savepoints rollback", *words, *kept, "--yes"])


def _resumed(
    store: Store,
    query: str,
    command: str,
    given: Mapping[str, object],
) -> RollbackPlan | None:
    """Return the same rollback if it was interrupted; it is finished as it was begun."""
    known = journalled.begun(store, query, VERB, command)
    if known is None:
        return None
    return journalled.same_as_begun(RollbackPlan.from_json(known), given)


def _binding(
    store: Store, found: ResolvedTarget, current: Generation, number: int, given: Settings
) -> Binding | None:
    """Return what the generation is bound to that goes back: what the one of the target was.

    Over a promotion that somebody has followed up in the settings, it is what they said before.
    """
    was = bindings.find(store.root, found.query, found.generation)
    left = bindings.find(store.root, found.query, current.generation)
    if was is not None or left is None or found.query not in given.queries:
        return was
    return bindings.taken_back(found.query, number, left, given.queries[found.query])


def _taken_back(
    store: Store,
    found: ResolvedTarget,
    number: int,
    bound: QuerySettings | None,
    uris: Mapping[str, str],
) -> tuple[tuple[Rewind, ...], list[str]]:
    """Return what takes the outputs back, and what a person should know about that."""
    unknown = [name for name in uris if name not in {one.name for one in found.outputs}]
    for name in unknown:
        try:
            batch_version.open_table(uris[name])
        except NotFoundError:
            continue  # Nothing to take back yet.
        except FileSinkError:
            pass
        raise NotAlignedError(
            f"{found.savepoint_id} does not know the output {name}, {uris[name]}, so which of its "
            "rows belong there is not known",
            hint="leave the outputs as they are: --outputs none; or take it out of the settings",
            output=name,
        )
    for output in found.outputs:
        goes_on_in = bound.outputs.get(output.name) if bound else None
        if goes_on_in is not None and str(Location.of(goes_on_in)) != output.uri:
            raise NotAlignedError(
                f"{found.savepoint_id} knows the output {output.name} as {output.uri}, and by the "
                f"settings the query goes on in {goes_on_in}, which would not be taken back",
                hint="say the table of the savepoint in the settings, or leave the outputs as they "
                "are: --outputs none",
                output=output.name,
            )
    own_rows = bound.own_rows if bound else {}
    spark_ids = output_ids.own_ids(store, found.query)
    outputs = tuple(
        rewind.plan(
            output,
            owner_prefix(found.query),
            output_ids.next_app_id(output, found.query, found.generation, number),
            own_rows=own_rows.get(output.name),
            own_ids=spark_ids,
        )
        for output in found.outputs
    )
    if not outputs and not uris:
        raise NotAlignedError(
            f"no output table of {found.query} is known, so rows written after batch "
            f"{found.batch_id} would stay there and be written again",
            hint="name its tables, for later savepoints as well: a table "
            f"[queries.{found.query}.outputs] in the settings; or rewind none: --outputs none",
            query=found.query,
        )
    return outputs, [note for one in outputs for note in rewind.notes(one)]


def _kept(
    found: ResolvedTarget, current: Generation, number: int, bound: QuerySettings | None
) -> tuple[tuple[Rewind, ...], list[str]]:
    """Return what makes a new life of outputs whose rows stay, and what becomes of them."""
    own_ids = bound.app_ids if bound else {}
    outputs: list[Rewind] = []
    notes: list[str] = []
    for one in found.outputs:
        following = output_ids.next_app_id(one, found.query, found.generation, number)
        notes += rewind.kept(one, following)
        try:
            kept = output_ids.keep_output(
                one.name,
                one.uri,
                current,
                number,
                own_id=own_ids.get(one.name),
                batch_id=found.batch_id,
            )
        except IncompatibleError as error:
            notes.append(f"{error.message}: no savepoint can be taken before the first new batch")
            continue
        outputs += [] if kept is None else [kept]
    return tuple(outputs), notes


def _restoring(
    store: Store,
    found: ResolvedTarget,
    target: str,
    form: Form | None,
    sources: Starts | None,
    *,
    even_broken: bool,
    accept_unreplayable: bool,
) -> tuple[Form, str]:
    """Return the form to restore and the directory, having refused what cannot be restored."""
    if found.is_saved:
        restoring = restore.plan(
            store,
            found.savepoint_id,
            target,
            form=form,
            sources=sources,
            even_broken=even_broken,
            check_outputs=False,
            accept_unreplayable=accept_unreplayable,
        )
        return restoring.form, restoring.target
    rollback_target.refuse_unsaved(found, form)
    return "native", str(Location.of(target))


def _steps(
    found: ResolvedTarget, form: Form, target: str, number: int, outputs: tuple[Rewind, ...]
) -> list[Step]:
    name, batch = found.savepoint_id, found.batch_id
    steps = []
    if not found.is_saved:
        steps.append(Step("batch_saved", f"save the retained batch {batch}: {name}"))
    of = f"generation {found.generation}, batch {batch}, {form}"
    steps.append(Step("checkpoint_written", f"restore {name} ({of}) to {target}"))
    steps += output_ids.output_steps(outputs)
    if found.ends is not None:
        steps.append(
            Step("advanced", f"run on from batch {batch} to exactly {kafka_position(found.ends)}")
        )
    steps.append(Step("generation_begun", f"begin generation {number} of {found.query}"))
    return steps


def _warnings(checkpoint: str, from_batch: int | None, safety_id: str | None) -> list[str]:
    if from_batch is None:
        return [f"{checkpoint} has no committed batch: no safety savepoint"]
    if safety_id is None:
        return ["no safety savepoint is taken: this cannot be undone"]
    return []
