"""List savepoints."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from textwrap import shorten
from typing import TYPE_CHECKING, get_args

import click

from savepoints.cli.names import query_names
from savepoints.cli.options import Invocation, common, moment
from savepoints.model import OperatorState, Savepoint, SavepointState
from savepoints.texts import bytes_text, moment_text

if TYPE_CHECKING:
    from savepoints.operations.inspect.availability import Availability


_COLUMNS = (
    "id", "query", "kind", "gen", "batch", "committed", "rows", "copied", "took", "state",
)  # fmt: skip
_LABELS = ("tags", "pinned", "description")
# Left out on a narrow screen; `show` has everything. The id says when it was taken.
_OPTIONAL = (
    "took", "copied", "committed", "pinned", "rows", "kind", "gen", "description", "tags",
)  # fmt: skip
_DESCRIBED = 40


@click.command("list")
@click.option("--query", shell_complete=query_names, help="List only savepoints of this query.")
@click.option("--tag", help="List only savepoints with this tag.")
@click.option(
    "--since",
    metavar="TIME",
    callback=moment,
    help="List only savepoints whose batch was committed at or after this time: RFC 3339, or an "
    "age like 7d.",
)
@click.option(
    "--until",
    metavar="TIME",
    callback=moment,
    help="List only savepoints whose batch was committed at or before this time: RFC 3339, or an "
    "age like 7d.",
)
@click.option(
    "--state",
    type=click.Choice(get_args(SavepointState)),
    help="List only savepoints in this state; by default all except those being deleted.",
)
@click.option(
    "--check-sources",
    is_flag=True,
    help="Check in Kafka and the archives which savepoints can be restored now; `savepoints show` "
    "also prints until when.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="List at most N savepoints.")
@common
def command(
    call: Invocation,
    query: str | None,
    tag: str | None,
    since: datetime | None,
    until: datetime | None,
    state: SavepointState | None,
    limit: int | None,
    *,
    check_sources: bool,
) -> None:
    """List savepoints, newest first.

    In other commands, `latest` and @TIME skip savepoints whose state is shown as rolled back or
    replaced. On a narrow terminal some columns are hidden; `savepoints show` prints everything.
    Needs no JVM.

    \b
    Examples:
      savepoints list
      savepoints list --query order_totals --since 7d -o json
      savepoints list --state broken
      savepoints list --check-sources
      savepoints list --tag release --until 2026-11-20T10:00:00Z --limit 5
    """
    from savepoints.store.tables import catalog, living_line

    store = call.store.snapshot()
    if query is not None:
        store.require_query(query)
    known = store.catalog.all()
    left = living_line.left(known, store.generations.all())
    found = catalog.select(
        known, query=query, tag=tag, since=since, until=until, state=state, limit=limit
    )
    checked: dict[str, Availability] = {}
    if check_sources:
        from savepoints.operations.inspect import availability
        from savepoints.store import bindings

        queries = bindings.complete(store).queries
        archives = {name: tuple(one.archives.values()) for name, one in queries.items()}
        checked = availability.check_savepoints(found, call.settings.kafka, archives)
    if call.output.format == "json":
        more = {"availability": list(checked.values())} if check_sources else {}
        call.output.document(
            savepoints=found, rolled_back=[one.id for one in found if one.id in left], **more
        )
        return
    if not found:
        where = f"savepoints in {call.store.root}"
        narrowed = any((query, tag, since, until, state))
        call.output.line(f"no matching {where}" if narrowed else f"no {where} yet")
        return
    call.output.table(
        (*_COLUMNS, *(("restorable",) if check_sources else ()), *_LABELS),
        (
            (
                *_row(one, left.get(one.id)),
                *((checked[one.id].restorable,) if check_sources else ()),
                ", ".join(one.tags),
                "yes" if one.pinned else "",
                shorten(one.description, _DESCRIBED, placeholder="…"),
            )
            for one in found
        ),
        optional=_OPTIONAL,
    )
    for reason in _reasons(checked.values()):
        call.output.line(reason)


def _row(one: Savepoint, left: str | None) -> tuple[object, ...]:
    return (
        one.id,
        one.query,
        one.kind,
        one.generation,
        one.cut.batch_id,
        moment_text(one.cut.committed_at),
        _rows(one.operators),
        bytes_text(one.cost.bytes_copied + one.cost.export_bytes),
        f"{one.cost.seconds:.1f}s",
        _state(one, left),
    )


def _rows(operators: tuple[OperatorState, ...]) -> str:
    counts = [one.rows for one in operators if one.rows is not None]
    return str(sum(counts)) if len(counts) == len(operators) else "-"


def _reasons(checked: Iterable[Availability]) -> list[str]:
    """Return why savepoints cannot be restored, each reason once."""
    ids: dict[str, list[str]] = {}
    for one in checked:
        if one.restorable != "yes":
            ids.setdefault(f"{one.restorable}: {one.reason}", []).append(one.savepoint_id)
    return [f"{', '.join(names)}: {reason}" for reason, names in ids.items()]


def _state(savepoint: Savepoint, left: str | None) -> str:
    reason = savepoint.state_reason
    state = f"{savepoint.state}, {left}" if left else savepoint.state
    return f"{state}: {reason}" if reason else state
