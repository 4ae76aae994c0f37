"""The next generation of a query, with late events worked in: planned, nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from savepoints.checkpoint.cut import read_cut
from savepoints.io import Location
from savepoints.model import Generation, new_id
from savepoints.moments import rfc3339, utc_now
from savepoints.operations.merge import source_ends
from savepoints.operations.merge.assignment import Assignment
from savepoints.operations.merge.plan import VERB, MergingPlan
from savepoints.operations.rollback import next_outputs, safety_savepoint
from savepoints.operations.rollback.query_context import QueryContext
from savepoints.outputs.correct import correct
from savepoints.outputs.correct.correct import Correction
from savepoints.outputs.delta.write import app_id, owner_prefix
from savepoints.plan import Step
from savepoints.runtime.app import App
from savepoints.store import bindings, scratch
from savepoints.store.root import Store
from savepoints.store.tables.merge_ledger import MergeFacts, MergePolicy
from savepoints.texts import count_text


def plan(
    store: Store,
    live: Generation,
    assignment: Assignment,
    facts: MergeFacts,
    *,
    app: App,
    replayed_batch: int,
    entity_fields: Mapping[int, str],
    command: str,
    still_since: datetime | None,
) -> MergingPlan:
    """Find out how the query goes on with the late events; writes nothing.

    Raises:
        NotAlignedError: If an output cannot be corrected without loss.
        OutputVersionGoneError: If the version of an output at a base can no longer be read.
        IncompatibleError: If a table does not say which entity a row is about, or two sources
            have read a topic up to different offsets.
    """
    cut = read_cut(Location.of(live.checkpoint))
    source_ends.require_one_position(live.query, cut)
    settings = bindings.complete(store)
    merge_id = assignment.affected.merge_id
    bound = settings.queries[live.query]
    context = QueryContext.open(store, live.query)
    present = safety_savepoint.plan(store, live, bound.outputs, settings)
    made = MergingPlan(
        **context.leaving(present, merge_id),
        verb=VERB,
        steps=(),
        warnings=(),
        command=command,
        savepoint_id=present[1],
        checkpoint=context.checkpoint(),
        outputs=(),
        binding=bindings.find(store.root, live.query, live.generation),
        facts=facts,
        batch_id=cut.cut.batch_id,
        place=str(scratch.place_of(store, merge_id)),
        replayed_batch=replayed_batch,
        corrections=corrections(assignment, context.number, cut.cut.batch_id, facts.policy),
        entity_fields={str(operator): field for operator, field in entity_fields.items()},
        base_versions={name: assignment.base_versions(name) for name in app.outputs},
        descent=assignment.live.descent,
        archive=assignment.live.inputs.archive(assignment.affected.input),
        still_since=None if still_since is None else rfc3339(still_since),
        first_id=new_id("sp", utc_now()),
    )
    return replace(made, steps=_steps(made))


def _steps(plan: MergingPlan) -> tuple[Step, ...]:
    whose = (
        "all state" if plan.of_all else f"the state of {count_text(plan.facts.entities, 'entity')}"
    )
    return (
        *safety_savepoint.step(plan.safety_id, plan.from_checkpoint, plan.from_batch),
        Step("checkpoint_written", f"write {plan.checkpoint}, with {whose} replaced"),
        *(Step("outputs_corrected", correct.what(one)) for one in plan.corrections),
        Step("generation_begun", f"begin generation {plan.generation} of {plan.query}"),
        Step(
            "settled",
            (
                "archive the late events, record them in the ledger, and take the savepoint "
                f"{plan.first_id}"
            ),
        ),
    )


def corrections(
    assignment: Assignment, number: int, batch_id: int, policy: MergePolicy
) -> tuple[Correction, ...]:
    """Find out whether the outputs can be corrected without loss; nothing is written.

    Raises:
        NotAlignedError: If others have written to an output.
        IncompatibleError: If a table does not say which entity a row is about.
    """
    affected, live = assignment.affected, assignment.live
    app, bound = live.inputs.app, live.inputs.bound
    known = next_outputs.own_ids(live.store, app.name)
    return tuple(
        correct.plan(
            name,
            bound.outputs[name],
            [one.pinned(name) for one in assignment.used.values()],
            mode=output.mode,
            key=output.key,
            entity=None if policy == "replay-all" else affected.entity_of(name),
            owner=owner_prefix(app.name),
            own_ids=(*known, *([bound.app_ids[name]] if name in bound.app_ids else [])),
            app_id=app_id(app.name, name, number),
            batch_id=batch_id,
            merge_id=affected.merge_id,
            own_rows=bound.own_rows.get(name),
            selection=output.selection,
        )
        for name, output in app.outputs.items()
    )
