"""Delete files that no savepoint references."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from savepoints.cli.options import Consent, Invocation, common, executed, mutating
from savepoints.cli.render import removal_text
from savepoints.config.duration import duration_text, parse_duration
from savepoints.texts import bytes_text, count_text

if TYPE_CHECKING:
    from savepoints.operations.maintain.gc import GcPlan


@click.command("gc")
@click.option(
    "--grace",
    metavar="DURATION",
    default="24h",
    show_default=True,
    help="Keep files younger than this, because a command may still be writing them.",
)
@mutating
@executed
@common
def command(call: Invocation, grace: str, *, consent: Consent) -> int:
    """Delete files that no savepoint references.

    Deletes files left behind by killed commands, and finishes interrupted removals of savepoints. A
    complete savepoint that is missing from the catalog is added to it.

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
    lines = (
        *map("added {} to the catalog".format, done.adopted),
        *map("removed {}".format, done.finished),
    )
    return removal_text.show(call.output, done, lines)


def _show(call: Invocation, plan: GcPlan) -> None:
    if plan.orphans:
        call.output.table(
            ("action", "why", "files", "size"),
            ((one.repair, one.why, len(one.files), bytes_text(one.bytes)) for one in plan.orphans),
            optional=("files", "size"),
        )
    for warning in plan.warnings:
        call.output.line(f"note: {warning}")
    call.output.line(
        f"{count_text(len(plan.orphans), 'leftover')}, {bytes_text(plan.bytes)} would be freed; "
        f"{plan.young} younger than {duration_text(timedelta(seconds=plan.grace_seconds))} would "
        "be kept"
    )
