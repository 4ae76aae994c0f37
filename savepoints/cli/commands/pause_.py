"""Pause a query after its current batch."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from savepoints.cli.names import query_names
from savepoints.cli.options import Function, Invocation, common, duration
from savepoints.texts import moment_text

if TYPE_CHECKING:
    from savepoints.operations.run.pause import PauseState

_DEFAULT_WAIT = "10m"


def waiting(function: Function) -> Function:
    """Add `--wait`, whose value may be left out."""
    return click.option(
        "--wait",
        metavar="[DURATION]",
        is_flag=False,
        flag_value=_DEFAULT_WAIT,
        callback=duration,
        help="Wait up to this long for the query to pause or resume; without a value, "
        f"{_DEFAULT_WAIT}.",
    )(function)


@click.command("pause")
@click.argument("query", shell_complete=query_names)
@waiting
@click.option(
    "--reason",
    default="",
    metavar="TEXT",
    help="Reason for the pause; shown with the status of the query.",
)
@common
def command(call: Invocation, query: str, wait: timedelta | None, reason: str) -> None:
    """Pause QUERY after its current batch.

    The run finishes its batch, takes a native savepoint and releases the lease, so that rollback
    and other commands can change the query. It then waits for `savepoints resume`. A run with
    --until or another limit ends instead. If the query is not running, its next run is paused as
    soon as it starts. Only queries that `savepoints run` runs can be paused, not those in your own
    driver.

    To see the current status, run the command again. Exit code 3 if the query has not paused within
    --wait. Needs no JVM.

    \b
    Examples:
      savepoints pause order_totals --wait
      savepoints pause order_totals --wait 5m --reason "new table layout" -o json
    """
    from savepoints.operations.run import pause

    now = pause.pause(call.store, query, reason=reason, wait=wait, progress=call.output.progress)
    following = {
        "pausing": f"wait for it: savepoints pause {query} --wait",
        "paused": f"savepoints resume {query}",
        "stopped": "no run is active: the next one starts paused",
    }
    already = "" if now.changed or now.state == "stopped" else "already "
    show(call, now, already, following.get(now.state, ""))


def show(call: Invocation, now: PauseState, already: str, following: str) -> None:
    """Show the status of a query."""
    asked = f"{moment_text(now.asked_at)} by {now.asked_by}" if now.asked_at else ""
    stopped = now.paused_at is not None
    batch = "none" if now.batch_id is None else f"{now.batch_id}, generation {now.generation}"
    pairs = [
        ("query", now.query),
        ("state", f"{already}{now.state}"),
        ("requested", asked),
        ("reason", now.reason),
        ("paused since", moment_text(now.paused_at) if now.paused_at else ""),
        ("batch", batch if stopped else ""),
        ("savepoint", (now.savepoint_id or f"none: {now.error}".rstrip(": ")) if stopped else ""),
        ("run", now.run or "none"),
        ("next", following),
    ]
    call.output.result(lambda: [(name, value) for name, value in pairs if value], pause=now)
