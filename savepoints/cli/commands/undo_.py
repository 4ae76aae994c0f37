"""Undo the last rollback, reset, promotion or merge of a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from savepoints.cli.commands.operations_ import take_back
from savepoints.cli.commands.rollback_ import rolled_back, undone_together
from savepoints.cli.names import query_names
from savepoints.cli.options import (
    Consent,
    Invocation,
    common,
    mutating,
    next_checkpoint,
    outputs_too,
    stopped_said,
)
from savepoints.errors import UsageError

if TYPE_CHECKING:
    from savepoints.operations.pipeline_rollback.rollback_plan import PipelineRollbackPlan
    from savepoints.store.locks.journal import Operation


@click.command("undo")
@click.argument("query", shell_complete=query_names)
@next_checkpoint
@outputs_too
@mutating
@stopped_said
@common
def command(
    call: Invocation, query: str, to: str | None, outputs: str, *, stopped: bool, consent: Consent
) -> None:
    """Undo the last rollback, reset, promotion or merge of QUERY.

    If the operation was interrupted, what it has done so far is undone; an undo that was
    interrupted is finished. Otherwise the query goes back to the safety savepoint that the
    operation took first, outputs included. An operation that changed several queries together is
    undone for all of them; so is a merge that was passed on to the readers of QUERY.

    To see which operation would be undone, use --dry-run. An undo cannot be undone, but you can
    roll back to the safety savepoint that it takes.

    \b
    Examples:
      savepoints undo order_totals --dry-run
      savepoints undo order_totals --yes
    """
    from savepoints.operations.rollback import rollback
    from savepoints.operations.rollback.target import BeforeLast
    from savepoints.store.locks import journal

    begun = journal.unfinished(call.store.root, query)
    # An undo that was interrupted is finished: the command is run again.
    if begun is not None and (not begun.is_undo or journal.UNDOING in begun.done):
        call.output.progress(f"undoing the interrupted {begun.verb} {begun.id}")
        take_back(call, begun.id, consent=consent)
        return
    together = _together(call, query, begun, stopped=stopped)
    if together is not None:
        if to is not None or outputs != "rewind":
            raise UsageError(
                "--to and --outputs none cannot be used to undo what changed several queries "
                f"together ({', '.join(together.queries)}): the outputs of all of them are "
                "rewound, and the new checkpoints chosen",
                hint=f"omit --to and --outputs: savepoints undo {query}",
                query=query,
            )
        undone_together(call, together, consent=consent)
        return
    plan = rollback.plan(
        call.store,
        BeforeLast(),
        query=query,
        to=to,
        rewind_outputs=outputs == "rewind",
        stopped=stopped,
    )
    if call.confirm(plan, consent):
        rolled_back(call, rollback.execute(plan, call.store, progress=call.output.progress))


def _together(
    call: Invocation, query: str, begun: Operation | None, *, stopped: bool
) -> PipelineRollbackPlan | None:
    """Return how several queries go back together, None if it is one alone."""
    from savepoints.operations import unfinished
    from savepoints.operations.pipeline_rollback.rollback_plan import PipelineRollbackPlan
    from savepoints.operations.rollback import last_operation

    if begun is not None:
        call.output.progress(f"finishing the interrupted undo {begun.id}")
        known = unfinished.plan(call.store, begun.id)
        return known if isinstance(known, PipelineRollbackPlan) else None
    last = last_operation.require(call.store, query)
    call.output.progress(
        f"the last operation is the {last.verb} {last.id}, begun at {last.begun_at}"
    )
    return unfinished.undo_together_plan(call.store, last, stopped=stopped)
