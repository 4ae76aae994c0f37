"""Estimate when a query will catch up."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from savepoints.cli.names import query_names
from savepoints.cli.options import Invocation, common
from savepoints.texts import bytes_text, count_text, moment_text

if TYPE_CHECKING:
    from savepoints.operations.inspect.estimate import Estimate


@click.command("estimate")
@click.argument("query", shell_complete=query_names)
@click.option(
    "--from",
    "from_savepoint",
    metavar="NAME",
    help="Estimate the catch-up from this savepoint, instead of from the current position.",
)
@common
def command(call: Invocation, query: str, from_savepoint: str | None) -> None:
    """Estimate when QUERY will catch up with Kafka, if ever.

    Each figure is shown with what it was measured on; a figure that could not be measured is shown
    as unknown. Changes nothing and needs no JVM. The exit code is 0 even if the query will never
    catch up.

    \b
    Examples:
      savepoints estimate order_totals
      savepoints estimate order_totals --from latest~2 -o json
    """
    from savepoints.operations.inspect import estimate

    found = estimate.estimate(call.store, query, from_savepoint=from_savepoint)
    begins = f"savepoint {found.savepoint_id}" if found.savepoint_id else "where it is now"
    call.output.result(
        lambda: [
            ("query", found.query),
            ("from", f"{begins}, after batch {found.batch_id}"),
            ("topics", ", ".join(found.topics)),
            ("backlog", _backlog(found)),
            ("throughput", _throughput(found)),
            ("input", _input(found)),
            ("catches up", f"{_catches_up(found)}: {found.reason}"),
            ("records kept until", _start(found)),
            ("Kafka's retention", _retention(found)),
            *(("note", one) for one in found.findings),
        ],
        estimate=found,
    )


def _backlog(found: Estimate) -> str:
    if found.backlog_records == 0:
        return "0 records"
    if found.backlog_bytes is None or found.record_bytes is None:
        return (
            f"{count_text(found.backlog_records, 'record')} of unknown size: no record was sampled"
        )
    return (
        f"{count_text(found.backlog_records, 'record')}, about {bytes_text(found.backlog_bytes)} "
        f"({found.record_bytes:.0f} bytes per record, {found.records_sampled} sampled)"
    )


def _throughput(found: Estimate) -> str:
    speed = found.throughput
    if speed is None:
        return "unknown: nothing measured yet"
    at_least = "at least " if speed.at_least else ""
    figures = _range(speed.lowest_records_per_second, speed.highest_records_per_second)
    return f"{at_least}{figures} records per second ({speed.basis})"


def _input(found: Estimate) -> str:
    rate = found.input
    if rate is None:
        return "unknown: too few records to measure"
    figures = _range(rate.lowest_records_per_second, rate.highest_records_per_second)
    return f"{figures} records per second ({rate.basis})"


def _catches_up(found: Estimate) -> str:
    shortest, longest = found.shortest_seconds, found.longest_seconds
    if found.catches_up in {"now", "never"} or shortest is None:
        return found.catches_up
    if longest is None:
        return f"{found.catches_up}, in {_duration(shortest)} at best"
    least, most = _duration(shortest), _duration(longest)
    return f"{found.catches_up}, in {least if least == most else f'{least} to {most}'}"


def _start(found: Estimate) -> str:
    if found.start_until is None:
        return f"no known limit: {found.start_basis}"
    return f"{moment_text(found.start_until)}: {found.start_basis}"


def _retention(found: Estimate) -> str:
    return {
        None: "it is unknown whether records expire before they are read",
        True: "at the slower rate, records expire before they are read and will be lost",
        False: "records do not expire before they are read",
    }[found.retention_ends_first]


def _range(lowest: float, highest: float) -> str:
    first, last = f"{lowest:.1f}", f"{highest:.1f}"
    return first if first == last else f"{first} to {last}"


def _duration(seconds: float) -> str:
    if seconds >= timedelta.max.total_seconds():
        return "more than a million years"
    return str(timedelta(seconds=round(seconds))) if seconds >= 1 else "less than a second"
