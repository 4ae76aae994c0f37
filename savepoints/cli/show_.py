"""`savepoints show`."""

from __future__ import annotations

import click

from savepoints.cli import savepoint_text
from savepoints.cli.command import Invocation, common, of_query


@click.command("show")
@click.argument("name")
@of_query
@common
def command(call: Invocation, name: str, query: str | None) -> None:
    """Show everything about the savepoint NAME. Needs no JVM.

    NAME is an id, a unique prefix of one, a tag, latest, latest~2 (the second before it), or @TIME.
    The size is what it needs by itself: files that it shares with others are counted once more.

    \b
    Examples:
      savepoints show latest
      savepoints show @2026-11-20T10:00:00Z -o json
    """
    savepoint = call.store.catalog.find(name, query=query)
    if call.output.format == "json":
        call.output.document(savepoint=savepoint.to_json())
    else:
        savepoint_text.details(call.output, savepoint)
