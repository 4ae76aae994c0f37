"""List events that Spark dropped as late."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from savepoints.cli.names import query_names
from savepoints.cli.options import Invocation, common, moment
from savepoints.moments import rfc3339
from savepoints.texts import count_text, span_text

if TYPE_CHECKING:
    from savepoints.operations.merge.late import LateEvents
    from savepoints.sources.late.late_figures import LateEvent, LateHour, LateOperator

_HOURS = 24
_MINUTE = 60


@click.command("late")
@click.argument("query", shell_complete=query_names)
@click.option(
    "--since",
    metavar="TIME",
    callback=moment,
    help="Count only events dropped by batches that ran at or after this time: RFC 3339, or an "
    "age like 1d.",
)
@common
def command(call: Invocation, query: str, since: datetime | None) -> None:
    """Count the events that QUERY read but Spark dropped as late.

    Spark silently drops events that the watermark has passed, and its metrics count only rows after
    partial aggregation. This command counts the events themselves: it compares what each
    batch read with the watermark of that batch, as each operator of the program does. Nothing is
    changed, and the query may be running.

    Events that have been merged since are left out. Late duplicates of events that the query had
    already counted in time are shown separately and never merged. To merge the remaining dropped
    events, use `savepoints merge QUERY --dropped`.

    \b
    Examples:
      savepoints late order_totals
      savepoints late order_totals --since 1d -o json
    """
    from savepoints.operations.merge import late

    found = late.late(call.store, query, since=since, progress=call.output.progress)
    call.output.result(lambda: _pairs(found), late=found)


def _span(seconds: float) -> str:
    return f"{seconds:g} s" if seconds < _MINUTE else span_text(timedelta(seconds=seconds))


def _pairs(found: LateEvents) -> list[tuple[str, object]]:
    batches = count_text(found.batches, "batch")
    pairs: list[tuple[str, object]] = [
        ("query", f"{found.query}, generation {found.generation}, {batches}"),
        ("dropped", _events(found)),
    ]
    if len(found.inputs) > 1:
        pairs += [(f"input {name}", count_text(n, "event")) for name, n in found.inputs.items()]
    if found.again:
        again = count_text(found.again, "event")
        pairs.append(("delivered twice", f"{again}, already counted the first time"))
    pairs += [("note", one) for one in found.notes]
    if not found.events:
        return pairs
    named = "event" if len(found.newest) == found.events else "for example"
    middle, most, nearly, longest = map(_span, found.missed_seconds)
    return [
        *pairs,
        *((one.name, _dropped(one)) for one in found.operators),
        ("too late by", f"{middle} (median), {most} (p90), {nearly} (p99), {longest} (maximum)"),
        *((f"{one.hour:%Y-%m-%d %H}:00", _events(one)) for one in found.hours[-_HOURS:]),
        *((named, _event(one)) for one in found.newest),
        *(("missing from", uri) for uri in found.outputs),
        ("merge them", f"savepoints merge {found.query} --dropped --dry-run"),
    ]


def _events(counted: LateEvents | LateHour) -> str:
    return f"{count_text(counted.events, 'event')} of {count_text(counted.entities, 'entity')}"


def _event(one: LateEvent) -> str:
    return f"{one.event_id} of {one.entity}, {rfc3339(one.event_time)}"


def _dropped(one: LateOperator) -> str:
    rows, events = count_text(one.rows, "row"), count_text(one.events, "event")
    return f"{rows} of {events}, missing from {count_text(one.results, 'result')}"
