"""`savepoints list`."""

from __future__ import annotations

from datetime import datetime
from typing import get_args

import click

from savepoints.cli.command import Invocation, common, moment
from savepoints.cli.output import bytes_text, moment_text
from savepoints.model import OperatorState, Savepoint, SavepointState


@click.command("list")
@click.option("--query", help="Only savepoints of this query.")
@click.option("--tag", help="Only savepoints with this tag.")
@click.option(
    "--since",
    metavar="TIME",
    callback=moment,
    help="Only cuts committed then or later: RFC 3339, or how long ago, such as 7d.",
)
@click.option(
    "--until", metavar="TIME", callback=moment, help="Only cuts committed then or before."
)
@click.option(
    "--state",
    type=click.Choice(get_args(SavepointState)),
    help="Only savepoints in this state; all that are not being removed by default.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many.")
@common
def command(
    call: Invocation,
    query: str | None,
    tag: str | None,
    since: datetime | None,
    until: datetime | None,
    state: SavepointState | None,
    limit: int | None,
) -> None:
    """List savepoints, the newest first. Needs no JVM.

    \b
    Examples:
      savepoints list
      savepoints list --query order_totals --since 7d -o json
      savepoints list --state broken
      savepoints list --tag release --until 2026-11-20T10:00:00Z --limit 5
    """
    from savepoints.store import catalog

    found = catalog.select(
        call.store.catalog.all(),
        query=query,
        tag=tag,
        since=since,
        until=until,
        state=state,
        limit=limit,
    )
    if call.output.format == "json":
        call.output.document(savepoints=found)
        return
    if not found:
        narrowed = any((query, tag, since, until, state))
        call.output.line(
            f"no such savepoints in {call.store.root}"
            if narrowed
            else f"no savepoints in {call.store.root} yet"
        )
        return
    call.output.table(
        (
            *("id", "query", "gen", "batch", "cut committed", "rows", "copied", "took", "state"),
            *("pinned", "description"),
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
                _state(one),
                "yes" if one.pinned else "",
                " ".join((*(f"[{tag}]" for tag in one.tags), one.description)).strip(),
            )
            for one in found
        ),
    )


def _rows(operators: tuple[OperatorState, ...]) -> str:
    counts = [one.rows for one in operators if one.rows is not None]
    return str(sum(counts)) if len(counts) == len(operators) else "-"


def _state(savepoint: Savepoint) -> str:
    reason = savepoint.state_reason
    return f"{savepoint.state}: {reason}" if reason else savepoint.state
