"""Repair selected state rows of a savepoint."""

from __future__ import annotations

import click

from savepoints.cli.names import savepoint_names
from savepoints.cli.options import Consent, Invocation, common, mutating, of_operator, of_query
from savepoints.cli.render import row_text, savepoint_text

_AT_MOST = 1000


@click.command("edit")
@click.argument("name", shell_complete=savepoint_names)
@of_operator
@click.option(
    "--variable", metavar="NAME", help="With transformWithState: the state variable to edit."
)
@click.option("--where", metavar="SQL", help="Edit only rows for which this expression is true.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="FIELD=SQL",
    help="Set a field of the value to this expression; may be repeated.",
)
@click.option("--delete", is_flag=True, help="Delete the rows.")
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
    help="Fail, and change nothing, if more rows than this would change.",
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
    """Repair selected state rows of savepoint NAME in a new savepoint.

    NAME itself is not changed. The new savepoint has the same offsets, watermark and output
    versions, and has its state only in the canonical form. To use it, restore it or
    roll back to it by its id or tag. It is skipped by latest, @TIME and `run --recover`.

    Columns are named as in `savepoints state`: key.x and value.y, or just x where that is
    unambiguous. Only fields of the value can be set. Every --set expression reads the row as it was
    before the edit.

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
        call.output.line(f"{plan.rows_chosen} of {plan.rows} rows selected, for example:")
        call.output.table(("", "row", "before", "after"), map(row_text.row_change, plan.sample))
    if not call.confirm(plan, consent):
        return
    savepoint = edit.execute(plan, call.store, change, progress=call.output.progress)
    savepoint_text.taken(call.output, savepoint)
