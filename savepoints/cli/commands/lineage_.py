"""Show which savepoint each generation began from."""

from __future__ import annotations

import click

from savepoints.cli.names import query_names
from savepoints.cli.options import Invocation, common


@click.command("lineage")
@click.option("--query", shell_complete=query_names, help="Show only this query.")
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "json", "mermaid", "dot"]),
    default="text",
    help="Print a tree, one JSON document, or a diagram for Mermaid or Graphviz (dot).",
)
@common
def command(call: Invocation, query: str | None, style: str) -> None:
    """Show which savepoint each generation began from.

    Also shows which savepoints were taken in each generation. Deleted savepoints that a generation
    or another savepoint still refers to are shown as gone. Needs no JVM.

    \b
    Examples:
      savepoints lineage --query order_totals
      savepoints lineage -o json
      savepoints lineage --format mermaid
      savepoints lineage --format dot | dot -Tsvg > lineage.svg
    """
    from savepoints.operations.inspect import lineage

    found = lineage.lineage(call.store, query=query)
    if style == "json" or (style == "text" and call.output.format == "json"):
        call.output.document(lineage=found.to_json())
    elif style == "mermaid":
        call.output.write(lineage.mermaid(found))
    elif style == "dot":
        call.output.write(lineage.dot(found))
    elif not found.nodes:
        call.output.line(f"no generations in {call.store.root} yet")
    else:
        call.output.line(lineage.tree(found))
