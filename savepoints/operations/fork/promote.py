"""`promote`: a fork takes over from the query that it was forked from, at exact offsets.

1. The fork is run up to where the live query stands, while that goes on.
2. The live query is paused between two batches. Both are run to exactly the same offsets: in each
   partition the further one of the two.
3. Checks are run on the two. If one fails, the live query goes on as if nothing had happened.
4. The live query's next generation begins with the fork's state, program, and outputs (see
   `savepoints.operations.fork.promote_steps`); its own end is kept by a safety savepoint.
5. A run of the live query that was paused goes on, with the fork's program.

Killed before step 4 it is begun anew by the same command; in step 4 it goes on by its journal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from savepoints import faults
from savepoints.checkpoint import position
from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, kafka_position
from savepoints.config.settings import Settings
from savepoints.errors import UsageError
from savepoints.io import Location
from savepoints.model import Generation
from savepoints.moments import utc_now
from savepoints.observe.recorder import recorded
from savepoints.operations.fork import exact_run, promote_steps
from savepoints.operations.fork.promote_checks import Check, of_pairs, refuse_failed
from savepoints.operations.fork.promote_plan import PromotePlan
from savepoints.operations.fork.promote_steps import VERB, PromotionPlan
from savepoints.operations.rollback import generation_change
from savepoints.operations.rollback.generation_change import BegunGeneration, Moved
from savepoints.operations.run import pause, pause_for_verb
from savepoints.operations.savepoint import plan_basis
from savepoints.plan import Progress, silent
from savepoints.sources.kafka.offsets import count
from savepoints.store import bindings
from savepoints.store.locks import journal, lease
from savepoints.store.root import Store
from savepoints.texts import count_text

# Catching up ends when so little is left that the pause will be short, or it does not help.
_SHORT_SECONDS = 10.0
_MOST_ROUNDS = 5


@dataclass(frozen=True, kw_only=True)
class Promoted(BegunGeneration):
    """What a promotion did.

    Attributes:
        fork: The fork that took over.
        safety_id: The safety savepoint of what was there before, for `promote --undo`.
        application: The program that runs from now on.
        outputs: Table URI of each output from now on.
        offsets: The common position: next offset by topic and partition.
        checks: What the checks found; empty when they were left out, or were made before a crash.
        pause_seconds: The longest time in which neither of the two wrote anything: from asking the
            live query's run to pause until it continued. None when it did not run, or the promotion
            was finished after a crash.
        resumed: The run of the live query was paused and has continued.
    """

    fork: str
    safety_id: str | None
    application: str
    outputs: dict[str, str]
    offsets: KafkaOffsets
    checks: tuple[Check, ...]
    pause_seconds: float | None
    resumed: bool


@recorded
def execute(
    plan: PromotePlan,
    store: Store,
    *,
    wait: timedelta = timedelta(minutes=10),
    progress: Progress = silent,
) -> Promoted:
    """Promote; goes on where an earlier attempt was killed.

    Raises:
        PartlyDoneError: If the live query does not pause, or does not continue, within the time.
        LockedError: If another verb has one of the two.
        StalePlanError: If one of the two has begun another generation since the plan, or late
            events were merged into it.
        UnfinishedOperationError: If an operation on one of the two was interrupted since.
        SourceDataGoneError: If Kafka no longer has what one of them has to read.
        SavepointsError: If one of the two fails.
    """
    started = time.monotonic()
    if plan.begun is not None:
        moved = finish(plan.begun, store, wait=wait, progress=progress)
        ends = position.read(Location.of(moved.checkpoint)).offsets
        return _promoted(store, plan.begun, ends, started)
    with pause_for_verb.ended_by_signals(), lease.hold(store.root, plan.fork, VERB):
        return _Promotion(plan, store, wait, progress).run(started)


def finish(
    begun: PromotionPlan,
    store: Store,
    *,
    wait: timedelta = timedelta(minutes=10),
    progress: Progress = silent,
) -> Moved:
    """Finish the journalled part of a promotion that was interrupted."""
    with (
        lease.hold(store.root, begun.fork, VERB),
        lease.hold(store.root, begun.query, VERB) as held,
    ):
        moved = promote_steps.carry_out(begun, store, held, progress=progress)
    if begun.paused:
        pause.resume(store, begun.query, wait=wait, progress=progress)
    return moved


def undo(begun: PromotionPlan, store: Store, *, progress: Progress = silent) -> None:
    """Take back the journalled part of a promotion that was interrupted.

    A run of the live query that was paused for it goes on, as if nothing had happened.
    """
    with lease.hold(store.root, begun.fork, VERB):
        promote_steps.undo(begun, store, progress=progress)


@dataclass(frozen=True)
class _Promotion:
    """One promotion under way; the fork's lease is held."""

    plan: PromotePlan
    store: Store
    wait: timedelta
    progress: Progress

    @property
    def settings(self) -> Settings:
        return bindings.complete(self.store)

    def run(self, started: float) -> Promoted:
        # Since the plan an operation may have taken its tables back, and been killed.
        journal.refuse_unfinished(self.store.root, self.plan.fork)
        self._refuse_stale()
        self._catch_up()
        faults.reach("promote.caught_up")
        still = pause_for_verb.kept(
            self.store,
            self.plan.query,
            reason=f"promote {self.plan.fork}",
            wait=self.wait,
            progress=self.progress,
        )
        with still as since:
            faults.reach("promote.paused")
            with lease.hold(self.store.root, self.plan.query, VERB) as held:
                journal.refuse_unfinished(self.store.root, self.plan.query)
                self._refuse_stale()
                ends = self._meet(held.check)
                faults.reach("promote.met")
                found = self._check()
                faults.reach("promote.checked")
                held.check()
                moving = promote_steps.plan(
                    self.store,
                    self._live,
                    self._fork,
                    hand_over=self.plan.hand_over,
                    command=self.plan.command,
                    paused=since is not None,
                )
                promote_steps.carry_out(moving, self.store, held, progress=self.progress)
        return _promoted(
            self.store,
            moving,
            ends,
            started,
            checks=found,
            pause_seconds=None if since is None else (utc_now() - since).total_seconds(),
        )

    @property
    def _live(self) -> Generation:
        return self.store.generations.current(self.plan.query)

    @property
    def _fork(self) -> Generation:
        return self.store.generations.current(self.plan.fork)

    def _refuse_stale(self) -> None:
        for query, basis in self.plan.bases:
            plan_basis.refuse_changed(self.store, query, VERB, basis)

    def _catch_up(self) -> None:
        """Run the fork to where the live query is, which goes on meanwhile."""
        for _ in range(_MOST_ROUNDS):
            begun = time.monotonic()
            reached = self._offsets(self._fork)
            ends = _furthest(self._offsets(self._live), reached)
            # A partition that only the live query has seen so far begins at 0.
            begin = {
                topic: {part: reached[topic].get(part, 0) for part in parts}
                for topic, parts in ends.items()
            }
            behind = count(begin, ends)
            if behind == 0:
                return
            self.progress(
                f"{self.plan.fork} is {count_text(behind, 'record')} behind {self.plan.query}"
            )
            self._run_to(self._fork, ends, lambda: None)
            if time.monotonic() - begun < _SHORT_SECONDS:
                return

    def _meet(self, check: Callable[[], None]) -> KafkaOffsets:
        """Run both to the same offsets."""
        ends = _furthest(self._offsets(self._live), self._offsets(self._fork))
        for one in (self._live, self._fork):
            check()
            self._run_to(one, ends, check)
        return ends

    def _offsets(self, generation: Generation) -> KafkaOffsets:
        return exact_run.position_of(generation).offsets

    def _run_to(
        self, generation: Generation, ends: KafkaOffsets, check: Callable[[], None]
    ) -> None:
        exact_run.to(
            kafka_position(ends),
            generation,
            self.store,
            settings=self.settings,
            check=check,
            progress=self.progress,
        )

    def _check(self) -> tuple[Check, ...]:
        if not self.plan.checks:
            return ()
        found = of_pairs(
            self.store, [(self._live, self._fork)], settings=self.settings, progress=self.progress
        )
        refuse_failed(
            found,
            f"{self.plan.fork} cannot take over from {self.plan.query}",
            hint=f"see how they differ: savepoints compare {self.plan.query} {self.plan.fork} "
            "--until latest",
            query=self.plan.query,
        )
        return found


