"""What a merge corrects in the outputs of a query."""

from __future__ import annotations

from savepoints.operations.merge.scope import MergeScope
from savepoints.operations.rollback import output_ids
from savepoints.outputs.correct import correct
from savepoints.outputs.correct.correct import Correction
from savepoints.outputs.delta.write import app_id, owner_prefix
from savepoints.store.tables.merge_ledger import MergePolicy


def corrections(
    scope: MergeScope, number: int, batch_id: int, policy: MergePolicy
) -> tuple[Correction, ...]:
    """Find out whether the outputs can be corrected without loss; nothing is written.

    Raises:
        NotAlignedError: If others have written to an output.
        FileSinkError: If one is a file sink.
        IncompatibleError: If a table does not say which entity a row is about.
    """
    app, bound = scope.inputs.app, scope.inputs.bound
    known = output_ids.own_ids(scope.store, app.name)
    return tuple(
        correct.plan(
            name,
            bound.outputs[name],
            [one.pinned(name) for one in scope.used.values()] if policy == "exact" else [None],
            mode=output.mode,
            key=output.key,
            entity=None if policy == "replay-all" else scope.entity_of(name),
            owner=owner_prefix(app.name),
            own_ids=(*known, *([bound.app_ids[name]] if name in bound.app_ids else [])),
            app_id=app_id(app.name, name, number),
            batch_id=batch_id,
            merge_id=scope.merge_id,
            own_rows=bound.own_rows.get(name),
        )
        for name, output in app.outputs.items()
    )
