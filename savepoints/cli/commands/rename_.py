"""Rename a query that your own driver starts."""

from __future__ import annotations

import click

from savepoints.cli.names import query_names
from savepoints.cli.options import Consent, Invocation, common, mutating
from savepoints.texts import count_text


@click.command("rename")
@click.argument("query", shell_complete=query_names)
@click.argument("name")
@mutating
@common
def command(call: Invocation, query: str, name: str, *, consent: Consent) -> None:
    """Rename QUERY to NAME; for queries in your own driver.

    All savepoints and generations of the query get the new name. A query that `savepoints run`
    starts cannot be renamed, because its name is recorded in the transactions of its tables.

    \b
    Examples:
      savepoints rename 3c5c7b0e-6f0d-4b8e-9a57-0d5a4b1d9a11 clicks
      savepoints rename clicks page_clicks --dry-run
    """
    from savepoints.operations.maintain import rename

    plan = rename.plan(call.store, query, name)
    if not call.confirm(plan, consent):
        return
    rename.execute(plan, call.store)
    said = f"renamed {plan.query} to {plan.to}, with {count_text(plan.savepoints, 'savepoint')}"
    call.output.said(said, query=plan.to, savepoints=plan.savepoints)
