"""`merge`: late events worked into live state and outputs, as if they had come in time.

1. Beside the running query the events that are new are found (`affected`), and the newest savepoint
   from before its late events for each entity (`assignment`). These entities, and control entities
   besides, are replayed from there through the application's own code, up to where the query is.
2. The control entities must equal those of the query, state and output rows (`controls`): otherwise
   they are replayed batch by batch (`replay_strategy`), and then the merge is refused.
3. The query is paused between two batches, and what has arrived since is replayed.
4. Its next generation begins with the replayed state of these entities (`generation_plan`), the
   outputs are corrected (`apply`), and the run that was paused resumes.

Killed before step 4 the same command starts over; in step 4 it resumes by its journal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timedelta

from savepoints import faults
from savepoints.checkpoint.cut import committed_in, read_cut
from savepoints.checkpoint.logs.kafka_position import kafka_position, lowest_offsets
from savepoints.io import Location
from savepoints.moments import utc_now
from savepoints.observe.recorder import recording
from savepoints.operations.merge import append, apply, generation_plan, result
from savepoints.operations.merge.assignment import Assignment
from savepoints.operations.merge.functions import LateReplay
from savepoints.operations.merge.plan import (
    APPEND,
    PAUSED_FOR,
    VERB,
    AppendingPlan,
    MergePlan,
    MergingPlan,
)
from savepoints.operations.merge.prepare import Prepared, prepare, require_no_batch_written
from savepoints.operations.merge.replay import replay_strategy
from savepoints.operations.merge.replay.entity_replay import MergeReplay
from savepoints.operations.merge.replay.shadow_replay import ShadowReplay
from savepoints.operations.merge.result import Merged
from savepoints.operations.rollback.generation_change import Moved
from savepoints.operations.run import pause, pause_for_verb
from savepoints.operations.savepoint import create, export
from savepoints.plan import Progress, silent
from savepoints.sources.kafka import produce_late
from savepoints.store import scratch
from savepoints.store.locks import journal, lease
from savepoints.store.root import Store
from savepoints.store.tables.merge_ledger import DROPPED, MergeFacts, ReplayStrategy

# The replay runs after the query until so few batches are left that the pause will be short.
_FEW_BATCHES = 2
_MOST_ROUNDS = 5

__all__ = ["MergePlan", "Merged", "Prepared", "drop", "execute", "finish", "prepare", "undo"]


def execute(
    prepared: Prepared | MergePlan,
    store: Store,
    *,
    wait: timedelta = timedelta(minutes=10),
    before: Callable[[MergingPlan], None] = lambda _: None,
    progress: Progress = silent,
) -> Merged:
    """Merge.

    Args:
        prepared: From `prepare`; a plan alone finishes a merge that was interrupted.

    Raises:
        LockedError: If another merge of the query is under way, or another verb has it.
        CheckFailedError: If a control entity comes out otherwise than the query has it.
        NotAlignedError: If the query has begun another generation since the plan, or others have
            written to an output.
        PartlyDoneError: If the query does not pause, or does not continue, within the time.
    """
    started = time.monotonic()
    if isinstance(prepared, MergePlan):
        assert prepared.begun is not None
        if isinstance(prepared.begun, AppendingPlan):
            append.finish(prepared.begun, store, progress=progress)
            return result.appended(prepared.begun, started)
        moved = finish(prepared.begun, store, wait=wait, progress=progress)
        return result.finished(store, prepared.begun, moved, started)
    plan, assignment = prepared.plan, prepared.assignment
    started -= prepared.seconds
    if assignment is None:
        _set_aside(prepared)
        drop(prepared, store)
        if plan.batch == DROPPED:
            _note_nothing(plan, store)
        return result.nothing(plan, started)
    with (
        recording(
            store,
            VERB,
            query=plan.query,
            operation=plan.operation_id,
            parameters={
                "batch": plan.batch,
                "entities": plan.entities,
                **plan.size(plan.way).parameters,
            },
        ) as noted,
        pause_for_verb.ended_by_signals(),
        lease.hold_merging(store.root, plan.query),
    ):
        try:
            if plan.policy == "append":
                return _append(prepared, assignment, store, progress, started)
            done = _merge(prepared, assignment, store, wait, before, progress, started)
            if done.way is not None:
                noted.note(parameters={**noted.event.parameters, "way": done.way})
            return done
        finally:
            drop(prepared, store)


def _note_nothing(plan: MergePlan, store: Store) -> None:
    """Record that nothing was left to merge, so that a schedule shows when it last succeeded."""
    parameters = {"batch": plan.batch, "rows": 0}
    with recording(
        store, VERB, query=plan.query, operation=plan.operation_id, parameters=parameters
    ) as noted:
        noted.note(message="nothing to merge")


def drop(prepared: Prepared | MergePlan, store: Store) -> None:
    """Let go of what was found out for a merge, unless that is to be finished with it."""
    if isinstance(prepared, MergePlan):
        return
    operation = journal.unfinished(store.root, prepared.plan.query)
    if operation is None or operation.id != prepared.plan.operation_id:
        scratch.discard(store, prepared.plan.operation_id, prepared.work)


def finish(
    begun: MergingPlan,
    store: Store,
    *,
    wait: timedelta = timedelta(minutes=10),
    progress: Progress = silent,
) -> Moved:
    """Finish the journalled part of a merge that was interrupted."""
    with (
        lease.hold_merging(store.root, begun.query),
        lease.hold(store.root, begun.query, VERB) as held,
    ):
        moved = apply.carry_out(begun, store, held, progress=progress)
    if begun.paused:
        pause.resume(store, begun.query, wait=wait, progress=progress)
    return moved


def undo(begun: MergingPlan, store: Store, *, progress: Progress = silent) -> None:
    """Take back the journalled part of a merge that was interrupted.

    A run of the query that was paused for it goes on, as if nothing had happened.

    Raises:
        UsageError: If the new generation has begun.
        NotAlignedError: If others have written to an output since.
    """
    with lease.hold_merging(store.root, begun.query):
        apply.undo(begun, store, progress=progress)


def _merge(
    prepared: Prepared,
    assignment: Assignment,
    store: Store,
    wait: timedelta,
    before: Callable[[MergingPlan], None],
    progress: Progress,
    started: float,
) -> Merged:
    """Replay beside the query, then splice while it stands still; its merge lease is held."""
    plan, work = prepared.plan, prepared.work
    place = scratch.claim(store, plan.operation_id)
    with ExitStack() as needed:
        for savepoint_id in assignment.savepoint_ids:
            needed.enter_context(store.using(savepoint_id, VERB))
        apply.refuse_other_generation(store, plan.query, plan.generation)
        replay = _replay(prepared, assignment, store, place / "cut", needed, progress)
        _catch_up(replay, assignment.live.checkpoint)
        apply.write_inputs(assignment, work)
        _set_aside(prepared)
        needed_later = (scratch.EVENTS, scratch.ENTITIES, *replay.results)
        shared = scratch.share(work, place, needed_later)
        still = pause_for_verb.kept(
            store, plan.query, reason=f"{PAUSED_FOR}{plan.batch}", wait=wait, progress=progress
        )
        with still as since:
            faults.reach("merge.paused")
            with lease.hold(store.root, plan.query, VERB) as held:
                splicing = _plan_splice(prepared, assignment, replay, store, since)
                scratch.share(work, place, needed_later, shared=shared)
                before(splicing)
                held.check()
                moved = apply.carry_out(splicing, store, held, progress=progress)
        pause_seconds = None if since is None else (utc_now() - since).total_seconds()
        return result.finished(store, splicing, moved, started, pause_seconds)


def _replay(
    prepared: Prepared,
    assignment: Assignment,
    store: Store,
    cut: Location,
    needed: ExitStack,
    progress: Progress,
) -> ShadowReplay:
    """Save the query where it stands, and replay up to there; it goes on meanwhile.

    Even without controls it is seen whether the rows of the outputs are those of the entities.
    """
    plan, work = prepared.plan, prepared.work
    proof = create.save(
        store,
        plan.query,
        kind="merge",
        description=f"the live query that {plan.operation_id} was compared with",
    )
    needed.enter_context(store.using(proof.id, VERB))
    export.mount(store.manifest(proof.id), store, cut)
    if plan.policy == "exact":
        return replay_strategy.replayed(
            assignment, prepared.settings, work, cut, proof, plan.against_short, progress
        )
    if plan.policy == "merge-function":
        alone = LateReplay(assignment, work, cut, progress, None)
        alone.run()
        alone.try_out()
        faults.reach("merge.replayed")
        return alone
    replay = MergeReplay(assignment, work, cut, progress, None, proof)
    replay.run({})
    faults.reach("merge.replayed")
    return replay


def _catch_up(replay: ShadowReplay, checkpoint: Location) -> None:
    """Replay what the query has run since, while it goes on, until only little is left."""
    for _ in range(_MOST_ROUNDS):
        newest = _newest(checkpoint)
        if newest - replay.batch <= _FEW_BATCHES:
            return
        replay.follow(checkpoint, newest)


def _plan_splice(
    prepared: Prepared,
    assignment: Assignment,
    replay: ShadowReplay,
    store: Store,
    since: datetime | None,
) -> MergingPlan:
    """Replay the last batches of a query that stands still, and plan its next generation."""
    plan = prepared.plan
    journal.refuse_unfinished(store.root, plan.query)
    apply.refuse_other_generation(store, plan.query, plan.generation)
    live = store.generations.current(plan.query)
    require_no_batch_written(assignment.live.inputs, live)
    checkpoint = Location.of(live.checkpoint)
    replay.follow(checkpoint, _newest(checkpoint))
    faults.reach("merge.followed")
    return generation_plan.plan(
        store,
        live,
        assignment,
        _facts(prepared, replay.strategy),
        app=prepared.app,
        replayed_batch=replay.state().files.cut.batch_id,
        entity_fields=replay.fields(),
        command=plan.command,
        still_since=since,
    )


def _newest(checkpoint: Location) -> int:
    return committed_in(checkpoint)[-1]


def _append(
    prepared: Prepared, assignment: Assignment, store: Store, progress: Progress, started: float
) -> Merged:
    plan, live = prepared.plan, assignment.live
    apply.refuse_other_generation(store, plan.query, plan.generation)
    journal.refuse_unfinished(store.root, plan.query)
    topic = live.inputs.topic(plan.input)
    since = produce_late.ends(prepared.settings.kafka, topic)
    assignment.affected.refuse_arrived(since)
    place = scratch.claim(store, plan.operation_id)
    apply.write_inputs(assignment, prepared.work)
    _set_aside(prepared)
    scratch.share(prepared.work, place, [scratch.EVENTS])
    cut = read_cut(live.checkpoint).cut
    begun = AppendingPlan(
        verb=APPEND,
        query=plan.query,
        steps=plan.steps,
        warnings=plan.warnings,
        command=plan.command,
        operation_id=plan.operation_id,
        facts=_facts(prepared, None),
        generation=plan.generation,
        batch_id=cut.batch_id,
        offsets=kafka_position(lowest_offsets(cut.offsets)),
        descent=live.descent,
        topic=topic,
        since=kafka_position(since),
        place=str(place),
    )
    append.carry_out(begun, store, progress=progress)
    return result.appended(begun, started)


def _set_aside(prepared: Prepared) -> None:
    """Put rows of the batch that are no events where somebody wants to look at them."""
    plan = prepared.plan
    if plan.quarantine is not None and plan.set_aside:
        target = Location.of(plan.quarantine) / plan.operation_id
        spark = prepared.late.events.sparkSession
        rows = spark.read.parquet((prepared.work / scratch.SET_ASIDE).uri.hadoop)
        rows.write.mode("overwrite").parquet(target.uri.hadoop)


def _facts(prepared: Prepared, way: ReplayStrategy | None) -> MergeFacts:
    plan, late = prepared.plan, prepared.late
    return MergeFacts(
        **{**plan.counts(), "way": way},
        input=plan.input,
        batch=plan.batch,
        content_hash=plan.content_hash,
        first_event_time=late.first_event_time,
        last_event_time=late.last_event_time,
    )
