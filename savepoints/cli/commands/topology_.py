"""Show the operators, state, sources and outputs of a query."""

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
    help="Show the query of this checkpoint directory; needs neither a store nor settings.",
)
@common
def command(call: Invocation, query: str | None, checkpoint: str | None) -> None:
    """Show the operators, state, sources and outputs of QUERY.

    Reads the newest committed batch in the checkpoint, whether or not the query is running. If the
    settings name a Kafka broker, it is asked how far behind each source is and which records Kafka
    still retains. The row counts of the state come from the newest savepoint that has them. What is
    not known is shown as unknown, with the reason. Changes nothing and needs no JVM.

    \b
    Examples:
      savepoints topology order_totals
      savepoints topology order_totals -o json
      savepoints topology --checkpoint s3://bucket/checkpoints/clicks
    """
    from savepoints.operations.inspect import topology

    if query is None and checkpoint is None:
        raise click.UsageError("topology needs a QUERY or --checkpoint URI")
    if query is None and checkpoint is not None and not call.settings.store:
        found = topology.of_checkpoint(checkpoint, call.settings)
    else:
        store = call.place if query is None else call.store
        found = topology.topology(store, query, checkpoint)
    if call.output.format == "json":
        call.output.document(topology=found)
    else:
        topology_text.show(call.output, found)
