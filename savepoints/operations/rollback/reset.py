"""`reset`: begin a query anew at chosen offsets, with empty or kept state, as one plan.

Kafka's reset tools move offsets and leave state and results to the user; here they go together. A
new generation begins; the live checkpoint stays as it is.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Literal

from savepoints import faults
from savepoints.checkpoint.logs import planned_batch
from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.errors import (
    IncompatibleError,
    NoCommittedBatchError,
    TargetExistsError,
    UsageError,
)
from savepoints.io import Location
from savepoints.model import new_id
from savepoints.moments import utc_now
from savepoints.observe.recorder import recorded
from savepoints.operations.rollback import (
    activity,
    generation_change,
    journalled,
    next_outputs,
    notes,
    recreated_topics,
    reset_offsets,
    reset_present,
    reset_versions,
    safety_savepoint,
    skipped_records,
)
from savepoints.operations.rollback.generation_change import (
    Moved,
    NewCheckpoint,
    TransitionPlan,
    Work,
)
from savepoints.operations.rollback.next_outputs import Outputs
from savepoints.operations.rollback.query_context import QueryContext
from savepoints.operations.rollback.reset_present import ResetPresent
from savepoints.outputs.rewind import plan_text
from savepoints.outputs.rewind.planned_rewind import Rewind
from savepoints.plan import Progress, Step, silent
from savepoints.runtime import app as apps
from savepoints.runtime.archive_batches import ArchivedInputs
from savepoints.runtime.archive_of import merges, of_other_topics
from savepoints.runtime.inputs import Inputs
from savepoints.sources.combined import available_ranges
from savepoints.sources.kafka.reset_targets import Move, Target, TargetScope
from savepoints.store import bindings
from savepoints.store.root import Store
from savepoints.store.savepoint import native
from savepoints.store.tables.merge_ledger import Merge
from savepoints.texts import count_text, watermark_text

VERB = "reset"

State = Literal["empty", "keep"]


@dataclass(frozen=True, kw_only=True)
class ResetPlan(TransitionPlan):
    """What `reset` is going to do.

    Attributes:
        state: Whether the new generation begins without state or with the present one.
        moves: The move of each partition.
        sources: Directory below `sources/` and position of each source, as Spark's JSON.
        asked: The request, to tell a repeated one from a new one.
        first_id: Id of the first savepoint of the new generation, with the kept state where the
            query was moved to; None without state.
    """

    asked: str = ""
    state: State = "empty"
    moves: tuple[Move, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    first_id: str | None = None

    @property
    def offsets(self) -> KafkaOffsets:
        """Where the query will go on."""
        return reset_offsets.offsets(self.moves)


@dataclass(frozen=True)
class _Request:
    """What a reset is asked for; see `plan`."""

    target: Target | datetime
    state: State
    outputs: Outputs
    scope: TargetScope | None
    skipped: tuple[str, ...]
    allow_data_loss: bool
    to: str | None
    save_present: bool

    @property
    def text(self) -> str:
        """By what a repeated request is recognised."""
        # A time is left out: `--by-duration` means another one each time it is said.
        exactly = None if isinstance(self.target, datetime) else self.target
        rest = (self.state, self.outputs, self.scope, self.skipped, self.allow_data_loss, self.to)
        # Only where it is asked for: the texts in older journals say nothing of it.
        unsaved = () if self.save_present else ("unsaved",)
        return repr((exactly, *rest, *unsaved))

    @property
    def is_absolute(self) -> bool:
        """Whether no partition stays where it is, or goes to a place that depends on that."""
        kind = "time" if isinstance(self.target, datetime) else self.target.kind
        return kind not in {"current", "shift"} and self.scope is None

    @property
    def gives_up(self) -> bool:
        """Whether nothing of the present checkpoint is asked for."""
        return self.state == "empty" and not self.save_present


@dataclass(frozen=True)
class _Way:
    """From where to where a query goes.

    Attributes:
        now: Where it stands, and from where records are counted.
        begin_at: Where each source begins, as Spark's JSON.
        moves: Of each partition; none of tables.
        notes: Of topics that were recreated, and of sources that are apart.
    """

    now: ResetPresent
    begin_at: tuple[str, ...]
    moves: tuple[Move, ...] = ()
    notes: tuple[str, ...] = ()


def plan(
    store: Store,
    query: str,
    target: Target | datetime,
    *,
    state: State = "empty",
    outputs: Outputs = "keep",
    scope: TargetScope | None = None,
    skipped: Sequence[str] = (),
    allow_data_loss: bool = False,
    to: str | None = None,
    save_present: bool = True,
    words: Sequence[str] = (),
    stopped: bool = False,
) -> ResetPlan:
    """Plan a reset, or refuse what cannot be done exactly; nothing is written.

    Args:
        target: Where to go; a time means Kafka's position then, by the timestamps of its records.
            The earliest is that of the archive, if the query has one.
        state: Begin without state, or keep that of the newest committed batch.
        outputs: Leave them, empty them, or rewind them to a savepoint at exactly the target.
        scope: Partitions to move; the others stay where they are.
        skipped: Topics that go to their end instead of the target.
        allow_data_loss: Accept that Kafka no longer has the first records, or partitions and topics
            that were read, as those that were recreated since.
        to: Checkpoint directory of the new generation, for a query that is not in the settings.
        save_present: Whether to take a safety savepoint; without it, the reset cannot be undone.
        words: The request as command-line arguments, by which a repeated one is recognised.
        stopped: You have made sure that no driver runs the query; see `activity`.

    Raises:
        QueryRunningError: If the query runs in a driver that holds no lease of it, or may.
        LockedError: If another verb has the query.
        UnfinishedOperationError: If another operation on the query was interrupted.
        UsageError: If an offset is out of range, or a topic or partition unknown.
        SourceDataGoneError: If records from the target on are gone from Kafka and in no archive,
            or compacted; if a topic was deleted and recreated.
        NotFoundError: If events of a merge that is to be read again are in no archive.
        IncompatibleError: If a source is not Kafka's.
        NoCommittedBatchError: If state is to be kept and there is none.
        NotAlignedError: If the outputs cannot be taken to where they belong.
    """
    store = store.snapshot()
    command = shlex.join(["savepoints", VERB, query, *words, "--yes"])
    asked = _Request(
        target, state, outputs, scope, tuple(skipped), allow_data_loss, to, save_present
    )
    activity.refuse_worked_on(store.root, query)
    if (known := journalled.begun(ResetPlan, store, query, VERB, command)) is not None:
        if known.asked != asked.text:
            raise journalled.begun_otherwise(known, store, "with another target or other options")
        return known
    context = QueryContext.open(store, query)
    now = reset_present.of(context, is_absolute=asked.is_absolute, given_up=asked.gives_up)
    assumed = activity.refuse_active(context, stopped=stopped)
    way = _way_of_tables(context, now, asked) if now.tables else _way(context, now, asked)
    again = _merged_again(context, reset_offsets.offsets(way.moves))
    _require_state(query, now, asked)
    checkpoint = context.checkpoint(to)
    rewound = next_outputs.of_reset(
        context,
        outputs,
        goes_on_after=now.batch_id if state == "keep" else None,
        begun=now.begun,
        begin_at=way.begin_at,
    )
    present = context.present(saved=save_present)
    first = new_id("sp", utc_now()) if state == "keep" else None
    return ResetPlan(
        **context.leaving(present),
        verb=VERB,
        steps=(
            *safety_savepoint.step(present.safety_id, context.current.checkpoint, present.batch_id),
            *_steps(context, way, state, checkpoint, rewound),
            *safety_savepoint.first_step(first, context.number),
        ),
        warnings=(
            *assumed,
            *notes.of_place(context.current.checkpoint, checkpoint),
            *notes.of_present(context.current.checkpoint, present, VERB),
            *now.notes,
            *way.notes,
            *_warnings(context, way, again, asked, rewound),
        ),
        command=command,
        savepoint_id=present.safety_id if state == "keep" else None,
        checkpoint=checkpoint,
        outputs=rewound,
        binding=bindings.find(store.root, query, context.current.generation),
        asked=asked.text,
        state=state,
        moves=way.moves,
        sources=_sources(way, state),
        first_id=first,
    )


@recorded
def execute(plan: ResetPlan, store: Store, *, progress: Progress = silent) -> Moved:
    """Reset, holding the query's lease; goes on where an earlier attempt was killed.

    Raises:
        QueryRunningError: If the query runs, or its checkpoint changed since the plan.
        LockedError: If another verb has the query.
        UnfinishedOperationError: If another operation was begun since the plan.
        TargetExistsError: If the new checkpoint's directory is taken.
    """
    write = partial(_write_empty, plan)
    if plan.state == "keep":
        sources = tuple(position for _, position in plan.sources)
        write = partial(
            generation_change.restored, plan, store, sources=sources, progress=progress,
        )  # fmt: skip
    first = generation_change.first_savepoint(plan, plan.first_id, store, progress)
    return generation_change.execute(plan, store, Work(write, follow=first), progress=progress)


def _write_empty(plan: ResetPlan) -> NewCheckpoint:
    """Write where each source begins; Spark makes the rest when the query is first started."""
    begun = time.monotonic()
    target = Location.of(plan.checkpoint)
    if not native.claim(target, f"{VERB} {plan.operation_id}"):
        raise TargetExistsError(
            f"{target} has already been used: a query was started from it",
            hint="name a new directory with --to; nothing was overwritten",
        )
    faults.reach("reset.claimed")
    for name, position in plan.sources:
        target.put(f"sources/{name}/0", planned_batch.initial_position(position))
    written = sum(info.size for info in target.list("sources"))
    return NewCheckpoint(time.monotonic() - begun, written)


def _sources(way: _Way, state: State) -> tuple[tuple[str, str], ...]:
    if state == "keep":
        return tuple(zip(way.now.names, way.begin_at, strict=True))
    if way.now.tables:
        return ()  # Read from their beginning, which Spark does by itself.
    return reset_offsets.by_directory(way.now.names, way.begin_at, way.now.initial)


def _way_of_tables(context: QueryContext, now: ResetPresent, asked: _Request) -> _Way:
    reset_versions.require_whole(asked.target, asked.state, asked.scope, asked.skipped)
    if asked.state == "empty":
        return _Way(now, reset_versions.beginnings(now.tables))
    begin_at = reset_versions.resolve(
        asked.target,
        now.tables,
        context.bound,
        query=context.query,
        allow_data_loss=asked.allow_data_loss,
    )
    return _Way(now, begin_at)


def _way(context: QueryContext, now: ResetPresent, asked: _Request) -> _Way:
    lossy = asked.allow_data_loss
    recreated = recreated_topics.find(now.positions, context, allow_data_loss=lossy)
    mine = recreated_topics.forgotten(now.positions, recreated)
    is_whole = asked.state == "empty" and asked.scope is None and not asked.skipped
    level = reset_offsets.leveled(mine, asked.target, is_whole=is_whole)
    moves = reset_offsets.resolve(
        asked.target, level, context, asked.scope, asked.skipped, allow_data_loss=lossy
    )
    return _Way(
        replace(now, positions=level),
        reset_offsets.begin_at(level, moves),
        moves,
        (*recreated_topics.notes(recreated), *reset_offsets.note_of_level(mine, level)),
    )


def _require_state(query: str, now: ResetPresent, asked: _Request) -> None:
    if asked.state == "empty":
        return
    if not asked.save_present:
        raise UsageError(
            "there would be no safety savepoint to keep the state from",
            hint="start with empty state, --state empty; or omit --no-safety-savepoint",
            query=query,
        )
    if now.batch_id is None:
        raise NoCommittedBatchError(
            f"{query} has no committed batch, so there is no state to keep",
            hint="omit --state to start with empty state",
            query=query,
        )


def _steps(
    context: QueryContext,
    way: _Way,
    state: State,
    checkpoint: str,
    outputs: Sequence[Rewind],
) -> tuple[Step, ...]:
    begins = "empty state" if state == "empty" else f"the state of batch {way.now.batch_id}"
    starts = "; ".join(way.begin_at)
    return (
        Step("checkpoint_written", f"write {checkpoint} with {begins}, to start at {starts}"),
        *next_outputs.output_steps(outputs),
        Step("generation_begun", f"begin generation {context.number} of {context.query}"),
    )


def _not_again(merge: Merge, topics: Sequence[str]) -> str:
    other = ", ".join(sorted(merge.offsets.keys() - set(topics)))
    return (
        f"{count_text(merge.rows, 'event')} from the merge {merge.id} will not be read again: the "
        f"query read {other} at that time, so the place in the current inputs is unknown"
    )


def _merged_again(context: QueryContext, to: KafkaOffsets) -> tuple[Merge, ...]:
    """Return the merges whose events lie after the new position, and will be read there again."""
    query, bound = context.query, context.bound
    found = merges(context.store, query, context.current.generation, to)
    if not found:
        return ()
    if bound is None:
        raise IncompatibleError(
            f"late events were merged into {query} beyond the position it would be reset to (for "
            f"example by merge {found[0].id}), but it is unknown which inputs they belong to",
            hint=f"add a section [queries.{query}] with app and archives to the settings",
            query=query,
            merges=[one.id for one in found],
        )
    application = apps.load_for(query, bound)
    inputs = Inputs(application, bound, context.settings.kafka)
    return ArchivedInputs(inputs, found).require_replayable(to)


def _warnings(
    context: QueryContext,
    way: _Way,
    merged: Sequence[Merge],
    asked: _Request,
    rewound: Sequence[Rewind],
) -> Iterator[str]:
    again = sum(max(one.records, 0) for one in way.moves)
    yield from _read_besides(way.moves, merged)
    if asked.state == "keep" and again:
        yield f"{count_text(again, 'record')} will be applied to the kept state twice"
        if way.now.watermark_ms:
            reached = watermark_text(way.now.watermark_ms)
            yield f"the kept watermark is {reached}: earlier rows will be dropped as late"
    if way.now.tables:
        yield reset_versions.note(way.now.tables, way.begin_at, asked.state)
    if left_out := sum(max(-one.records, 0) for one in way.moves):
        yield f"{count_text(left_out, 'record')} will be skipped"
    yield from reset_offsets.notes(way.now.positions, way.moves)
    if asked.outputs == "keep":
        yield from _of_kept_outputs(context, again)
    for one in rewound:
        yield from plan_text.notes(one)
    number, to = context.current.generation, reset_offsets.offsets(way.moves)
    foreign = of_other_topics(context.store, context.query, number, to)
    yield from notes.of_topics(context.store, context.query)
    yield from skipped_records.read_again(context.store, context.query, to)
    for merge in foreign:
        yield _not_again(merge, way.now.topics)


def _read_besides(moves: Sequence[Move], merged: Sequence[Merge]) -> Iterator[str]:
    """Say what is read again that Kafka does not have, or not in its order."""
    if archived := sum(one.from_archive for one in moves):
        yield available_ranges.read_from_archive(archived, sum(one.end - one.to for one in moves))
    if merged:
        rows, listed = sum(one.rows for one in merged), ", ".join(one.id for one in merged)
        yield (
            f"{count_text(rows, 'event')} from {count_text(len(merged), 'merge')} "
            f"({listed}) will also be read again, in order of event time; to exclude a "
            "merge, first roll back to before it"
        )


def _of_kept_outputs(context: QueryContext, again: int) -> Iterator[str]:
    if not context.written_uris:
        yield (
            "no output table is known by the settings or the newest savepoint: if there are any, "
            "they are left unchanged"
        )
    elif again:
        yield (
            f"the outputs are kept, so the rows of {count_text(again, 'record')} will "
            "be written twice"
        )
