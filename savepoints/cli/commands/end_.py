"""End a query for good, such as a fork that is no longer needed."""

from __future__ import annotations

import click

from savepoints.cli.names import query_names
from savepoints.cli.options import Consent, Invocation, common, mutating


@click.command("end")
@click.argument("query", shell_complete=query_names)
@click.option(
    "--why",
    default="",
    metavar="TEXT",
    help="Reason for ending the query; shown to anyone who tries to start it.",
)
@mutating
@common
def command(call: Invocation, query: str, why: str, *, consent: Consent) -> None:
    """End QUERY for good, for example a fork that is no longer needed.

    Nothing is deleted: the plan names the checkpoint and the tables that remain. The query is
    refused by `run` and `attach` from then on, and the savepoint that it began from may expire. To
    continue from its newest savepoint as a new query, fork it.

    \b
    Examples:
      savepoints end order_totals_b --dry-run
      savepoints end order_totals_b --why "variant A was better" --yes
    """
    from savepoints.operations.pipeline import end

    plan = end.plan(call.store, query, why=why)
    if not call.confirm(plan, consent, unasked=plan.generation is None):
        return
    done = end.execute(plan, call.store)
    call.output.said(f"ended {done.query}: {done.why}", ended=done)
