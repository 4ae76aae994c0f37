"""Add the canonical rows to a native savepoint."""

from __future__ import annotations

import click

from savepoints.cli.names import savepoint_names
from savepoints.cli.options import Consent, Invocation, common, mutating, of_query
from savepoints.cli.render import savepoint_text


@click.command("export")
@click.argument("name", shell_complete=savepoint_names)
@of_query
@mutating
@common
def command(call: Invocation, name: str, query: str | None, *, consent: Consent) -> None:
    """Add the canonical form to a savepoint that has only the native one.

    Reads the native state files of savepoint NAME and writes the state as rows of a Delta table.
    The rows can be read with SQL, and restored by other versions of Spark. Nothing but the
    savepoint's manifest is changed, so export never asks for confirmation.

    \b
    Examples:
      savepoints export latest
      savepoints export before-release --dry-run -o json
    """
    from savepoints.operations.savepoint import export

    plan = export.plan(call.store, name, query=query)
    if not call.confirm(plan, consent, unasked=True):
        return
    savepoint = export.execute(plan, call.store, progress=call.output.progress)
    savepoint_text.taken(call.output, savepoint)
