"""Serve the page of the store on this machine, read-only."""

from __future__ import annotations

import click

from savepoints.cli.options import Invocation, common, store_alone


@click.command("ui")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8321,
    show_default=True,
    help="Port on 127.0.0.1 to listen on; 0 for any free port.",
)
@store_alone
@common
def command(call: Invocation, port: int, *, no_source_check: bool) -> None:
    """Serve the page of the store on this machine until Ctrl-C.

    Serves the same page as `savepoints page`, rebuilt for each request, plus a comparison of any
    two savepoints. Add ?query=NAME or ?since=30d to the address to see less. The page is read-only
    and only this machine can open it. From another machine, use an SSH tunnel:
    ssh -L 8321:127.0.0.1:8321 HOST. Needs no JVM.

    \b
    Examples:
      savepoints ui
      savepoints ui --port 0
    """
    from savepoints.ui import server

    listening = server.listen(port)
    application = server.application(call.store, sources=not no_source_check)
    url = f"http://{server.ADDRESS}:{listening.getsockname()[1]}/"
    call.output.said(f"{url} (stop with Ctrl-C)", url=url)
    server.serve(application, listening)
