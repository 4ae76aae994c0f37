"""Resume a paused query."""

from __future__ import annotations

from datetime import timedelta

import click

from savepoints.cli.commands.pause_ import show, waiting
from savepoints.cli.names import query_names
from savepoints.cli.options import Invocation, common


@click.command("resume")
@click.argument("query", shell_complete=query_names)
@waiting
@common
def command(call: Invocation, query: str, wait: timedelta | None) -> None:
    """Resume the paused QUERY in its current generation.

    The run that `savepoints pause` has paused continues with its next batch. Exit code 3 if the
    query is not running within --wait. Needs no JVM.

    To finish an interrupted rollback or other operation, use `savepoints operations resume`.

    \b
    Examples:
      savepoints resume order_totals
      savepoints resume order_totals --wait 2m -o json
    """
    from savepoints.operations.run import pause

    now = pause.resume(call.store, query, wait=wait, progress=call.output.progress)
    following = {
        "resuming": f"wait for it: savepoints resume {query} --wait",
        "stopped": f"no run is waiting: start one with savepoints run {query}",
    }
    already = "" if now.changed else "not paused: "
    show(call, now, already, following.get(now.state, ""))
