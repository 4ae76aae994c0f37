"""`savepoints gc`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from savepoints.cli.options import Invocation, common
from savepoints.cli.output import bytes_text
from savepoints.config.duration import duration_text, parse_duration
from savepoints.errors import PartlyDoneError

if TYPE_CHECKING:
    from savepoints.operations.maintain.gc import Collected, GcPlan


@click.command("gc")
@click.option(
    "--grace",
    metavar="DURATION",
    default="24h",
    show_default=True,
    help="Leave what is younger alone; it may still be in the making.",
)
@click.option("--execute", "is_executed", is_flag=True, help="Do it; without, only say what.")
@common
def command(call: Invocation, grace: str, *, is_executed: bool) -> int:
    """Find files that no savepoint needs. Says what it would do unless --execute is given.

    What a killed command left is deleted, and removals that were interrupted are finished. A whole
    savepoint that the catalog does not know is adopted: it gets a row.

    \b
    Examples:
      savepoints gc
      savepoints gc --execute
      savepoints gc --grace 7d -o json
    """
    from savepoints.operations.maintain import gc

    plan = gc.plan(call.store, grace=parse_duration(grace))
    done = None
    if is_executed:
        done = gc.execute(plan, call.store, progress=call.output.progress)
    if call.output.format == "json":
        if done is None:
            call.output.document(dry_run=True, plan=plan.to_json())
        else:
            call.output.document(collected=done)
    elif done is None:
        _show(call, plan)
    else:
        _tell(call, done)
    return PartlyDoneError.exit_code if done and (done.locked or done.findings) else 0


def _show(call: Invocation, plan: GcPlan) -> None:
    if plan.orphans:
        call.output.table(
            ("what", "where", "to do", "why", "files", "size"),
            (
                (
                    one.kind,
                    one.place,
                    one.action,
                    one.why,
                    len(one.files),
                    bytes_text(one.bytes),
                )
                for one in plan.orphans
            ),
        )
    for warning in plan.warnings:
        call.output.line(f"note: {warning}")
    call.output.line(
        f"{len(plan.orphans)} orphans, {bytes_text(plan.bytes)} would be freed; {plan.young} more "
        f"are younger than {duration_text(timedelta(seconds=plan.grace_seconds))}"
    )
    if plan.orphans:
        call.output.err.print("nothing was done: pass --execute")


def _tell(call: Invocation, done: Collected) -> None:
    for name in done.adopted:
        call.output.line(f"adopted {name}")
    for name in done.finished:
        call.output.line(f"removed {name}")
    for name, reasons in done.kept.items():
        call.output.line(f"kept {name}: {', '.join(reasons)}")
    for query_id, why in done.locked.items():
        call.output.line(f"left {query_id} alone: {why}")
    for finding in done.findings:
        call.output.line(f"note: {finding}")
    call.output.line(f"{bytes_text(done.bytes)} in {done.files} files freed, {done.seconds:.1f} s")
