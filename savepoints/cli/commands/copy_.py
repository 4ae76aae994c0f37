"""Copy a savepoint into another store."""

from __future__ import annotations

from shlex import quote

import click

from savepoints.cli.names import savepoint_names
from savepoints.cli.options import Consent, Invocation, common, mutating, of_query
from savepoints.texts import bytes_text, count_text


@click.command("copy")
@click.argument("name", shell_complete=savepoint_names)
@click.argument("destination", metavar="DEST")
@of_query
@mutating
@common
def command(
    call: Invocation, name: str, destination: str, query: str | None, *, consent: Consent
) -> None:
    """Copy savepoint NAME into another store at DEST.

    DEST is a bucket, a prefix in a bucket, or a directory. The copy is complete and independent,
    and has the same id. The SHA-256 of every file is checked at the destination. Files that are
    already there are not copied again. If interrupted, run the command again to resume.

    \b
    Examples:
      savepoints copy latest s3://elsewhere/savepoints --dry-run
      savepoints copy before-release s3://elsewhere/savepoints --yes
      savepoints copy latest /mnt/backup/savepoints --query order_totals --yes
    """
    from savepoints.operations.maintain import copy

    plan = copy.plan(call.store, name, destination, query=query)
    if not call.confirm(plan, consent, unasked=plan.done):
        return
    done = copy.execute(plan, call.store, progress=call.output.progress)
    copied = f"{count_text(done.objects_copied, 'file')} ({bytes_text(done.bytes_written)}) copied"
    call.output.result(
        lambda: [
            ("savepoint", done.savepoint_id),
            ("destination", done.destination),
            ("files", f"{copied}, {done.objects_there} already there"),
            ("took", f"{done.seconds:.2f} s"),
            ("next", f"savepoints verify {done.savepoint_id} --store {quote(done.destination)}"),
        ],
        copied=done,
    )
