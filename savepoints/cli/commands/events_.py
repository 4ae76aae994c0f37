"""Show what was done, by whom and with what result."""

from __future__ import annotations

import click

from savepoints.cli.names import query_names
from savepoints.cli.options import Invocation, common
from savepoints.texts import moment_text


@click.command("events")
@click.option("--query", shell_complete=query_names, help="Only events of this query.")
@click.option("--verb", help="Only events of this verb, for example create.")
@click.option(
    "--result",
    type=click.Choice(["done", "failed", "skipped"]),
    help="Only events with this result.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, help="Show at most this many; 50 by default."
)
@common
def command(
    call: Invocation, query: str | None, verb: str | None, result: str | None, limit: int
) -> None:
    """Show what was done to the store, by whom and with what result. Needs no JVM.

    \b
    Examples:
      savepoints events
      savepoints events --query order_totals --result failed --limit 5 -o json
    """
    found = [
        one
        for one in call.store.events.all()
        if query in {None, one.query} and verb in {None, one.verb} and result in {None, one.result}
    ][:limit]
    if call.output.format == "json":
        call.output.document(events=found)
        return
    if not found:
        call.output.line(f"no matching events in {call.store.root}")
        return
    call.output.table(
        ("at", "verb", "query", "savepoint", "result", "took", "who", "message"),
        (
            (
                moment_text(one.at),
                one.verb,
                one.query or "-",
                one.savepoint or "-",
                one.result,
                f"{one.seconds:.1f}s",
                one.who,
                one.message,
            )
            for one in found
        ),
    )
