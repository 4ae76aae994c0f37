"""Replace the live query with a fork of it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from savepoints.cli.commands.rollback_ import undone
from savepoints.cli.names import query_names
from savepoints.cli.options import (
    Consent,
    Invocation,
    common,
    mutating,
    pausing_the_run,
    require_undo_alone,
)
from savepoints.cli.render.pause_text import pause_pair, undo_pair

if TYPE_CHECKING:
    from savepoints.operations.fork.promote import Promoted
    from savepoints.operations.fork.promote_steps import HandOver


@click.command("promote")
@click.argument("fork", shell_complete=query_names)
@click.option(
    "--into", metavar="QUERY", help="Live query to replace; by default the query that was forked."
)
@click.option(
    "--outputs",
    "hand_over",
    type=click.Choice(["replace", "point"]),
    default="replace",
    help="replace: replace the rows of the live tables with those of the fork's tables; point: let "
    "the live query continue with the fork's tables, which readers must then read instead.",
)
@click.option("--no-checks", is_flag=True, help="Promote without running the checks.")
@click.option(
    "--undo", is_flag=True, help="Undo the last promotion; pass the live query in place of FORK."
)
@pausing_the_run
@mutating
@common
def command(
    call: Invocation,
    fork: str,
    into: str | None,
    hand_over: HandOver,
    wait: timedelta,
    *,
    no_checks: bool,
    undo: bool,
    consent: Consent,
) -> None:
    """Replace the live query with FORK.

    The fork catches up while the live query keeps running. Then the live query is paused, both are
    run to exactly the same offsets, and the fork is checked as configured under [promote] in the
    settings. If a check fails, the live query resumes unchanged. Otherwise its next generation
    starts with the state and program of the fork, and a paused run resumes with this program.

    With --outputs replace, the rows of each live table are replaced with those of the fork in one
    commit, and the fork stays as it is. With --outputs point, the live query continues with the
    tables of the fork, and the fork ends; `savepoints locate` tells readers where the tables are.

    With --undo, the live query goes back to its state before the promotion, outputs included.

    \b
    Examples:
      savepoints promote tiers_v2 --dry-run
      savepoints promote tiers_v2 --yes
      savepoints promote tiers_v2 --outputs point --yes
      savepoints promote order_tiers --undo --yes
    """
    from savepoints.operations.fork import promote, promote_plan

    if undo:
        require_undo_alone(f"savepoints promote {fork} --undo")
        undone(call, fork, "promote", consent=consent)
        return
    plan = promote_plan.plan(call.store, fork, into=into, hand_over=hand_over, checks=not no_checks)
    call.say_resumed(plan.begun)
    if not call.confirm(plan, consent):
        return
    done = promote.execute(plan, call.store, wait=wait, progress=call.output.progress)
    call.output.result(lambda: _pairs(done), promoted=done)


def _pairs(done: Promoted) -> list[tuple[str, object]]:
    return [
        ("query", f"{done.query}, now generation {done.generation}, from {done.fork}"),
        ("program", done.application),
        ("offsets", str(done.offsets)),
        *((f"check {one.name}", one.found) for one in done.checks),
        *((f"output {name}", uri) for name, uri in done.outputs.items()),
        ("safety savepoint", done.safety_id or "none"),
        pause_pair(done.pause_seconds),
        ("took", f"{done.seconds:.1f} s"),
        undo_pair(done.query, runs=done.resumed),
        ("next", f"{done.query} keeps running" if done.resumed else f"savepoints run {done.query}"),
    ]
