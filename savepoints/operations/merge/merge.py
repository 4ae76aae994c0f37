"""`merge`: late events worked into live state and outputs, as if they had come in time.

1. Beside the running query: the events that are new are found, with the entities that they touch;
   these, and control entities besides, are replayed from the newest savepoint that was taken before
   what is late, through the application's own code, up to where the query stands.
2. The control entities must come out as the query has them, state and output rows: otherwise they
   are replayed batch by batch (`replay_strategy`), and then the merge is refused.
3. The query is paused between two batches, and what has arrived since is replayed.
4. Its next generation begins with the replayed state of these entities, the outputs are corrected
   (`savepoints.operations.merge.apply`), and the run that was paused goes on.

Killed before step 4 it is begun anew by the same command; in step 4 it goes on by its journal.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta

from savepoints import faults
from savepoints.checkpoint.cut import committed_batches, read_cut
from savepoints.io import Location
from savepoints.model import Generation, kafka_position, lowest_offsets, utc_now
from savepoints.observe.recorder import recording
from savepoints.operations.merge import (
    append,
    apply,
    generation_plan,
    replay_strategy,
    result,
    scratch,
)
from savepoints.operations.merge.entity_replay import MergeReplay
from savepoints.operations.merge.late_only_replay import LateReplay
from savepoints.operations.merge.plan import (
    APPEND,
    PAUSED_FOR,
    VERB,
    AppendingPlan,
    MergePlan,
    MergingPlan,
)
from savepoints.operations.merge.prepare import Prepared, prepare, require_no_batch_written
from savepoints.operations.merge.result import Merged
from savepoints.operations.merge.shadow_replay import ShadowReplay
from savepoints.operations.rollback.generation_change import Moved
from savepoints.operations.run import pause, pause_for_verb
from savepoints.operations.savepoint import create, export
from savepoints.plan import Progress, silent
from savepoints.sources.kafka import produce_late
from savepoints.store.locks import journal, lease
from savepoints.store.root import Store
from savepoints.store.tables.merge_ledger import MergeFacts, ReplayStrategy

# The replay runs after the query until so few batches are left that the pause will be short.
_FEW_BATCHES = 2
_MOST_ROUNDS = 5

__all__ = ["MergePlan", "Merged", "Prepared", "drop", "execute", "finish", "prepare", "undo"]


def execute(
    prepared: Prepared | MergePlan,
    store: Store,
    *,
    wait: timedelta = timedelta(minutes=10),
    progress: Progress = silent,
) -> Merged:
    """Merge.

    Args:
        prepared: From `prepare`; a plan alone finishes a merge that was interrupted.
        store: Where the query is.
        wait: How long to wait for the query's run to pause, and then to go on.
        progress: Called with one line for each step.

    Raises:
        LockedError: If another merge of the query is under way, or another verb has it.
        CheckFailedError: If a control entity comes out otherwise than the query has it.
        NotAlignedError: If the query has begun another generation since the plan, or others have
            written to an output.
        PartlyDoneError: If the query does not pause, or does not go on, within the time.
    """
    started = time.monotonic()
    if isinstance(prepared, MergePlan):
        assert prepared.begun is not None
        if isinstance(prepared.begun, AppendingPlan):
            append.finish(prepared.begun, store, progress=progress)
            return result.appended(prepared.begun, started)
        moved = finish(prepared.begun, store, wait=wait, progress=progress)
        return result.finished(store, prepared.begun, moved, started)
    plan = prepared.plan
    if plan.has_nothing_to_do:
        drop(prepared, store)
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
                return _append(prepared, store, progress, started)
            done = _Merge(prepared, store, wait, progress).run(started)
            if done.way is not None:
                noted.note(parameters={**noted.event.parameters, "way": done.way})
            return done
        finally:
            drop(prepared, store)


def drop(prepared: Prepared | MergePlan, store: Store) -> None:
    """Let go of what was found out for a merge, unless that is to be finished with it."""
    if isinstance(prepared, MergePlan):
        return
    operation = journal.unfinished(store.root, prepared.plan.query)
    if operation is None or operation.id != prepared.plan.operation_id:
        scratch.discard(store, prepared.plan.operation_id)


def finish(
    begun: MergingPlan,
    store: Store,
    *,
    wait: timedelta = timedelta(minutes=10),
    progress: Progress = silent,
) -> Moved:
    """Finish the journalled part of a merge that was interrupted.

    Raises:
        LockedError: If another verb has the query.
        NotAlignedError: If others have written to an output since.
    """
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


@dataclass(frozen=True)
class _Merge:
    """One merge under way; its lease is held."""

    prepared: Prepared
    store: Store
    wait: timedelta
    progress: Progress

    @property
    def plan(self) -> MergePlan:
        return self.prepared.plan

    @property
    def place(self) -> Location:
        return scratch.place_of(self.store, self.plan.operation_id)

    def run(self, started: float) -> Merged:
        with ExitStack() as needed:
            exact = self.plan.policy == "exact"
            for one in self.prepared.scope.used.values() if exact else ():
                if one.savepoint is not None:
                    needed.enter_context(self.store.using(one.savepoint.id, VERB))
            return self._run(started, needed)

    def _run(self, started: float, needed: ExitStack) -> Merged:
        scope = self.prepared.scope
        apply.refuse_other_generation(self.store, self.plan.query, self.plan.generation)
        replay = self._replayed(needed)
        self._catch_up(replay)
        apply.write_inputs(scope, self.place, self.plan.policy)
        _set_aside(self.prepared, self.place)
        still = pause_for_verb.kept(
            self.store,
            self.plan.query,
            reason=f"{PAUSED_FOR}{self.plan.batch}",
            wait=self.wait,
            progress=self.progress,
        )
        with still as since:
            faults.reach("merge.paused")
            with lease.hold(self.store.root, self.plan.query, VERB) as held:
                journal.refuse_unfinished(self.store.root, self.plan.query)
                apply.refuse_other_generation(self.store, self.plan.query, self.plan.generation)
                require_no_batch_written(
                    self.prepared.app, self.prepared.settings.queries[self.plan.query], self._live
                )
                replay.follow(self._checkpoint, self._newest)
                faults.reach("merge.followed")
                held.check()
                moving = self._moving(replay, since)
                moved = apply.carry_out(moving, self.store, held, progress=self.progress)
        pause_seconds = None if since is None else (utc_now() - since).total_seconds()
        return result.finished(self.store, moving, moved, started, pause_seconds)

    @property
    def _live(self) -> Generation:
        return self.store.generations.current(self.plan.query)

    @property
    def _checkpoint(self) -> Location:
        return Location.of(self._live.checkpoint)

    @property
    def _newest(self) -> int:
        return committed_batches(self._checkpoint.list())[-1]

    def _replayed(self, needed: ExitStack) -> ShadowReplay:
        """Save the query where it stands, and replay up to there; it goes on meanwhile.

        Even without controls it is seen whether the rows of the outputs are those of the entities.
        """
        proof = create.save(
            self.store,
            self.plan.query,
            kind="merge",
            description=f"what {self.plan.operation_id} was compared with",
        )
        needed.enter_context(self.store.using(proof.id, VERB))
        cut = self.place / "cut"
        export.mount(self.store.manifest(proof.id), self.store, cut)
        if self.plan.policy == "replay-all":
            replay = MergeReplay(self.prepared.scope, self.place, cut, self.progress, None, proof)
            replay.run({})
            faults.reach("merge.replayed")
            return replay
        if self.plan.policy == "merge-function":
            alone = LateReplay(self.prepared.scope, self.place, cut, self.progress, None)
            alone.run()
            alone.try_out()
            faults.reach("merge.replayed")
            return alone
        return replay_strategy.replayed(
            self.prepared.scope,
            self.prepared.settings,
            self.place,
            cut,
            proof,
            self.plan.against_short,
            self.progress,
        )

    def _catch_up(self, replay: ShadowReplay) -> None:
        """Replay what the query has run since, while it goes on, until only little is left."""
        for _ in range(_MOST_ROUNDS):
            if self._newest - replay.batch <= _FEW_BATCHES:
                return
            replay.follow(self._checkpoint, self._newest)

    def _moving(self, replay: ShadowReplay, since: datetime | None) -> MergingPlan:
        scope, plan = self.prepared.scope, self.plan
        return generation_plan.plan(
            self.store,
            self._live,
            scope,
            _facts(self.prepared, replay.strategy),
            app=self.prepared.app,
            replayed_batch=replay.state().files.cut.batch_id,
            entity_fields=replay.fields(),
            command=plan.command,
            still_since=since,
        )


def _append(prepared: Prepared, store: Store, progress: Progress, started: float) -> Merged:
    plan, scope = prepared.plan, prepared.scope
    apply.refuse_other_generation(store, plan.query, plan.generation)
    journal.refuse_unfinished(store.root, plan.query)
    topic = scope.inputs.topic(plan.input)
    since = produce_late.ends(prepared.settings.kafka, topic)
    scope.require_none_arrived(since)
    place = scratch.place_of(store, plan.operation_id)
    apply.write_inputs(scope, place, plan.policy)
    _set_aside(prepared, place)
    cut = read_cut(scope.checkpoint).cut
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
        descent=scope.descent,
        topic=topic,
        since=kafka_position(since),
        place=str(place),
    )
    append.carry_out(begun, store, progress=progress)
    return result.appended(begun, started)


def _set_aside(prepared: Prepared, place: Location) -> None:
    """Put rows of the batch that are no events where somebody wants to look at them."""
    plan = prepared.plan
    if plan.quarantine is not None and plan.set_aside:
        target = Location.of(plan.quarantine) / plan.operation_id
        rows = prepared.scope.spark.read.parquet((place / scratch.SET_ASIDE).uri.hadoop)
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
