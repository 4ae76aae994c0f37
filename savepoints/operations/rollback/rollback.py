"""`rollback`: take state, offsets and outputs back to an earlier point, as one plan.

The point is a savepoint, a batch that Spark retains, or a time: then the query is run on from the
savepoint before it, by planned batches, to the very offsets of that time. See
`savepoints.operations.rollback.generation_change` for the steps and
`savepoints.operations.rollback.target` for the points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from savepoints.checkpoint.cut import committed_in
from savepoints.checkpoint.logs import offset_log
from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, lowest_offsets, topics_added
from savepoints.checkpoint.logs.source_positions import Starts, checked, going_on, topics_kept
from savepoints.errors import IncompatibleError, SourceDataGoneError, UsageError
from savepoints.io import Location
from savepoints.model import Form, new_id
from savepoints.moments import utc_now
from savepoints.observe.recorder import recorded
from savepoints.operations.rollback import (
    activity,
    generation_change,
    journalled,
    next_outputs,
    notes,
    run_to_point,
    safety_savepoint,
)
from savepoints.operations.rollback import target as rollback_target
from savepoints.operations.rollback.generation_change import Moved, OwnStep, TransitionPlan, Work
from savepoints.operations.rollback.query_context import QueryContext
from savepoints.operations.rollback.run_to_point import RestoredQuery
from savepoints.operations.rollback.target import Named, Point, ResolvedTarget
from savepoints.operations.savepoint import restore, restore_checks
from savepoints.outputs.delta import unreadable_versions
from savepoints.outputs.rewind.planned_rewind import Rewind
from savepoints.plan import Progress, Step, silent
from savepoints.runtime.archive_of import archives_of
from savepoints.sources import delta_versions, source_logs
from savepoints.sources.combined import availability, available_ranges
from savepoints.sources.kafka import topics as kafka_topics
from savepoints.sources.kafka.offsets import Range
from savepoints.sources.source_logs import SourceLogs
from savepoints.store import bindings, lineage
from savepoints.store.bindings import Binding
from savepoints.store.root import Store
from savepoints.texts import moment_text

VERB = "rollback"


@dataclass(frozen=True, kw_only=True)
class RollbackPlan(TransitionPlan):
    """What `rollback` is going to do.

    Attributes:
        form: The form that the state is restored from.
        batch_id: The batch of the savepoint; the query continues with the one after it, or first
            runs to `ends`.
        takes: The savepoint does not exist yet; it is first taken from the retained batch.
        ends: Offsets to run to, as Spark's JSON; None to stay at the savepoint.
        application: The program that runs the query to `ends`; None without them.
        outputs_are: Whether the outputs go back too.
        sources: Where each source of the program continues, None to continue as at the savepoint.
        first_id: Id of the first savepoint of the new generation, where `sources` have moved the
            query to; None without them.
        named: How the savepoint was named, if it was `latest`, `latest~1` or `@TIME`.
    """

    savepoint_id: str
    form: Form = "native"
    batch_id: int = -1
    takes: bool = False
    ends: str | None = None
    application: str | None = None
    outputs_are: Literal["rewound", "kept"] = "rewound"
    sources: Starts | None = None
    first_id: str | None = None
    named: str | None = None


@dataclass(frozen=True)
class _Asked:
    """How to go back, besides where to; see `plan`."""

    checkpoint: str | None
    check_source: bool
    save_present: bool
    stopped: bool
    form: Form | None = None
    sources: Starts | None = None
    application: str | None = None
    outputs_are: Literal["rewound", "kept"] = "rewound"
    even_broken: bool = False
    accept_unreplayable: bool = False
    ends: Mapping[str, int] = field(default_factory=dict)


# What a plan has of that; an interrupted rollback is not finished with anything else.
_STORED = ("checkpoint", "form", "sources", "application", "outputs_are")


@dataclass(frozen=True, kw_only=True)
class RolledBack(Moved):
    """What a rollback did.

    Attributes:
        batch_id: The batch that was restored; the query continues with the next one.
    """

    batch_id: int


def plan(
    store: Store,
    point: str | Point,
    *,
    query: str | None = None,
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
    """Plan to roll back state, offsets and outputs to a point, into a new checkpoint.

    Whatever cannot be done exactly is refused, and nothing is written before the plan is executed.
    `savepoints run` then starts the new checkpoint; a driver of your own has to be given it:

    ```python
    done = store.query("clicks").rollback("before-release", to="s3://bucket/ck/clicks/2").execute()
    ...writeStream.option("checkpointLocation", done.checkpoint)
    ```

    An interrupted rollback of the same query to the same point is resumed, with its own plan.

    Args:
        point: Where to; a text is the name of a savepoint.
        to: Checkpoint directory of the new generation, for a query that is not in the settings.
        form: Which form to restore the state from.
        sources: Where each source of the program continues, for one that reads another topic or
            table: `keep:0`, `new`, or a position as Spark's JSON, one text each.
        app: The program that runs the query to a point in time, if not the one in the settings.
        rewind_outputs: Whether to rewind the outputs as well; if not, they keep the rows of the
            batches that are rolled back.
        check_source: Whether to ask Kafka, and the tables in the settings, if they still have what
            comes next.
        save_present: Whether to take a safety savepoint; without it, the rollback cannot be undone.
            Pass False if the present checkpoint is damaged.
        even_broken: Accept a savepoint that `verify` found broken.
        accept_unreplayable: Accept a source that cannot be read again, or files that are gone, so
            that rows may be lost.
        stopped: You have made sure that no driver runs the query; see `activity`.

    Raises:
        QueryRunningError: If the query runs in a driver that holds no lease of it, or may. Of one
            that is seen to run the plan says so, and its execution is refused.
        LockedError: If another verb has the query.
        UnfinishedOperationError: If another operation on the query was interrupted.
        SourceDataGoneError: If Kafka no longer has the records, the log of a table the commits, or
            files are gone.
        NotAlignedError: If an output cannot be taken back without loss.
    """
    store = store.snapshot()
    asked = _Asked(
        checkpoint=to and str(Location.of(to)),
        form=form,
        sources=sources and tuple(map(checked, sources)),
        application=app,
        outputs_are="rewound" if rewind_outputs else "kept",
        check_source=check_source,
        save_present=save_present,
        even_broken=even_broken,
        accept_unreplayable=accept_unreplayable,
        stopped=stopped,
    )
    wanted = Named(point) if isinstance(point, str) else point
    # Before the point is looked up: an interrupted rollback may have changed what it means.
    name, words = rollback_target.identity(store, wanted, query)
    activity.refuse_worked_on(store.root, name)
    known = journalled.begun(RollbackPlan, store, name, VERB, _command(words, asked))
    if known is not None:
        return journalled.same_as_begun(known, store, {one: getattr(asked, one) for one in _STORED})
    context = QueryContext.open(store, name)
    found = rollback_target.resolve(context, wanted)
    made = _plan(context, found, asked)
    topic_notes = [*notes.of_topics(store, name, found), *notes.of_topics_read(store, found)]
    point_notes = notes.of_point(store, wanted, found)
    return replace(
        made,
        named=journalled.relative(wanted.name) if isinstance(wanted, Named) else None,
        warnings=(*made.warnings, *point_notes, *topic_notes),
    )


def plan_one(
    store: Store,
    savepoint_id: str,
    *,
    query: str,
    to: str | None,
    check_source: bool = True,
    save_present: bool = True,
    stopped: bool = False,
    accept_unreplayable: bool = False,
    ends: Mapping[str, int] | None = None,
) -> RollbackPlan:
    """Plan one query's part of an operation on several, whose journal and leases are others'.

    Args:
        store: All but the last: see `plan`.
        ends: By table that goes back too, the version up to which the query reads it.
    """
    asked = _Asked(
        checkpoint=to and str(Location.of(to)),
        check_source=check_source,
        save_present=save_present,
        stopped=stopped,
        accept_unreplayable=accept_unreplayable,
        ends=ends or {},
    )
    context = QueryContext.open(store, query)
    found = rollback_target.resolve(context, Named(savepoint_id))
    return _plan(context, found, asked)


def _plan(context: QueryContext, found: ResolvedTarget, asked: _Asked) -> RollbackPlan:
    """Plan a rollback that was not begun before."""
    source_notes = _refuse_unreadable(context, found, asked)
    form, checkpoint = _restoring(context, found, asked)
    # The generation goes back to the program and the tables of its target.
    binding = _binding(context, found)
    then = bindings.apply(context.store.settings, found.query, binding)
    bound = then.queries.get(found.query)
    application = None
    if found.ends is not None:
        application = run_to_point.application_of(
            found.query, then, asked.application, rewind_outputs=asked.outputs_are == "rewound"
        )
    outputs, told = (
        next_outputs.rewound(context, found, bound)
        if asked.outputs_are == "rewound"
        else next_outputs.kept(context, found, bound)
    )
    present = context.present(saved=asked.save_present)
    first = None if asked.sources is None else new_id("sp", utc_now())
    return RollbackPlan(
        **context.leaving(present),
        verb=VERB,
        steps=(
            *safety_savepoint.step(present.safety_id, context.current.checkpoint, present.batch_id),
            *_steps(found, form, checkpoint, context.number, outputs),
            *safety_savepoint.first_step(first, context.number),
        ),
        warnings=(
            *source_notes,
            *notes.of_place(context.current.checkpoint, checkpoint),
            *notes.of_present(context.current.checkpoint, present, VERB),
            *(
                notes.of_records(context.current.checkpoint, present.batch_id, found.offsets)
                if found.ends is None and asked.sources is None
                else ()
            ),
            *notes.of_clock(context.store, found),
            *notes.of_merges(context.store, found, context.current.generation),
            *(() if asked.ends else notes.of_corrections(context.store, found)),
            *notes.of_program(context.bound, bound),
            *told,
        ),
        command=_command(found.words, asked),
        savepoint_id=found.savepoint_id,
        checkpoint=checkpoint,
        outputs=outputs,
        binding=binding,
        form=form,
        batch_id=found.batch_id,
        takes=not found.is_saved,
        ends=found.ends,
        application=application,
        outputs_are=asked.outputs_are,
        sources=asked.sources,
        first_id=first,
    )


@recorded
def execute(plan: RollbackPlan, store: Store, *, progress: Progress = silent) -> RolledBack:
    """Roll back, holding the query's lease; goes on where an earlier attempt was killed.

    Raises:
        QueryRunningError: If the query runs, or its checkpoint changed since the plan.
        LockedError: If another verb has the query.
        UnfinishedOperationError: If another operation was begun since the plan.
        SavepointsError: If the query fails while it is run on.
    """
    settings = bindings.complete(store)

    def save_batch(_check: Callable[[], None]) -> None:
        progress(f"taking the savepoint {plan.savepoint_id} of batch {plan.batch_id}")
        rollback_target.save_batch(
            store,
            query=plan.query,
            checkpoint=plan.from_checkpoint,
            batch_id=plan.batch_id,
            savepoint_id=plan.savepoint_id,
            settings=settings,
        )

    def run_on(check: Callable[[], None]) -> None:
        assert plan.ends is not None
        query = RestoredQuery.of(plan, store, progress, plan.application)
        query.run_to(plan.ends, check=check)

    write = partial(
        generation_change.restored, plan, store, form=plan.form, sources=plan.sources,
        progress=progress,
    )  # fmt: skip
    # All of it before the generation begins: whatever fails can still be undone.
    work = Work(
        write,
        prepare=OwnStep("batch_saved", save_batch) if plan.takes else None,
        complete=OwnStep("advanced", run_on) if plan.ends is not None else None,
        follow=generation_change.first_savepoint(plan, plan.first_id, store, progress),
    )
    moved = generation_change.execute(plan, store, work, progress=progress)
    reached = committed_in(Location.of(plan.checkpoint))[-1]
    return RolledBack(**vars(moved), batch_id=reached)


def _command(words: tuple[str, ...], asked: _Asked) -> str:
    kept = ["--outputs", "none"] if asked.outputs_are == "kept" else []
    return " ".join(["savepoints rollback", *words, *kept, "--yes"])


def _refuse_unreadable(
    context: QueryContext, found: ResolvedTarget, asked: _Asked
) -> tuple[str, ...]:
    """Refuse a query that runs, or whose sources cannot go on from there; return what to know."""
    if asked.sources is not None and (not found.is_saved or found.ends is not None):
        raise UsageError(
            "--source works only with a savepoint, not with --at TIME --exact or --at-batch",
            hint="roll back without --source, take a savepoint (savepoints create QUERY), "
            "then roll back to it with --source",
        )
    settings = context.settings
    assumed = activity.refuse_active(context, stopped=asked.stopped)
    if not asked.accept_unreplayable:
        again = restore_checks.require_read_again(
            context.store, found.query, _logs(context, found), sources=asked.sources
        )
        assumed = (*assumed, *again)
    if not asked.check_source:
        return assumed
    goes_on, topics = found.offsets, found.topics
    if asked.sources is not None:
        goes_on = going_on(asked.sources, found.offsets)
        # Offsets that are given are of the topics as they are now.
        topics = topics_kept(asked.sources, found.offsets, found.topics)
    tables = context.bound.tables.values() if context.bound else ()
    versions = delta_versions.require_commits(goes_on, tables, query=found.query, ends=asked.ends)
    unreadable_versions.refuse(versions, found.query)
    added = _topics_added(context, found) if asked.sources is None else set()
    if added:
        known = lineage.topic_ids(context.store, context.current)
        topics = {**{one: known[one] for one in added & known.keys()}, **topics}
    try:
        there = availability.require_available(
            goes_on, settings.kafka, topics=topics, archives=archives_of(settings, found.query),
            added=added,
        )  # fmt: skip
    except SourceDataGoneError as error:
        if asked.sources is None:
            gone: Any = error.details.get("partitions", ())
            error.hint += notes.going_on_without(gone, found)
        raise
    position = lowest_offsets(goes_on)
    ahead = {one.topic for one in there if _offset(position, one) < one.end}
    described = kafka_topics.describe(ahead, settings.kafka).values()
    compacted = (one.compaction for one in described if one.compaction)
    return (*assumed, *available_ranges.notes(position, there), *compacted)


def _topics_added(context: QueryContext, found: ResolvedTarget) -> set[str]:
    """Return the topics that the query has come to read since its target.

    Spark begins such a topic at its first record, which must still be there: of one that is gone it
    would not even know that it has rolled back what came of its records.
    """
    checkpoint = context.current.checkpoint
    cuts = [one.cut for one in context.history]
    later = [one.offsets for one in cuts if one.committed_at >= found.committed_at]
    with suppress(FileNotFoundError, ValueError, IncompatibleError):
        newest = safety_savepoint.newest_batch(checkpoint)
        if newest is not None:
            later.append(offset_log.read(Location.of(checkpoint), newest).sources)
    return set().union(*(topics_added(found.offsets, one) for one in later))


def _offset(position: KafkaOffsets, there: Range) -> int:
    return position.get(there.topic, {}).get(there.partition, 0)


def _logs(context: QueryContext, found: ResolvedTarget) -> SourceLogs:
    if found.is_saved:
        return restore_checks.logs_of(context.store, context.store.manifest(found.savepoint_id))
    return source_logs.of_checkpoint(Location.of(context.current.checkpoint), found.batch_id)


def _binding(context: QueryContext, found: ResolvedTarget) -> Binding | None:
    """Return what the generation is bound to that goes back: what the one of the target was.

    Over a promotion that somebody has followed up in the settings, it is what they said before.
    """
    root, query = context.store.root, found.query
    was = bindings.find(root, query, found.generation)
    left = bindings.find(root, query, context.current.generation)
    given = context.store.settings
    if was is not None or left is None or query not in given.queries:
        return was
    return bindings.taken_back(query, context.number, left, given.queries[query])


def _restoring(context: QueryContext, found: ResolvedTarget, asked: _Asked) -> tuple[Form, str]:
    """Return the form to restore and the directory, having refused what cannot be restored."""
    checkpoint = context.checkpoint(asked.checkpoint)
    if not found.is_saved:
        rollback_target.refuse_unsaved(found, asked.form)
        return "native", checkpoint
    restoring = restore.plan(
        context.store,
        found.savepoint_id,
        checkpoint,
        form=asked.form,
        sources=asked.sources,
        even_broken=asked.even_broken,
        check_outputs=False,  # The outputs go back too, or get ids of a new life.
        accept_unreplayable=True,  # It has been asked for already, of batches as well.
    )
    return restoring.form, checkpoint


def _steps(
    found: ResolvedTarget, form: Form, target: str, number: int, outputs: tuple[Rewind, ...]
) -> list[Step]:
    name, batch = found.savepoint_id, found.batch_id
    steps = []
    if not found.is_saved:
        steps.append(Step("batch_saved", f"take the savepoint {name} of batch {batch}"))
    of = f"generation {found.generation}, batch {batch}, {form}"
    if found.is_saved:
        # An id has the time at which it was taken, which may be long after the commit.
        of += f", committed {moment_text(found.committed_at)}"
    steps.append(Step("checkpoint_written", f"restore {name} ({of}) to {target}"))
    steps += next_outputs.output_steps(outputs)
    if found.ends is not None:
        steps.append(
            Step(
                "advanced",
                f"run the query on from batch {batch} to exactly {run_to_point.what(found.ends)}",
            )
        )
    steps.append(Step("generation_begun", f"begin generation {number} of {found.query}"))
    return steps
