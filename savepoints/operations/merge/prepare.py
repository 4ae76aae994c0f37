"""Finding out what a merge is going to do, while the query runs."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from savepoints.checkpoint import position as checkpoint_position
from savepoints.checkpoint.cut import CutFiles, read_cut
from savepoints.checkpoint.logs.kafka_position import lowest_offsets
from savepoints.config.settings import Settings
from savepoints.errors import (
    NotAlignedError,
    SourceDataGoneError,
    UnfinishedOperationError,
    UsageError,
)
from savepoints.io import Location
from savepoints.model import Generation, new_id
from savepoints.moments import require_zone, rfc3339, utc_now
from savepoints.operations.merge import affected, assignment, dropped, plan_steps, source_ends
from savepoints.operations.merge.assignment import Assignment
from savepoints.operations.merge.live_query import LiveQuery
from savepoints.operations.merge.plan import (
    APPEND,
    PAUSED_FOR,
    VERB,
    AppendingPlan,
    MergePlan,
    MergingPlan,
)
from savepoints.operations.merge.workspace import FEW_ROWS, Workspace
from savepoints.operations.rollback import journalled, notes
from savepoints.operations.run import pause
from savepoints.operations.savepoint import forms
from savepoints.plan import Progress, silent
from savepoints.runtime import app as apps
from savepoints.runtime import compatibility, written_outputs
from savepoints.runtime.app import App
from savepoints.runtime.inputs import Inputs
from savepoints.sources.events.events import EVENT
from savepoints.sources.kafka import produce_late
from savepoints.sources.late import batch as late_batch
from savepoints.sources.late.batch import LateBatch, LateInput
from savepoints.spark import threads
from savepoints.store import bindings, scratch
from savepoints.store.locks import journal, lease
from savepoints.store.root import Store
from savepoints.store.tables import merge_ledger
from savepoints.store.tables.merge_ledger import MergePolicy
from savepoints.texts import count_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Late events. A merge is many small queries: even with 68,000, compiling them took longer.
_COMPILED_FROM = 1_000_000
_ONLY_ADD: Mapping[MergePolicy, str] = {
    "append": "nothing can be removed from a topic",
    "merge-function": "no function can remove an event from a state that includes it",
}


@dataclass(frozen=True)
class Prepared:
    """A plan, and what was found out for it, which the execution goes on with.

    Attributes:
        work: Where what was found out lies; see `scratch.work_of`.
        assignment: Its new events, their entities, and where these are replayed from; None when
            there is nothing to do.
        seconds: How long that took.
    """

    plan: MergePlan
    work: Location
    late: LateBatch
    assignment: Assignment | None
    app: App
    settings: Settings
    seconds: float


@dataclass(frozen=True)
class MergeRequest:
    """What a merge is asked for; `savepoints.Query.merge` says what each of it means.

    Attributes:
        through: The corrections are for the readers of the tables, too.
    """

    query: str
    batch: str | None
    input_name: str | None = None
    controls: int | None = None
    quarantine: str | None = None
    policy: MergePolicy = "exact"
    until: datetime | None = None
    since: datetime | None = None
    partial_history: bool = False
    across_promotions: bool = False
    through: bool = False

    def __post_init__(self) -> None:
        """Refuse times without a time zone."""
        for name, moment in (("until", self.until), ("since", self.since)):
            if moment is not None:
                require_zone(moment, name)

    def refuse_contradictions(self) -> None:
        """Refuse options that cannot be combined."""
        if self.batch is None and self.policy != "exact":
            raise UsageError(
                f"--dropped cannot be combined with --policy {self.policy}, because the query has "
                "already read the dropped events",
                hint="omit --policy",
                query=self.query,
            )
        if self.partial_history and (self.batch is None or self.policy in {"append", "replay-all"}):
            what = "--dropped" if self.batch is None else f"--policy {self.policy}"
            raise UsageError(
                f"--partial-history cannot be combined with {what}",
                hint="use it with --batch and --policy exact or merge-function",
                query=self.query,
            )
        if self.across_promotions and self.policy in {"append", "merge-function"}:
            raise UsageError(
                f"--across-promotions cannot be combined with --policy {self.policy}, which "
                "replays nothing",
                hint="use it with --policy exact or replay-all",
                query=self.query,
            )

    @property
    def command(self) -> str:
        """The same as a command line, by which an interrupted merge is known again."""
        words = ["savepoints", "merge", self.query]
        words += ["--dropped"] if self.batch is None else ["--batch", self.batch]
        words += ["--since", rfc3339(self.since)] if self.since is not None else []
        words += ["--input", self.input_name] if self.input_name else []
        words += ["--controls", str(self.controls)] if self.controls is not None else []
        words += ["--quarantine", self.quarantine] if self.quarantine else []
        words += ["--policy", self.policy] if self.policy != "exact" else []
        words += ["--until", rfc3339(self.until)] if self.until is not None else []
        words += ["--partial-history"] if self.partial_history else []
        words += ["--across-promotions"] if self.across_promotions else []
        words += ["--downstream", "merge"] if self.through else []
        return shlex.join([*words, "--yes"])


def prepare(
    store: Store, asked: MergeRequest, *, progress: Progress = silent
) -> MergePlan | Prepared:
    """Read the batch and find out what it concerns; nothing is written.

    Returns:
        A plan alone when an interrupted merge is to be finished.

    Raises:
        SourceDataGoneError: If neither archive nor Kafka has the events before.
    """
    query = asked.query
    asked.refuse_contradictions()
    with lease.hold_merging(store.root, query):  # Another one is refused before Spark is started.
        if (begun := _unfinished(store, query)) is not None:
            return _resumed(begun, store, asked.command)
        let_go_on(store, query, progress)
    return _find_out(store, asked, progress)


def _find_out(store: Store, asked: MergeRequest, progress: Progress) -> Prepared:
    """Read the batch and plan the merge; what was made for it is removed if that fails."""
    begun = time.monotonic()
    settings = bindings.complete(store)
    live, cut = _live(store, settings, asked, progress)
    name = live.inputs.input(asked.input_name)
    progress("reading the batch (starts Spark if it is not running)")
    from savepoints.spark.session import session, session_for

    whole = session(settings, f"savepoints merge {asked.query}")
    few = session_for(whole, 0)
    operation_id = new_id("op", utc_now())
    work = scratch.work_of(store, operation_id, whole)
    assigned = None
    try:
        late = _read(few, asked, live, name, work, progress)
        plan = _plan(asked, late, live, name, operation_id, cut)
        if plan.merged_by is None and late.rows:
            progress("finding the affected entities")
            found = affected.find(
                Workspace(
                    session_for(whole, None) if _is_large(asked, late) else few,
                    work,
                    few=late.rows <= FEW_ROWS and asked.policy != "replay-all",
                ),
                live,
                name,
                _events(late, asked, operation_id),
                batch=late,
                merge_id=operation_id,
                controls=_controls(asked, settings),
            )
            plan = plan_steps.with_affected(plan, found)
            if found.rows:
                assigned = assignment.assign(found, asked.policy)
                plan = plan_steps.complete(plan, assigned, cut)
    except BaseException as error:
        scratch.discard(store, operation_id, work)
        if isinstance(error, SourceDataGoneError) and not asked.partial_history:
            live.refuse_partial()
        raise
    app, seconds = live.inputs.app, time.monotonic() - begun
    return Prepared(plan, work, late, assigned, app, settings, seconds)


def _live(
    store: Store, settings: Settings, asked: MergeRequest, progress: Progress
) -> tuple[LiveQuery, CutFiles]:
    """Return the query, where its program can be given late events, and its newest batch."""
    live = store.generations.current(asked.query)
    bound = settings.bound(asked.query, "its program and sources are unknown")
    inputs = Inputs(apps.load_for(asked.query, bound), bound, settings.kafka)
    name = inputs.input(asked.input_name)
    cut = read_cut(Location.of(live.checkpoint))
    position = lowest_offsets(cut.cut.offsets)
    if asked.policy == "append":
        # What is in the topic already is not produced again, though nobody has read it.
        position |= produce_late.ends(settings.kafka, inputs.topic(name))
    else:
        inputs.archive(name)
        # What Kafka has of a recreated topic are not the events that the query has read.
        compatibility.require_same_topics(store, live, settings.kafka, progress, has_all=False)
        source_ends.require_one_position(asked.query, cut)
        forms.require_rows(asked.query, cut)
    found = LiveQuery.read(
        store,
        inputs,
        live,
        position,
        partial_history=asked.partial_history,
        across_promotions=asked.across_promotions,
    )
    if asked.policy != "append":
        found.refuse_compacted()
    return found, cut


def _read(
    spark: SparkSession,
    asked: MergeRequest,
    live: LiveQuery,
    name: str,
    place: Location,
    progress: Progress,
) -> LateBatch:
    """Read the batch and check its rows."""
    aside = None if asked.quarantine is None else place / scratch.SET_ASIDE
    if asked.batch is None:
        live.inputs.require_same_decoding(spark)
        found = dropped.find(spark, live, place / "read", since=asked.since, progress=progress)
        late = late_batch.replacing(found.events[name], found.again[name], aside)
        return replace(late, notes=found.notes)
    inputs = live.inputs
    source = LateInput(
        name, inputs.topic(name), inputs.decoding(name), inputs.app.kafka_input(name).encode
    )
    with threads.pool() as pool:
        # What is appended is compared with nothing, and nothing in it is too new.
        compared = asked.policy != "append"
        same = pool.submit(lambda: inputs.require_same_decoding(spark) if compared else None)
        clock = pool.submit(lambda: live.clock(spark, name, live.until) if compared else None)
        late = late_batch.read(
            spark,
            asked.batch,
            source,
            place / "read",
            at=utc_now(),
            clock=clock.result,
            before=asked.until,
            quarantine=aside,
        )
        same.result()
    return late


def _is_large(asked: MergeRequest, late: LateBatch) -> bool:
    return asked.policy == "replay-all" or late.rows >= _COMPILED_FROM


def _events(late: LateBatch, asked: MergeRequest, merge_id: str) -> DataFrame:
    """Return the events of a batch as the archive would have them: columns of `archive.SCHEMA`."""
    found = late.events.selectExpr(*EVENT, f"'{merge_id}' as merge_id", "op")
    if asked.policy not in _ONLY_ADD:
        return found
    if late.removed:
        raise UsageError(
            f"the batch removes or replaces {count_text(late.removed, 'event')}, but "
            f"{_ONLY_ADD[asked.policy]}",
            hint=f"omit --policy {asked.policy}",
            query=asked.query,
        )
    if asked.policy == "append":
        produce_late.require_timestamps(found)
    return found


def _controls(asked: MergeRequest, settings: Settings) -> int:
    if asked.policy != "exact":
        return 0
    return settings.merge.controls if asked.controls is None else asked.controls


def _plan(
    asked: MergeRequest,
    late: LateBatch,
    live: LiveQuery,
    name: str,
    operation_id: str,
    cut: CutFiles,
) -> MergePlan:
    """Return what is known of a merge before its events are compared with the query's."""
    same = merge_ledger.find_same_batch(live.merges[-1:], name, late.content_hash)
    app, bound = live.inputs.app, live.inputs.bound
    return MergePlan(
        verb=VERB,
        query=asked.query,
        steps=(),
        warnings=(
            *plan_steps.of_batch(late, asked.until),
            *(() if asked.policy == "append" else notes.of_next(live.store, asked.query, bound)),
        ),
        command=asked.command,
        operation_id=operation_id,
        input=name,
        batch=merge_ledger.DROPPED if asked.batch is None else asked.batch,
        content_hash=late.content_hash,
        set_aside=sum(one.rows for one in late.rejected),
        quarantine=asked.quarantine,
        known=late.rows + late.seen,
        policy=asked.policy,
        until=asked.until,
        left_out=late.left_out,
        generation=live.generation,
        operators=tuple(f"{one.operator_id} ({one.name})" for one in cut.operators),
        outputs=tuple(bound.outputs[one] for one in app.outputs),
        merged_by=None if same is None else same.id,
    )


