"""Show what was done, by whom and with what result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from savepoints.cli.names import query_names
from savepoints.cli.options import Invocation, common
from savepoints.texts import moment_text

if TYPE_CHECKING:
    from savepoints.store.tables.events import Event


@click.command("events")
@click.option("--query", shell_complete=query_names, help="Show only events of this query.")
@click.option("--verb", help="Show only events of this command, for example create.")
@click.option(
    "--result",
    type=click.Choice(["done", "failed", "skipped"]),
    help="Show only events with this result.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    help="Show at most this many events; 50 by default.",
)
@common
def command(
    call: Invocation, query: str | None, verb: str | None, result: str | None, limit: int
) -> None:
    """Show what was done in the store, by whom and with what result.

    Savepoints that were skipped for the same reason share one line, with a count; the JSON document
    has every event. Needs no JVM.

    \b
    Examples:
      savepoints events
      savepoints events --query order_totals --result failed --limit 5 -o json
    """
    of_query = [one for one in call.store.events.all() if query in {None, one.query}]
    if query is not None and not of_query:  # There may be some of one that was renamed.
        call.store.require_query(query)
    matching = [
        one for one in of_query if verb in {None, one.verb} and result in {None, one.result}
    ]
    found = matching[:limit]
    if call.output.format == "json":
        call.output.document(events=found)
        return
    if not found:
        call.output.line(f"no matching events in {call.store.root}")
        return
    call.output.table(
        ("at", "verb", "query", "savepoint", "result", "took", "who", "message"),
        (
            (
                moment_text(one.at),
                one.verb,
                one.query or "-",
                one.savepoint or "-",
                one.result,
                f"{one.seconds:.1f}s",
                one.who,
                f"{times} times: {one.message}" if times > 1 else one.message,
            )
            for one, times in _together(matching)[:limit]
        ),
    )


def _together(events: Iterable[Event]) -> list[tuple[Event, int]]:
    """Count together what is skipped for the same reason again and again, at its newest time.

    A query that waits for data skips each periodic savepoint. Every skip is recorded, since alerts
    on overdue savepoints count them, but nobody wants to read them all.
    """
    times: dict[tuple[str | None, ...], int] = {}
    newest: dict[tuple[str | None, ...], Event] = {}
    for one in events:
        same = (one.verb, one.query, one.savepoint, one.message)
        key = same if one.result == "skipped" else (one.id, one.verb, one.at.isoformat())
        newest.setdefault(key, one)
        times[key] = times.get(key, 0) + 1
    return [(newest[key], count) for key, count in times.items()]
