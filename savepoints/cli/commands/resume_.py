"""`savepoints resume`."""

from __future__ import annotations

from datetime import timedelta

import click

from savepoints.cli.commands.pause_ import show, waiting
from savepoints.cli.options import Invocation, common


@click.command("resume")
@click.argument("query")
@waiting
@common
def command(call: Invocation, query: str, wait: timedelta | None) -> None:
    """Let the paused run of QUERY go on, in the generation that is the current one by now.

    This is the other half of `savepoints pause`. To finish a rollback or another command that was
    interrupted, use `savepoints operations resume`. Exits with 3 if it does not run within --wait.
    Needs no JVM.

    \b
    Examples:
      savepoints resume order_totals
      savepoints resume order_totals --wait 2m -o json
    """
    from savepoints.operations.run import pause

    now = pause.resume(call.store, query, wait=wait, progress=call.output.progress)
    if call.output.format == "json":
        call.output.document(pause=now)
        return
    following = {
        "resuming": f"wait for it: savepoints resume {query} --wait",
        "stopped": f"no run waits: start one with savepoints run {query}",
    }
    already = "" if now.changed else "not paused: "
    show(call, now, already, following.get(now.state, ""))