def _unfinished(store: Store, query: str) -> MergingPlan | AppendingPlan | None:
    """Return the merge of a query that was interrupted after its journal began."""
    operation = journal.unfinished(store.root, query)
    if operation is None:
        return None
    if operation.verb == APPEND:
        return AppendingPlan.from_json(operation.plan)
    if operation.verb != VERB or journal.UNDOING in operation.done:
        raise journal.refusal(store.root, operation)
    return MergingPlan.from_json(dict(operation.plan))


def _resumed(begun: MergingPlan | AppendingPlan, store: Store, command: str) -> MergePlan:
    """Return a merge that was interrupted, if it is the same one."""
    if without_since(begun.command) != without_since(command):
        raise UnfinishedOperationError(
            f"the merge {begun.operation_id} of {begun.query} was interrupted (it was started "
            f"with: {begun.command})",
            hint=journalled.reopen(begun, store).operation.ways_out(
                store.root,
                f"finish it: savepoints operations resume {begun.operation_id}",
            ),
            operation=begun.operation_id,
        )
    return MergePlan(
        verb=VERB,
        query=begun.query,
        steps=begun.steps,
        warnings=begun.warnings,
        command=command,
        operation_id=begun.operation_id,
        input=begun.facts.input,
        batch=begun.facts.batch,
        content_hash=begun.facts.content_hash,
        **begun.facts.counts(),
        outputs=(
            tuple(one.live.output.uri for one in begun.corrections)
            if isinstance(begun, MergingPlan)
            else ()
        ),
        generation=begun.generation - isinstance(begun, MergingPlan),
        begun=begun,
    )


