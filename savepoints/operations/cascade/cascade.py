"""`merge --downstream`: late events merged into a query and through all that read its tables.

1. The query is replayed beside its run, as by `merge` alone.
2. Everything stands still. Each reader runs to the end of its table, writers before readers; what
   the correction changes of it is computed from the table and proved against what it has
   (`prepare`). Nothing has been changed so far, so whatever is not exact refuses all of it.
3. What each reader is going to do is written into the journal, then the merge is carried out, then
   each reader takes over the correction of the table that it reads (`carry_out`), in that order.

Killed in between, the same command goes on: a journal of a reader says which merge it follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from shlex import quote
from typing import TYPE_CHECKING, Literal

from savepoints import faults
from savepoints.errors import IncompatibleError
from savepoints.io import Location
from savepoints.operations.cascade import carry_out as carrying
from savepoints.operations.cascade import prepare as preparing
from savepoints.operations.cascade import readers as reading
from savepoints.operations.cascade.cascade_plan import VERB, CascadePlan
from savepoints.operations.cascade.prepare import Change
from savepoints.operations.cascade.readers import Reader
from savepoints.operations.merge import apply, merge
from savepoints.operations.merge.merge import Merged
from savepoints.operations.merge.plan import PAUSED_FOR, MergePlan, MergingPlan
from savepoints.operations.merge.prepare import MergeRequest, Prepared, without_since
from savepoints.operations.run import pause_for_verb
from savepoints.plan import Progress, Step, silent
from savepoints.result import Result
from savepoints.runtime.archive_of import runner_of
from savepoints.runtime.bounded import bounded_run
from savepoints.runtime.inputs import Inputs
from savepoints.store import bindings
from savepoints.store.locks import journal, lease
from savepoints.store.locks.lease import Lease
from savepoints.store.root import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Downstream = Literal["none", "plan", "merge"]


@dataclass(frozen=True)
class Cascaded(Result):
    """What a correction changes of a reader.

    Attributes:
        query: The reader.
        entities: Entities that the correction of its table touches.
        rows_removed: Rows that its tables lose.
        rows_added: Rows that they get.
        controls: Other entities whose replay was the same as the reader has them.
        generation: The generation that has begun; None where it was only planned.
        safety_id: The safety savepoint of what was there before; None where it was only planned.
    """

    query: str
    entities: int
    rows_removed: int
    rows_added: int
    controls: int
    generation: int | None = None
    safety_id: str | None = None


@dataclass(frozen=True)
class MergedThrough(Result):
    """What a merge through a pipeline did.

    Attributes:
        merged: What was done to the query itself; None where it was only planned.
        downstream: What of each reader changes, writers before readers; those that the correction
            does not reach are left out.
    """

    merged: Merged | None
    downstream: tuple[Cascaded, ...]


class _Planned(Exception):  # noqa: N818  (not an error: it carries "go no further" through a merge)
    """Raised when all is known that was asked for."""


@dataclass
class _Through:
    """A merge through a pipeline under way."""

    store: Store
    readers: Sequence[Reader]
    command: str
    paused: Mapping[str, bool]
    leases: Mapping[str, Lease]
    only_plan: bool
    progress: Progress
    plans: list[CascadePlan] = field(default_factory=list)

    def before(self, merging: MergingPlan) -> None:
        """Plan all readers, and announce what is planned; see `merge.execute`."""
        from savepoints.spark.session import session, session_for

        spark = session_for(session(bindings.complete(self.store), "savepoints merge"), 0)
        changes = self._changes_of(spark, merging)
        for reader in self.readers:
            self._catch_up(spark, reader)
            change = changes.get(str(Location.of(reader.table)))
            if change is None or not (change.removed.count() or change.added.count()):
                continue
            plan, changed = preparing.prepare(
                spark,
                self.store,
                reader,
                change,
                merge_id=merging.operation_id,
                merged=merging.query,
                paused=self.paused[reader.query],
                command=self.command,
                progress=self.progress,
            )
            self.plans.append(plan)
            changes |= {
                str(Location.of(reader.bound.outputs[name])): one for name, one in changed.items()
            }
        faults.reach("cascade.planned")
        if self.only_plan:
            raise _Planned
        for plan in self.plans:
            carrying.announce(plan, self.store)

    def withdraw(self) -> None:
        """Let go of what was planned, if the merge was not begun."""
        for plan in self.plans:
            carrying.withdraw(plan, self.store)

    def _changes_of(self, spark: SparkSession, merging: MergingPlan) -> dict[str, Change]:
        found = {}
        read = {str(Location.of(one.table)) for one in self.readers}
        for one in merging.corrections:
            if (uri := str(Location.of(one.live.output.uri))) in read:
                differing = apply.differing(spark, merging, one)
                found[uri] = Change.kept(spark, one, differing, Location.of(merging.place))
        return found

    def _catch_up(self, spark: SparkSession, reader: Reader) -> None:
        """Let a reader read its table to the end; its writer stands still."""
        self.progress(f"{reader.query}: reading {reader.table} to its end")
        settings = bindings.complete(self.store)
        live = self.store.generations.current(reader.query)
        runner = runner_of(
            spark,
            self.store,
            Inputs(reader.app, reader.bound, settings.kafka),
            generation=live.generation,
            checkpoint=Location.of(live.checkpoint),
            position={},
            progress=self.progress,
        )
        bounded_run.run_on(runner, check=self.leases[reader.query].check, until_caught_up=True)


def prepare(
    store: Store, request: MergeRequest, downstream: Downstream, *, progress: Progress = silent
) -> Prepared | MergePlan:
    """Plan a merge, having refused readers that could not take it over; see `merge.prepare`.

    Raises:
        IncompatibleError: If a reader cannot take over corrections exactly.
        UnfinishedOperationError: If only a plan is wanted, and a merge was interrupted.
    """
    request = replace(request, through=downstream == "merge")
    if downstream != "none":
        if request.policy != "exact":
            raise IncompatibleError(
                f"--policy {request.policy} cannot be combined with --downstream {downstream}: "
                "only an exact merge knows which rows of the tables change",
                hint="omit --policy, or merge into this query only: --downstream none",
                query=request.query,
            )
        if downstream == "plan":  # What was interrupted would be finished instead.
            journal.refuse_unfinished(store.root, request.query)
        if not _announced(store, request.command):
            reading.find(store, request.query)
    prepared = merge.prepare(store, request, progress=progress)
    if isinstance(prepared, MergePlan):
        return prepared
    if not prepared.plan.has_nothing_to_do:
        return replace(prepared, plan=_with_readers(prepared.plan, store, downstream))
    if downstream == "none":
        return prepared
    return replace(prepared, plan=_with_left_behind(prepared.plan, store))


def _with_left_behind(plan: MergePlan, store: Store) -> MergePlan:
    """Say that the readers are not corrected either, where the batch was merged without them."""
    left = reading.left_behind(store, plan.query, plan.merged_by) if plan.merged_by else ()
    if not left:
        return plan
    query = quote(plan.query)
    warning = (
        f"{plan.merged_by} corrected no query that reads from {plan.query}; to correct "
        f"{', '.join(left)} too, go back to before it and merge again: savepoints undo {query} if "
        f"none of them has read its tables since, otherwise savepoints pipeline rollback {query} "
        "NAME"
    )
    return replace(plan, warnings=(*plan.warnings, warning))


def _with_readers(plan: MergePlan, store: Store, downstream: Downstream) -> MergePlan:
    """Say in a plan what becomes of the readers."""
    if plan.policy == "append":  # To them appended events are as any others.
        return plan
    names = reading.names(store, plan.query)
    if downstream == "none":
        behind = reading.behind_topics(store, plan.query)
        warnings = [
            (
                f"{name} is not corrected: it reads a topic that {plan.query} or one of its "
                "readers writes, and records in a topic cannot be corrected"
            )
            if name in behind
            else (
                f"{name} is not corrected, although it reads tables of {plan.query}, directly or "
                "through other queries: it will fail at the commit of the correction, or read "
                "corrected rows as new ones; to correct it, too: --downstream merge"
            )
            for name in names
        ]
        return replace(plan, warnings=(*plan.warnings, *warnings))
    steps = [
        Step(
            f"cascade_{name}",
            f"{name}: replay what the correction affects, from the table that {name} reads",
        )
        for name in names
    ]
    return replace(plan, steps=(*plan.steps, *steps))


def execute(
    prepared: Prepared | MergePlan,
    store: Store,
    downstream: Downstream,
    *,
    wait: timedelta = timedelta(minutes=10),
    progress: Progress = silent,
) -> MergedThrough:
    """Merge through a pipeline; see `merge.execute`.

    Args:
        downstream: `none`: only the query; `plan`: find out what changes, and change nothing;
            `merge`: the query and all that read from it.
    """
    plan = prepared if isinstance(prepared, MergePlan) else prepared.plan
    if downstream == "none":
        merged = merge.execute(prepared, store, wait=wait, progress=progress)
        return MergedThrough(merged, ())
    announced = _withdraw_stale(store, _announced(store, plan.command))
    if announced:
        return _finish(prepared, store, announced, wait, progress)
    return _execute(prepared, plan, store, downstream, wait, progress)


def _execute(
    prepared: Prepared | MergePlan,
    plan: MergePlan,
    store: Store,
    downstream: Downstream,
    wait: timedelta,
    progress: Progress,
) -> MergedThrough:
    readers = reading.find(store, plan.query)
    with ExitStack() as kept:
        paused, leases = {}, {}
        for one in readers:
            since = kept.enter_context(
                pause_for_verb.kept(
                    store,
                    one.query,
                    reason=f"{PAUSED_FOR}{plan.batch}",
                    wait=wait,
                    progress=progress,
                )
            )
            paused[one.query] = since is not None
        for one in readers:
            journal.refuse_unfinished(store.root, one.query)
            leases[one.query] = kept.enter_context(lease.hold(store.root, one.query, VERB))
        through = _Through(
            store, readers, plan.command, paused, leases, downstream == "plan", progress
        )
        try:
            merged = merge.execute(
                prepared, store, wait=wait, before=through.before, progress=progress
            )
        except _Planned:
            through.withdraw()
            return MergedThrough(None, tuple(_said(one) for one in through.plans))
        except BaseException:
            if journal.unfinished(store.root, plan.query) is None:
                through.withdraw()
            raise
        faults.reach("cascade.merged")
        done = [_carried(one, store, leases[one.query], progress) for one in through.plans]
    return MergedThrough(merged, tuple(done))


def _carried(plan: CascadePlan, store: Store, held: Lease, progress: Progress) -> Cascaded:
    progress(f"{plan.query}: applying the correction of {plan.follows.table}")
    moved = carrying.carry_out(plan, store, held, progress=progress)
    return Cascaded(**{**vars(_said(plan)), "generation": moved.generation,
                       "safety_id": moved.safety_id})  # fmt: skip


def _said(plan: CascadePlan) -> Cascaded:
    return Cascaded(plan.query, plan.entities, plan.rows_removed, plan.rows_added, plan.controls)


def _finish(
    prepared: Prepared | MergePlan,
    store: Store,
    announced: Sequence[CascadePlan],
    wait: timedelta,
    progress: Progress,
) -> MergedThrough:
    """Finish one that was interrupted after its readers were announced."""
    merged = merge.execute(prepared, store, wait=wait, progress=progress)
    done = []
    for plan in announced:
        with lease.hold(store.root, plan.query, VERB) as held:
            done.append(_carried(plan, store, held, progress))
    return MergedThrough(merged, tuple(done))


def _announced(store: Store, command: str) -> list[CascadePlan]:
    """Return what readers had announced of the same merge, writers before readers."""
    wanted = without_since(command)
    return in_order(
        [
            CascadePlan.from_json(dict(one.plan))
            for one in journal.all_unfinished(store.root)
            if one.verb == VERB and without_since(one.command) == wanted
        ]
    )


def in_order(plans: Sequence[CascadePlan]) -> list[CascadePlan]:
    """Return them so that who corrects a table comes before who reads it."""
    writers = {
        str(Location.of(one.live.output.uri)): plan for plan in plans for one in plan.corrections
    }

    def depth(plan: CascadePlan) -> int:
        above = writers.get(str(Location.of(plan.follows.table)))
        return 0 if above is None else 1 + depth(above)

    return sorted(plans, key=depth)


def _withdraw_stale(store: Store, announced: Sequence[CascadePlan]) -> list[CascadePlan]:
    """Withdraw what follows a merge that was never begun or was undone; return the rest."""
    states = {one.id: one.state for one in journal.all_operations(store.root)}
    left = []
    for plan in announced:
        if states.get(plan.follows.operation_id, "undone") != "undone":
            left.append(plan)
            continue
        # Another process may be just about to begin the merge.
        with lease.hold(store.root, plan.query, VERB):
            carrying.withdraw(plan, store)
    return left
