"""Copy a savepoint into another store."""

from __future__ import annotations

import click

from savepoints.cli.names import savepoint_names
from savepoints.cli.options import (
    Invocation,
    common,
    mutating,
    of_query,
)
from savepoints.cli.output import bytes_text


@click.command("copy")
@click.argument("name", shell_complete=savepoint_names)
@click.argument("destination", metavar="DEST")
@of_query
@mutating
@common
def command(
    call: Invocation,
    name: str,
    destination: str,
    query: str | None,
    *,
    dry_run: bool,
    yes: bool,
    no_input: bool,
) -> None:
    """Copy the savepoint NAME into the store at DEST: a bucket, prefix or directory.

    The copy is complete and independent, and has the same id. Every file is checked against its
    SHA-256 at the destination; files that are already there are not copied again. If it is
    interrupted, run it again to resume.

    \b
    Examples:
      savepoints copy latest s3://elsewhere/savepoints --dry-run
      savepoints copy before-release s3://elsewhere/savepoints --yes
      savepoints copy latest /mnt/backup/savepoints --query order_totals --yes
    """
    from savepoints.operations.maintain import copy

    plan = copy.plan(call.store, name, destination, query=query)
    if not call.confirm(plan, yes=yes or plan.done, dry_run=dry_run, no_input=no_input):
        return
    done = copy.execute(plan, call.store, progress=call.output.progress)
    if call.output.format == "json":
        call.output.document(copied=done)
        return
    copied = f"{done.objects_copied} files ({bytes_text(done.bytes_written)}) copied"
    call.output.pairs(
        [
            ("savepoint", done.savepoint_id),
            ("destination", done.destination),
            ("files", f"{copied}, {done.objects_there} already there"),
            ("took", f"{done.seconds:.2f} s"),
            ("next", f"savepoints verify {done.savepoint_id} --store {done.destination}"),
        ]
    )