def _promoted(
    store: Store,
    moved: PromotionPlan,
    ends: KafkaOffsets,
    started: float,
    *,
    checks: tuple[Check, ...] = (),
    pause_seconds: float | None = None,
) -> Promoted:
    bound = bindings.complete(store).queries[moved.query]
    return Promoted(
        **generation_change.summary(moved, time.monotonic() - started),
        fork=moved.fork,
        safety_id=moved.safety_id,
        application=bound.app,
        outputs=dict(bound.outputs),
        offsets=ends,
        checks=checks,
        pause_seconds=pause_seconds,
        resumed=moved.paused,
    )


def _furthest(one: KafkaOffsets, other: KafkaOffsets) -> KafkaOffsets:
    """Return the further offset of each partition; both read the same topics."""
    if one.keys() != other.keys():
        raise UsageError(
            "the live query and the fork read different topics "
            f"({', '.join(sorted(one)) or 'none'}; {', '.join(sorted(other)) or 'none'}), so they "
            "cannot stop at the same offsets",
            hint="create a fork that reads the same topics as the live query: savepoints fork "
            "SAVEPOINT NAME",
        )
    return {
        topic: {
            part: max(one[topic].get(part, 0), other[topic].get(part, 0))
            for part in sorted({*one[topic], *other[topic]})
        }
        for topic in one
    }
