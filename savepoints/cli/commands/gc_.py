"""Delete files that no savepoint references."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from savepoints.cli.options import Consent, Invocation, common, executed, mutating
from savepoints.cli.output import bytes_text, count_text
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
    help="Ignore files younger than this; a command may still be writing them.",
)
@mutating
@executed
@common
def command(call: Invocation, grace: str, *, consent: Consent) -> int:
    """Delete files that no savepoint references.

    Files left by a killed command are deleted, and interrupted removals are finished. A complete
    savepoint missing from the catalog is added back.

    \b
    Examples:
      savepoints gc --dry-run
      savepoints gc --yes
      savepoints gc --grace 7d --dry-run -o json
    """
    from savepoints.operations.maintain import gc

    plan = gc.plan(call.store, grace=parse_duration(grace))
    if not call.confirm(plan, consent, unasked=not plan.orphans, show=lambda: _show(call, plan)):
        return 0
    done = gc.execute(plan, call.store, progress=call.output.progress)
    if call.output.format == "json":
        call.output.document(collected=done)
    else:
        _tell(call, done)
    return PartlyDoneError.exit_code if done.locked or done.findings else 0


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
            optional=("what", "files", "size"),
        )
    for warning in plan.warnings:
        call.output.line(f"note: {warning}")
    call.output.line(
        f"{count_text(len(plan.orphans), 'orphan')}, {bytes_text(plan.bytes)} would be freed; "
        f"{plan.young} more are younger than {duration_text(timedelta(seconds=plan.grace_seconds))}"
    )


def _tell(call: Invocation, done: Collected) -> None:
    for name in done.adopted:
        call.output.line(f"adopted {name}")
    for name in done.finished:
        call.output.line(f"removed {name}")
    for name, reasons in done.kept.items():
        call.output.line(f"kept {name}: {', '.join(reasons)}")
    for query_id, why in done.locked.items():
        call.output.line(f"skipped {query_id}: {why}")
    for finding in done.findings:
        call.output.line(f"note: {finding}")
    call.output.line(
        f"{bytes_text(done.bytes)} in {count_text(done.files, 'file')} freed, {done.seconds:.1f} s"
    )
