"""What a rollback of several queries is going to do; what can be refused is refused here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote

from savepoints.errors import NotFoundError, UsageError
from savepoints.io import Location, in_parallel
from savepoints.model import new_id
from savepoints.moments import utc_now
from savepoints.operations.pipeline import topic_reads
from savepoints.operations.pipeline.joint_plan import JointPlan
from savepoints.operations.pipeline.pipeline import pipeline
from savepoints.operations.pipeline.pipeline_graph import Pipeline
from savepoints.operations.pipeline_rollback import (
    present_ahead,
    rollback_cut,
    rollback_refusals,
    rollback_text,
)
from savepoints.operations.pipeline_rollback.pipeline_member import PipelineMember
from savepoints.operations.pipeline_rollback.rollback_cut import MemberCut
from savepoints.operations.rollback import journalled, last_operation, rollback
from savepoints.operations.rollback.generation_change import TransitionPlan
from savepoints.operations.rollback.query_context import beside, checkpoint_of
from savepoints.operations.savepoint import restore_checks
from savepoints.outputs.rewind import rewind
from savepoints.plan import Plan, Step
from savepoints.store import bindings
from savepoints.store.locks import journal, lease
from savepoints.store.locks.journal import Operation
from savepoints.store.root import Store

VERB = "pipeline rollback"


@dataclass(frozen=True)
class RollbackOptions:
    """How to go back, besides where to.

    Attributes:
        writers: By query, `package.module:function`: takes the SparkSession and returns the query's
            `DataStreamWriter`, not started. Needed of a reader that has to read something first.
        checkpoints: Directory for the new checkpoints of queries that are not in the settings.
        check_source: Whether to ask Kafka if it still has the records that come next.
        stopped: You have made sure that no driver runs the queries.
        accept_unreplayable: Accept sources that cannot be read again, or files that are gone.
    """

    writers: Mapping[str, str] = field(default_factory=dict)
    checkpoints: str | None = None
    check_source: bool = True
    stopped: bool = False
    accept_unreplayable: bool = False


@dataclass(frozen=True, kw_only=True)
class PipelineRollbackPlan(JointPlan):
    """What `pipeline rollback` is going to do.

    Attributes:
        members: What is done to each of the queries.
        options: How they go back.
        undoes: The operation that this undoes, null for none.
    """

    members: tuple[PipelineMember, ...]
    options: RollbackOptions
    undoes: str | None = None

    @property
    def transitions(self) -> tuple[TransitionPlan, ...]:
        """What is done to each query alone."""
        return tuple(one.rollback for one in self.members)

    def has_changed_tables(self) -> bool:
        """Return True if a table was taken back."""
        return any(
            rewind.is_done(output, self.operation_id)
            for one in self.members
            for output in one.rollback.outputs
        )


def plan(
    store: Store,
    query: str,
    point: str,
    *,
    every: bool = False,
    exact: bool = False,
    writers: Mapping[str, str] | None = None,
    checkpoints: str | None = None,
    check_source: bool = True,
    stopped: bool = False,
    accept_unreplayable: bool = False,
) -> PipelineRollbackPlan:
    """Plan to roll back a query and all that read its tables together; nothing is written.

    The query goes back to the named savepoint. Each query that reads from it, directly or not, goes
    back to its savepoint with that tag if it fits, otherwise to its newest savepoint that has read
    nothing of what is rolled back, and runs from there to exactly where its tables go back to.

    An interrupted rollback of the same query to the same point is resumed, with its own plan.

    Args:
        query: Name of the query.
        point: Id, prefix, tag, `latest`, `latest~2` or `@TIME` of a savepoint of the query.
        every: All queries of its pipeline, including those that it reads from; the point is then
            one of the first queries, or the tag of a group.
        exact: With `@TIME`: all queries are run from the savepoints before it to exactly that time.
            Needs their programs in the settings.
        writers: By query, what builds it, as `package.module:function`; the function takes the
            SparkSession and returns the query's `DataStreamWriter`, not started. Needed of readers
            whose savepoint has not read all that their tables go back to.
        checkpoints: Directory for the new checkpoints of queries that are not in the settings.
        check_source: Whether to ask Kafka if it still has the records that come next.
        stopped: You have made sure that no driver runs the queries.
        accept_unreplayable: Accept sources that cannot be read again, or files that are gone, so
            that rows may be lost.

    Raises:
        QueryRunningError: If a query runs in a driver of its own.
        LockedError: If another verb has one of them.
        UnfinishedOperationError: If another operation on one of them was interrupted.
        SavepointNotFoundError: If there is no such savepoint, or a query lacks one of the group.
        NotAlignedError: If they cannot be taken back to one consistent point without loss.
        UsageError: If a reader has to read something and nothing says what builds it.
    """
    store = store.snapshot()
    options = RollbackOptions(
        dict(writers or {}), checkpoints, check_source, stopped, accept_unreplayable
    )
    command = _command(query, point, options, every=every, exact=exact)
    if journal.unfinished(store.root, query):
        lease.refuse_held(store.root, query)
        if known := journalled.begun(PipelineRollbackPlan, store, query, VERB, command):
            return known
    found = pipeline(store, query)
    rollback_refusals.refuse_unknown_order(found, every=every)
    cuts = rollback_cut.choose(store, found, point, every=every, exact=exact)
    return make(store, found, cuts, options, command=command)


def undo_plan(
    store: Store, operation: Operation, done: JointPlan | None = None, *, stopped: bool = False
) -> PipelineRollbackPlan:
    """Plan to take back a finished operation on several queries: all to their safety savepoints.

    Args:
        done: Its plan; None to read it as that of a rollback.

    Raises:
        UsageError: If it was one that undid another.
        NotFoundError: If something else was done to one of the queries since.
    """
    store = store.snapshot()
    if operation.plan.get("undoes"):
        raise UsageError(
            f"the last pipeline rollback of {operation.query}, {operation.id}, was itself an "
            "undo and cannot be undone",
            hint="find the safety savepoint that it took (savepoints list --query "
            f"{operation.query}), then roll back to it: savepoints pipeline rollback "
            f"{operation.query} SAVEPOINT",
            operation=operation.id,
        )
    _refuse_followed(store, operation, journal.all_operations(store.root), "TAG --all")
    if done is None:
        done = PipelineRollbackPlan.from_json(operation.plan)
    found = pipeline(store, done.query)
    cuts = _to_safety(store, found, done)
    return _undo(store, operation, found, cuts, replace(_options_of(done), stopped=stopped))


def undo_merge_plan(
    store: Store, last: Operation, *, stopped: bool = False
) -> PipelineRollbackPlan | None:
    """Plan to take back a merge that readers of its tables took over, and all that they took over.

    The query goes back to what it was before, and all that read from it go back to match, also
    those that had nothing to take over.

    Args:
        last: The merge, or what one of the readers took over of it.

    Returns:
        None for an operation on one query alone.

    Raises:
        UnfinishedOperationError: If a reader has not taken it over yet.
        NotFoundError: If something else was done to one of the queries since.
    """
    store = store.snapshot()
    known = journal.all_operations(store.root)
    parts = last_operation.changed_together(last, known)
    if not parts:
        return None
    merge = next(one for one in known if one.id == next(iter(parts.values())))
    safety = str(merge.plan["safety_id"])
    _refuse_followed(store, merge, known, safety)
    found = pipeline(store, merge.query)
    rollback_refusals.refuse_unknown_order(found, every=False)
    cuts = rollback_cut.choose(store, found, safety, every=False)
    return _undo(store, merge, found, cuts, RollbackOptions(stopped=stopped))


def _undo(
    store: Store,
    operation: Operation,
    found: Pipeline,
    cuts: Sequence[MemberCut],
    options: RollbackOptions,
) -> PipelineRollbackPlan:
    name = new_id("op", utc_now())
    # To undo it once more would undo the undo.
    command = f"savepoints operations resume {name} --yes"
    back = make(store, found, cuts, options, command=command, operation_id=name)
    return replace(back, undoes=operation.id)


def _refuse_followed(
    store: Store, operation: Operation, known: Sequence[Operation], back: str
) -> None:
    """Refuse to undo together what was changed one by one since, and is still changed.

    Args:
        known: All operations of the store, the newest first.
        back: Where a pipeline rollback could go back to in place of it.
    """
    undone = journal.undone_by(known)
    over = {*undone, *undone.values()}
    for query, part in last_operation.changed_together(operation, known).items():
        journal.refuse_unfinished(store.root, query)
        last = next(
            one
            for one in known
            if one.is_on(query) and one.state == "finished" and one.id not in over
        )
        if last.id != part:
            alone = (
                f"undo {last.id} first (savepoints undo {query}), then this one; or "
                if last_operation.is_undone_alone(last)
                else ""
            )
            raise NotFoundError(
                f"{query} was changed by the {last.verb} operation {last.id} after the "
                f"{operation.verb} operation {operation.id}, so {operation.id} cannot be undone as "
                "a whole",
                hint=f"{alone}roll all queries back together: savepoints pipeline rollback "
                f"{operation.query} {back}",
                query=query,
            )


def way_back(store: Store, begun: JointPlan) -> PipelineRollbackPlan | None:
    """Plan how to undo an interrupted operation; the caller holds the leases.

    Returns:
        None if no table was changed yet: then the queries are still as they were.
    """
    if not begun.has_changed_tables():
        return None
    store = store.snapshot()
    found = pipeline(store, begun.query)
    cuts = _to_safety(store, found, begun)
    options = replace(_options_of(begun), stopped=True)
    return make(store, found, cuts, options, command=begun.command, under_way=begun)


def undoing(operation: Operation) -> PipelineRollbackPlan | None:
    """Return how an interrupted rollback is being undone, as `way_back` found it then."""
    known = operation.done[journal.UNDOING].get("plan")
    return None if known is None else PipelineRollbackPlan.from_json(known)


def _options_of(done: JointPlan) -> RollbackOptions:
    """Return how queries go back that were changed together: as they went, if they did."""
    return done.options if isinstance(done, PipelineRollbackPlan) else RollbackOptions()


def undo_begun_plan(store: Store, begun: JointPlan) -> Plan:
    """Plan to undo an interrupted operation; nothing is written."""
    removed = [
        Step("checkpoint", f"delete the checkpoint {one.checkpoint} if the operation made it")
        for one in begun.transitions
    ]
    operation = journal.unfinished(store.root, begun.query)
    if operation is not None and journal.UNDOING in operation.done:
        back = undoing(operation)
    else:
        back = way_back(store, begun)
    if back is None:
        return Plan("undo", begun.query, tuple(removed), ("the safety savepoints are kept",))
    why = (
        "some tables were already changed, so the queries continue in new generations, from "
        "their safety savepoints"
    )
    return Plan("undo", begun.query, (*removed, *back.steps), (why, *back.warnings))


def _to_safety(store: Store, found: Pipeline, done: JointPlan) -> tuple[MemberCut, ...]:
    ids = {}
    for one in done.transitions:
        if one.safety_id is None:
            raise NotFoundError(
                f"the {done.verb} operation {done.operation_id} cannot be undone: {one.query} had "
                "no state to save when the operation began",
                hint="roll back to an existing savepoint instead; to list them: savepoints list "
                f"--query {one.query}",
                query=one.query,
            )
        ids[one.query] = one.safety_id
    return rollback_cut.given(store, found, ids)


def again(store: Store, plan: PipelineRollbackPlan) -> PipelineRollbackPlan:
    """Plan the same again, to the same savepoints, when the queries have been paused for it."""
    store = store.snapshot()
    found = pipeline(store, plan.query)
    ids = {one.query: str(one.rollback.savepoint_id) for one in plan.members}
    ends = {one.query: one.ends for one in plan.members}
    cuts = [
        replace(cut, ends=ends[cut.savepoint.query])
        for cut in rollback_cut.given(store, found, ids)
    ]
    made = make(
        store, found, cuts, plan.options, command=plan.command, operation_id=plan.operation_id
    )
    return replace(made, paused=plan.paused)


def make(
    store: Store,
    found: Pipeline,
    cuts: Sequence[MemberCut],
    options: RollbackOptions,
    *,
    command: str,
    operation_id: str | None = None,
    under_way: JointPlan | None = None,
) -> PipelineRollbackPlan:
    """Plan to take queries back to savepoints that fit together.

    Args:
        under_way: The interrupted operation that this is to undo, under its leases.
    """
    queries = tuple(cut.savepoint.query for cut in cuts)
    paused = () if under_way else rollback_refusals.running(store, queries)
    if under_way is None:
        for query in queries:
            journal.refuse_unfinished(store.root, query)
    rollback_refusals.refuse_unknown_outputs(found, queries)
    rollback_refusals.refuse_left_behind(store, found, queries)
    name = operation_id or new_id("op", utc_now())
    # Beside those that the interrupted operation wrote, which are removed meanwhile.
    begun = under_way.transitions if under_way else ()
    undone = {one.query: f"{one.checkpoint}-undone" for one in begun}

    def planned(cut: MemberCut) -> PipelineMember:
        query = cut.savepoint.query
        alone = rollback.plan_one(
            store,
            cut.savepoint.id,
            query=query,
            to=undone.get(query) or _checkpoint(store, query, options),
            check_source=options.check_source,
            save_present=under_way is None,
            stopped=options.stopped or query in paused,
            accept_unreplayable=options.accept_unreplayable,
            ends={str(Location.of(one.table_uri)): one.version for one in cut.reads},
        )
        passed = [read.topic for read in cut.topic_reads]
        again = restore_checks.topics_read_again(store, cut.savepoint, besides=passed)
        alone = replace(
            alone, operation_id=name, command=command, verb=VERB, warnings=(*alone.warnings, *again)
        )
        writer = options.writers.get(query)
        first = new_id("sp", utc_now()) if cut.reads or cut.topic_reads else None
        return PipelineMember(alone, cut.reads, writer, cut.ends, cut.topic_reads, first)

    members = tuple(in_parallel(planned, list(cuts)))
    rollback_refusals.refuse_unreachable(members, bindings.complete(store))
    # Refuses topics that are gone, were recreated, or are shorter than the savepoints say.
    topic_reads.ends_now(
        [read for one in members for read in one.topic_reads], store.settings.kafka
    )
    return PipelineRollbackPlan(
        verb=VERB,
        query=found.query,
        steps=tuple(rollback_text.steps(members, cuts, paused)),
        warnings=tuple(
            dict.fromkeys(
                (*present_ahead.notes(store, found, members), *rollback_text.notes(found, members))
            )
        ),
        command=command,
        operation_id=name,
        queries=queries,
        members=members,
        options=options,
        paused=paused,
    )


def _command(query: str, point: str, options: RollbackOptions, *, every: bool, exact: bool) -> str:
    words = ["savepoints pipeline rollback", query, point, *(["--all"] if every else [])]
    words += ["--exact"] if exact else []
    for one, reference in sorted(options.writers.items()):
        words += ["--writer", f"{one}={reference}"]
    if options.checkpoints:
        words += ["--checkpoints", quote(options.checkpoints)]
    return " ".join([*words, "--yes"])


def _checkpoint(store: Store, query: str, options: RollbackOptions) -> str | None:
    """Return the directory of a query's next checkpoint, None for the one by the settings."""
    if query in bindings.complete(store).queries:
        return None
    number = store.generations.next_number(query)
    if options.checkpoints is None:
        return str(beside(store.generations.current(query), number))
    return str(checkpoint_of(options.checkpoints, query, number))
