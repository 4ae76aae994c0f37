"""Write one HTML page that shows the state of the store."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from savepoints.cli.names import query_names
from savepoints.cli.options import Invocation, common, moment, store_alone


@click.command("page")
@click.option(
    "--out",
    "path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.html",
    help="File to write; an existing file is replaced atomically.",
)
@click.option(
    "--query",
    shell_complete=query_names,
    help="Show only this query, its forks, and the query that it was forked from.",
)
@click.option(
    "--since",
    metavar="TIME",
    callback=moment,
    help="Show only what happened at or after this time: RFC 3339, or an age like 30d.",
)
@store_alone
@common
def command(
    call: Invocation,
    path: Path,
    query: str | None,
    since: datetime | None,
    *,
    no_source_check: bool,
) -> None:
    """Write one HTML page that shows the state of the store.

    The page starts with what needs attention and the command to run in each case. For each query,
    it shows the age of the last savepoint, how much longer that can be restored, the lag, and the
    last verify and drill. A timeline of savepoints, generations and forks follows, then the details
    of every savepoint, the operations and the events.

    The page is a single file without scripts or external resources: mail it, print it, or keep it
    with an incident. It shows offsets, table URIs, tags and error messages, but no state rows.
    `savepoints ui` serves the same page, always up to date. Needs no JVM.

    \b
    Examples:
      savepoints page --out store.html
      savepoints page --out orders.html --query orders --since 30d
      savepoints page --out store.html --no-source-check
    """
    from savepoints.ui import environment, page

    environment.require("pages")
    page.require_place(path, "--out")
    html = page.page(call.store, query=query, since=since, sources=not no_source_check)
    page.write(html, path)
    call.output.said(f"wrote {path}", path=str(path), bytes=path.stat().st_size)
