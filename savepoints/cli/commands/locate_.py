"""`savepoints locate`."""

from __future__ import annotations

import click

from savepoints.cli.options import Invocation, common
from savepoints.errors import NotFoundError


@click.command("locate")
@click.argument("query")
@click.argument("output", required=False)
@common
def command(call: Invocation, query: str, output: str | None) -> None:
    """Print where the outputs of QUERY are now, or OUTPUT alone: for those who read them.

    `savepoints promote --outputs point` lets a query go on in the tables of its fork. Readers that
    ask here before they open a table go there with it. Needs no JVM.

    \b
    Examples:
      savepoints locate order_totals
      savepoints locate order_totals totals
      savepoints locate order_totals -o json
    """
    from savepoints.operations.inspect.locate import locate

    found = locate(call.store, query, settings=call.settings)
    if not found.outputs:
        raise NotFoundError(
            f"no table is known that {query} writes",
            hint=f"name it in [queries.{query}.outputs] of the settings, or where its savepoints "
            "are taken: savepoints create --table NAME=URI, attach(…, outputs={'NAME': 'URI'})",
            query=query,
        )
    if output is not None and output not in found.outputs:
        raise NotFoundError(
            f"{query} has no output {output!r}",
            hint=f"it has: {', '.join(sorted(found.outputs))}",
            query=query,
            output=output,
        )
    if call.output.format == "json":
        call.output.document(located=found)
    elif output is not None:
        call.output.line(found.outputs[output])
    else:
        call.output.pairs(sorted(found.outputs.items()))
