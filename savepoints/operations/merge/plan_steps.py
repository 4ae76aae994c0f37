"""What a merge of some policy concerns, counted, with the steps that it will take."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from savepoints.checkpoint.cut import CutFiles
from savepoints.moments import rfc3339
from savepoints.operations.merge import assignment as assigned
from savepoints.operations.merge import estimate, generation_plan, live_query
from savepoints.operations.merge import functions as merge_functions
from savepoints.operations.merge.affected import Affected
from savepoints.operations.merge.assignment import Assignment
from savepoints.operations.merge.live_query import LiveQuery
from savepoints.operations.merge.plan import BaseUse, MergePlan
from savepoints.operations.merge.replay import replay_strategy
from savepoints.plan import Step
from savepoints.runtime import program
from savepoints.runtime.inputs import Inputs
from savepoints.sources.late.batch import KnownOtherwise, LateBatch
from savepoints.spark import private_api
from savepoints.store.tables.merge_ledger import DROPPED
from savepoints.texts import count_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_GIVEN_UP_BY_APPEND = (
    "the events are treated as if they arrived now: those below the watermark are dropped, "
    "and results that depend on the order of events differ from what they would be if the "
    "events had arrived on time"
)
_STAYS = "this cannot be undone: the events stay in {topic}, and are read again after a rollback"
_GIVEN_UP_BY_ALL = (
    "all events are treated as if they had arrived in order of event time: results that depend on "
    "the actual order of arrival (such as events dropped as late) change even for entities that "
    "the batch does not touch"
)
_GIVEN_UP_BY_FUNCTION = (
    "nothing is replayed, and nothing proves that the application's functions give the same "
    "result as if the events had been on time"
)
_UNPROVED = (
    "nothing proves that the query can be replayed exactly: this policy has no control entities"
)
_CORRECTED = (
    "archive the late events, record them in the ledger, and resume the query if it was paused"
)


def complete(plan: MergePlan, assignment: Assignment, cut: CutFiles) -> MergePlan:
    """Count what is replayed, and refuse what could not be corrected."""
    plan = replace(plan, entities=assignment.entities)
    if plan.policy == "append":
        plan = _append(plan, assignment)
    else:
        generation_plan.corrections(assignment, plan.generation + 1, cut.cut.batch_id, plan.policy)
        if plan.policy == "exact":
            plan = _exact(plan, assignment, cut)
        elif plan.policy == "merge-function":
            plan = _function(plan, assignment, cut)
        else:
            plan = _all(plan, assignment)
    known = assignment.live.store.events.all()
    expected = estimate.expected(known, plan.query, plan.size(plan.way))
    first, *others = plan.steps
    first = replace(first, what=f"{first.what}; {estimate.text(expected)}")
    return replace(plan, expected=expected, steps=(first, *others))


def with_affected(plan: MergePlan, found: Affected) -> MergePlan:
    """Say how many of the events are new, and what to know of the others and of these."""
    return replace(
        plan,
        rows=found.rows,
        known=max(0, plan.known - found.rows),
        warnings=(
            *_seen_otherwise(plan, found.otherwise),
            *plan.warnings,
            *_not_compared(found.live),
            *not_given(found.live.inputs, plan),
        ),
    )


def _not_compared(live: LiveQuery) -> tuple[str, ...]:
    """Warn where a batch can be compared with a part of the query's events only."""
    if not live.lost:
        return ()
    missing = (
        f"the first events that {live.name} has read are gone; there are those of "
        f"{live_query.text(live.lost)}. Other events of the batch count as new: make sure that "
        f"{live.name} has not seen them, and that what is gone is older than they are"
    )
    return (missing,)


def not_given(inputs: Inputs, plan: MergePlan) -> tuple[str, ...]:
    """Warn where other inputs would have read the events, too, had they come in time."""
    if plan.policy == "append" or plan.batch == DROPPED:
        return ()
    return tuple(
        f"{plan.query} also reads topic {inputs.topic(one)} through its input {one}, to which this "
        "merge adds nothing: if that input would have used these events, merge the batch into it "
        f"as well: --input {one}"
        for one in inputs.sharing(plan.input)
    )


def _append(plan: MergePlan, assignment: Assignment) -> MergePlan:
    topic = assignment.live.inputs.topic(plan.input)
    return replace(
        plan,
        operators=(),
        outputs=(),
        steps=(
            Step("produced", f"write {count_text(plan.rows, 'event')} to the end of topic {topic}"),
            Step("in_ledger", "record the events in the ledger"),
        ),
        warnings=(_GIVEN_UP_BY_APPEND, _STAYS.format(topic=topic), *plan.warnings),
    )


def _all(plan: MergePlan, assignment: Assignment) -> MergePlan:
    events = assigned.count_events(assignment)
    return replace(
        plan,
        events=events,
        steps=(
            Step(
                "replayed",
                f"replay all {count_text(events, 'event')} of all entities; if {plan.query} is "
                "running, it continues meanwhile",
            ),
            _paused_to_replay(plan),
            Step("checkpoint_written", "take a savepoint of the live query, and replace all state"),
            *(
                Step("outputs_corrected", f"replace the rows of {plan.query} in {uri}")
                for uri in plan.outputs
            ),
            Step("settled", _CORRECTED),
        ),
        warnings=(_GIVEN_UP_BY_ALL, _UNPROVED, *_of_program(assignment), *plan.warnings),
    )


