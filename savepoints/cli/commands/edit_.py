"""Repair selected state rows of a savepoint."""

from __future__ import annotations

import click

from savepoints.cli.names import savepoint_names
from savepoints.cli.options import Consent, Invocation, common, mutating, of_query
from savepoints.cli.render import row_text, savepoint_text

_AT_MOST = 1000


@click.command("edit")
@click.argument("name", shell_complete=savepoint_names)
@click.option("--operator", type=int, metavar="N", help="Operator number; see savepoints show.")
@click.option("--variable", metavar="NAME", help="State variable of a transformWithState.")
@click.option("--where", metavar="SQL", help="Only rows for which this expression is true.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="FIELD=SQL",
    help="Set a field of the value; may be repeated.",
)
@click.option("--delete", is_flag=True, help="Remove the rows.")
@click.option(
    "--reason",
    required=True,
    metavar="TEXT",
    help="Reason for the edit; stored with the savepoint.",
)
@click.option(
    "--at-most",
    type=click.IntRange(min=1),
    default=_AT_MOST,
    show_default=True,
    metavar="ROWS",
    help="Abort if more rows than this would change.",
)
@of_query
@mutating
@common
def command(
    call: Invocation,
    name: str,
    operator: int | None,
    variable: str | None,
    where: str | None,
    assignments: tuple[str, ...],
    reason: str,
    at_most: int,
    query: str | None,
    *,
    delete: bool,
    consent: Consent,
) -> None:
    """Repair selected state rows, as a new savepoint.

    NAME itself is not changed. Columns are named as in `savepoints state`: key.x and value.y, or
    just x where that is unambiguous. Only fields of the value can be set; every --set sees the
    original row. Offsets, watermark and output versions are those of NAME. To use the new
    savepoint, restore or roll back to its id or tag: latest, @TIME and run --recover skip it. It
    has only the canonical form.

    \b
    Examples:
      savepoints edit latest --where "customer = '17'" --set 'sum = 0.0' --reason bug-12 --dry-run
      savepoints edit latest --where 'value.count < 0' --delete --reason 'see bug 12' --yes
      savepoints edit latest --variable total --where 'k = 3' --set 's = s + 9' --reason x --yes
    """
    from savepoints.operations.migrate import edit
    from savepoints.state.change.edit import StateEdit

    change = StateEdit(where, assignments, delete)
    plan = edit.plan(
        call.store,
        name,
        change,
        reason=reason,
        query=query,
        operator=operator,
        variable=variable,
        at_most=at_most,
        progress=call.output.progress,
    )
    if call.output.format != "json":
        call.output.line(f"{plan.rows_chosen} of {plan.rows} rows are selected; the first ones:")
        call.output.table(("", "row", "before", "after"), map(row_text.row_change, plan.sample))
    if not call.confirm(plan, consent):
        return
    savepoint = edit.execute(plan, call.store, change, progress=call.output.progress)
    savepoint_text.taken(call.output, savepoint)
