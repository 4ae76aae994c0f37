"""Rehearse a restore in isolation and compare with the live query."""

from __future__ import annotations

import click

from savepoints.cli.names import savepoint_names
from savepoints.cli.options import Invocation, broken_too, common, of_query, restored_form
from savepoints.errors import PartlyDoneError, VerificationError
from savepoints.model import Form

_CAUSES = (
    "the program or a table that it joins has changed since these batches ran; or its results "
    "depend on the order of rows, as sums of floating-point numbers and the maximum of 0.0 and "
    "-0.0 do; otherwise the savepoint is not what live was"
)


@click.command("drill")
@click.argument("name", default="latest", shell_complete=savepoint_names)
@restored_form
@broken_too
@of_query
@common
def command(
    call: Invocation, name: str, form: Form | None, query: str | None, *, even_broken: bool
) -> int:
    """Rehearse a recovery from savepoint NAME; the query is not touched.

    Restores the savepoint into a temporary checkpoint, replays it up to the position of the live
    query, and compares the two. Records the verdict, and how long the recovery took, in the events
    of the store. If the settings name no application for the query, nothing is replayed: the
    restored state is compared with what the savepoint recorded. State whose
    rows Spark cannot read is restored and replayed, but not compared: the
    result names it, and so it does state of which a savepoint without rows
    recorded nothing.

    Suitable for cron: exit code 13 if anything differs, 3 if nothing does but
    some state was not compared.

    \b
    Examples:
      savepoints drill
      savepoints drill latest~3 --query order_totals --format canonical -o json
    """
    from savepoints.operations.inspect.drill import drill

    done = drill(
        call.store,
        name,
        query=query,
        form=form,
        even_broken=even_broken,
        progress=call.output.progress,
    )
    live = "" if done.live_batch is None else f", replayed to {done.live_batch}"
    call.output.result(
        lambda: [
            ("savepoint", f"{done.savepoint_id} of {done.query}, batch {done.batch_id}{live}"),
            ("verdict", f"{done.verdict}: compared with {done.compared_with}"),
            ("recovery", f"{done.restore_seconds:.2f} s from the {done.form} form"),
            ("replay", f"{done.replay_seconds:.1f} s"),
            *((one.what, one.problem) for one in done.differences),
            *((("possible causes", _CAUSES),) if done.differences and live else ()),
            *(
                ("not compared", f"the state of operator {one.operator_id}: {one.why}")
                for one in done.not_compared
            ),
            ("took", f"{done.seconds:.1f} s"),
        ],
        drill=done,
    )
    if done.verdict == "different":
        return VerificationError.exit_code
    return PartlyDoneError.exit_code if done.not_compared else 0