def _function(plan: MergePlan, assignment: Assignment, cut: CutFiles) -> MergePlan:
    functions = merge_functions.required(assignment.live.inputs.app)
    merge_functions.require_states(assignment.live.checkpoint, cut, functions)
    return replace(
        plan,
        events=plan.rows,
        steps=(
            Step(
                "replayed",
                f"run the application on the {count_text(plan.rows, 'late event')} alone",
            ),
            Step("paused", f"pause {plan.query} if it is running"),
            Step(
                "checkpoint_written",
                "take a savepoint of the live query, and combine the states of "
                f"{count_text(plan.entities, 'entity')} with the application's functions",
            ),
            *(
                Step("outputs_corrected", f"combine the rows of these entities in {uri}")
                for uri in plan.outputs
            ),
            Step("settled", _CORRECTED),
        ),
        warnings=(_GIVEN_UP_BY_FUNCTION, *plan.warnings),
    )


def _exact(plan: MergePlan, assignment: Assignment, cut: CutFiles) -> MergePlan:
    used, controls = assignment.used, assignment.controls
    events = assigned.count_events(assignment)
    active = assigned.count_active_controls(assignment)
    known = assignment.live.batches()
    against = replay_strategy.against_short(assignment, assignment.pending, known, cut)
    if against:
        replay_strategy.refuse_unknown(assignment, known, cut, against)
    batches = cut.cut.batch_id + 1 - assignment.first_batch
    how = (
        f"batch by batch ({batches}), because {'; '.join(against)}"
        if against
        else "in a few large batches"
    )
    begins = ", ".join(
        f"{one.entities} from {one.savepoint.id if one.savepoint else 'their first event'}"
        for one in used.values()
    )
    seen = f"; {plan.known:,} already seen" if plan.known else ""
    then = "refuse if any differs"
    if not against:
        then = f"if any differs, replay {count_text(batches, 'batch')} one by one and compare again"
    return replace(
        plan,
        controls=controls,
        bases=tuple(
            BaseUse(one.savepoint.id if one.savepoint else None, one.entities)
            for one in used.values()
        ),
        events=events,
        way="faithful" if against else "short",
        against_short=against,
        batches=batches,
        steps=(
            Step(
                "replayed",
                f"merge {count_text(plan.rows, 'new event')} of "
                f"{count_text(plan.entities, 'entity')}{seen}: replay these entities ({begins}) "
                f"and {count_text(controls, 'control entity')}, {count_text(events, 'event')} in "
                f"all, {how}; if {plan.query} is running, it continues meanwhile",
            ),
            Step("compared", f"compare the control entities with {plan.query}: {then}"),
            _paused_to_replay(plan),
            Step(
                "checkpoint_written",
                ("take a savepoint of the live query, and replace the state of these entities"),
            ),
            *(
                Step("outputs_corrected", f"correct the rows of these entities in {uri}")
                for uri in plan.outputs
            ),
            Step("settled", _CORRECTED),
        ),
        warnings=(*_of_program(assignment), *_warnings(plan, controls, active)),
    )


def _paused_to_replay(plan: MergePlan) -> Step:
    return Step("paused", f"pause {plan.query} if it is running, and replay what has arrived since")


def _of_program(assignment: Assignment) -> tuple[str, ...]:
    """Warn of what lets the replay compute something else than the query did."""
    live = assignment.live
    frame = program.frame(assignment.spark, live.inputs)
    tables = private_api.tables_beside(frame)
    read = (
        f"besides its inputs, the program reads {', '.join(tables)}: the replay sees the current "
        f"rows, not those that {live.name} saw when it read these events"
    )
    return (*([read] if tables else []), *_of_versions(frame, assignment))


def _of_versions(frame: DataFrame, assignment: Assignment) -> tuple[str, ...]:
    """Warn where the present program replays what another one may have read, or has."""
    live = assignment.live
    oldest = live.reach.oldest([one.savepoint for one in assignment.used.values()])
    if live.reach.crosses(oldest):
        replayed = (
            f"{live.reach.crossed}, and some of the entities are replayed from before that: the "
            "present program computes all of their results, also those of another program"
        )
        return (replayed,)
    other = live.read_otherwise(frame, since=oldest)
    if other is None:
        return ()
    replayed = (
        f"{other.text(live.inputs.bound.app)}: what this one makes of it need not be what "
        f"{live.name} made"
    )
    return (replayed,)


def _warnings(plan: MergePlan, controls: int, active: int) -> tuple[str, ...]:
    notes = []
    if controls and not active:
        notes.append(
            "no control entity has events since the savepoint that its replay starts from, so the "
            "comparison proves little: use more control entities with --controls"
        )
    if not controls:
        notes.append(
            "no control entities are replayed, so nothing proves that the query can be "
            "replayed exactly"
        )
    return (*notes, *plan.warnings)


def of_batch(late: LateBatch, until: datetime | None) -> tuple[str, ...]:
    """Warn of what the batch has and the merge leaves out, whatever the query has seen."""
    notes = list(late.notes)
    if late.ignored:
        notes.append(f"the batch has columns that are not used: {', '.join(late.ignored)}")
    if late.doubled:
        notes.append(
            f"counted once, because the batch repeats them: {count_text(late.doubled, 'row')}"
        )
    if late.left_out and until is not None:
        notes.append(
            f"--until excludes {count_text(late.left_out, 'row')} of the batch, whose event time "
            f"is not before {rfc3339(until)}"
        )
    if rejected := sum(one.rows for one in late.rejected):
        notes.append(
            f"set aside, because they are no events: {count_text(rejected, 'row')} of the batch"
        )
    return tuple(notes)


def _seen_otherwise(plan: MergePlan, otherwise: KnownOtherwise) -> tuple[str, ...]:
    """Warn of events of the batch that the query has seen with other content."""
    if not otherwise.rows:
        return ()
    changed = (
        f"{count_text(otherwise.rows, 'event')} of the batch that {plan.query} has already "
        "seen with other content will not change, for example event "
        f"{otherwise.example}: to correct such an event, set its op to replace"
    )
    return (changed,)
