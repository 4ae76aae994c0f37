"""Add the canonical rows to a native savepoint."""

from __future__ import annotations

import click

from savepoints.cli.names import savepoint_names
from savepoints.cli.options import (
    Invocation,
    common,
    mutating,
    of_query,
)
from savepoints.cli.render import savepoint_text


@click.command("export")
@click.argument("name", shell_complete=savepoint_names)
@of_query
@mutating
@common
def command(
    call: Invocation,
    name: str,
    query: str | None,
    *,
    dry_run: bool,
    yes: bool,
    no_input: bool,
) -> None:
    """Add the canonical rows to the savepoint NAME, from its files.

    For savepoints taken with --format native. The rows can be read with SQL, and restored with
    other partitions, into the other provider and by other versions of Spark. Nothing existing is
    changed except the description of the savepoint, so it never asks.

    \b
    Examples:
      savepoints export latest
      savepoints export before-release --dry-run -o json
    """
    from savepoints.operations.savepoint import export

    del yes
    plan = export.plan(call.store, name, query=query)
    if not call.confirm(plan, yes=True, dry_run=dry_run, no_input=no_input):
        return
    savepoint = export.execute(
        plan, call.store, settings=call.settings, progress=call.output.progress
    )
    if call.output.format == "json":
        call.output.document(savepoint=savepoint.to_json())
    else:
        savepoint_text.summary(call.output, savepoint)
