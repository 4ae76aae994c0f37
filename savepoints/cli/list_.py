"""`savepoints list`."""

from __future__ import annotations

import click

from savepoints.cli.command import Invocation, common
from savepoints.cli.output import bytes_text, moment_text
from savepoints.model import OperatorState


@click.command("list")
@click.option("--query", help="Only savepoints of this query.")
@common
def command(call: Invocation, query: str | None) -> None:
    """List savepoints, the newest first. Needs no JVM.

    \b
    Examples:
      savepoints list
      savepoints list --query order_totals -o json
    """
    found = [one for one in call.store.catalog.all() if query is None or one.query == query]
    if call.output.format == "json":
        call.output.document(savepoints=[one.to_json() for one in found])
        return
    if not found:
        call.output.line(f"no savepoints in {call.store.root} yet")
        return
    call.output.table(
        (
            *("id", "query", "gen", "batch", "cut committed", "rows", "copied", "took", "state"),
            "description",
        ),
        (
            (
                one.id,
                one.query,
                one.generation,
                one.cut.batch_id,
                moment_text(one.cut.committed_at),
                _rows(one.operators),
                bytes_text(one.cost.bytes_copied + one.cost.export_bytes),
                f"{one.cost.seconds:.1f}s",
                one.state,
                " ".join((*(f"[{tag}]" for tag in one.tags), one.description)),
            )
            for one in found
        ),
    )


def _rows(operators: tuple[OperatorState, ...]) -> str:
    counts = [one.rows for one in operators if one.rows is not None]
    return str(sum(counts)) if len(counts) == len(operators) else "-"
