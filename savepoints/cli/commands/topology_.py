"""Show where state, sources and outputs of a query are."""

from __future__ import annotations

import click

from savepoints.cli.names import query_names
from savepoints.cli.options import Invocation, common
from savepoints.cli.render import topology_text


@click.command("topology")
@click.argument("query", required=False, shell_complete=query_names)
@click.option(
    "--checkpoint",
    metavar="URI",
    help="Show the query of this checkpoint; no store and no settings are needed.",
)
@common
def command(call: Invocation, query: str | None, checkpoint: str | None) -> None:
    """Show where QUERY keeps everything: operators and their state, sources, outputs.

    Reads the checkpoint at its newest committed batch, whether or not the query is running; changes
    nothing and needs no JVM. If a broker is configured, Kafka is asked how far behind each source
    is and which records it still retains. Row counts of the state come from the newest savepoint
    that has them. Anything not known is shown as unknown, with the reason.

    \b
    Examples:
      savepoints topology order_totals
      savepoints topology order_totals -o json
      savepoints topology --checkpoint s3://bucket/checkpoints/clicks
    """
    from savepoints.operations.inspect import topology

    if query is None and checkpoint is None:
        raise click.UsageError("QUERY or --checkpoint URI is required")
    if query is None and checkpoint is not None and not call.settings.store:
        found = topology.of_checkpoint(checkpoint, call.settings)
    else:
        store = call.place if query is None else call.store
        found = topology.topology(store, query, checkpoint)
    if call.output.format == "json":
        call.output.document(topology=found)
    else:
        topology_text.show(call.output, found)
