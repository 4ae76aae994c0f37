"""Print where the current outputs of a query are."""

from __future__ import annotations

import click

from savepoints.cli.names import query_names
from savepoints.cli.options import Invocation, common
from savepoints.errors import NotFoundError


@click.command("locate")
@click.argument("query", shell_complete=query_names)
@click.argument("output", required=False)
@common
def command(call: Invocation, query: str, output: str | None) -> None:
    """Print the current locations of QUERY's outputs, or of OUTPUT only.

    After `savepoints promote --outputs point`, a query writes to the tables of its fork. Programs
    that call locate before they open a table read from the new location. Needs no JVM.

    \b
    Examples:
      savepoints locate order_totals
      savepoints locate order_totals totals
      savepoints locate order_totals -o json
    """
    from savepoints.operations.inspect.locate import locate

    found = locate(call.store, query)
    if not found.outputs:
        raise NotFoundError(
            f"the output tables of {query} are unknown",
            hint=f"name them in [queries.{query}.outputs] in the settings, with savepoints "
            f"create {query} --table NAME=URI, or with attach(…, outputs={{'NAME': 'URI'}})",
            query=query,
        )
    if output is not None and output not in found.outputs:
        raise NotFoundError(
            f"{query} has no output {output!r}",
            hint=f"choose one of its outputs: {', '.join(sorted(found.outputs))}",
            query=query,
            output=output,
        )
    if call.output.format == "json":
        call.output.document(located=found)
    elif output is not None:
        call.output.line(found.outputs[output])
    else:
        call.output.pairs(sorted(found.outputs.items()))