def without_since(command: str) -> list[str]:
    """Return a command's words without `--since`: an age is another time when it is given again."""
    words = shlex.split(command)
    at = words.index("--since") if "--since" in words else len(words)
    return words[:at] + words[at + 2 :]


def let_go_on(store: Store, query: str, progress: Progress) -> None:
    """Let a query go on that a merge has paused which was killed then."""
    now = pause.state(store, query)
    if now.wanted == "paused" and now.reason.startswith(PAUSED_FOR):
        progress(f"resuming {query}, which was paused for a merge that was killed")
        pause.resume(store, query, progress=progress)


def require_no_batch_written(inputs: Inputs, live: Generation) -> None:
    """Refuse a query that died in a batch of which some outputs have the rows already.

    A busy run begins a batch before it sees that it is to pause, and writes nothing of it: the next
    generation reads the same records again.
    """
    checkpoint = Location.of(live.checkpoint)
    begun = checkpoint_position.read(checkpoint).begun
    if begun is None:
        return
    written = written_outputs.find(inputs, live.generation, checkpoint, begun)
    if written:
        raise NotAlignedError(
            f"batch {begun} of {live.query} was started but not finished, and its rows are "
            f"already in {inputs.bound.outputs[written[0]]}",
            hint=f"finish the batch: savepoints run {live.query} --until latest",
            query=live.query,
            batch_id=begun,
        )
