"""A rollback of several queries to an exact time: where each ends, and running it there.

Those that come first end with what had arrived by then, as in a rollback of one query. Each of
their readers ends with everything that its writer has written when that is there; of tables that do
not go back it reads what was committed before the time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

from savepoints.checkpoint.logs import table_position
from savepoints.checkpoint.logs.table_position import TablePosition
from savepoints.errors import IncompatibleError, UsageError
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.moments import parse_rfc3339
from savepoints.operations.pipeline.pipeline_graph import Pipeline
from savepoints.operations.pipeline_rollback.pipeline_member import PipelineMember
from savepoints.operations.rollback import run_to_point, target
from savepoints.operations.rollback.query_context import QueryContext
from savepoints.operations.rollback.run_to_point import RestoredQuery
from savepoints.operations.rollback.target import AtTime
from savepoints.plan import Progress
from savepoints.runtime.bounded import table_ends
from savepoints.sources import delta_versions
from savepoints.store import bindings
from savepoints.store.root import Store


def moment_of(point: str) -> datetime:
    """Read the time of a point `@TIME`."""
    if not point.startswith("@"):
        raise UsageError(
            f"--exact needs a time, but {point!r} is not one",
            hint="write, for example, @2026-11-20T10:00:00Z; or omit --exact",
        )
    return parse_rfc3339(point[1:])


def refuse_topics(found: Pipeline, scope: Sequence[str]) -> None:
    """Refuse queries of which one reads another's topic.

    Raises:
        IncompatibleError: Each has to end where the other had written by then, and a topic keeps
            what is rolled back.
    """
    for edge in found.topic_edges:
        if {edge.writer, edge.reader} <= {*scope}:
            raise IncompatibleError(
                f"{edge.reader} reads topic {edge.topic}, which {edge.writer} writes to, so these "
                "queries cannot be rolled back to an exact time",
                hint="roll back to a group of savepoints by its tag; to see the groups: savepoints "
                f"pipeline list {found.query}",
                query=edge.reader,
                topic=edge.topic,
            )


def start_of(store: Store, query: str, moment: datetime) -> tuple[Savepoint, str]:
    """Return the savepoint from which a query that comes first is run on, and to where.

    Raises:
        SavepointNotFoundError: If it has none from before the time.
        UsageError: If its program is not in the settings.
    """
    _require_program(store, query)
    context = QueryContext.open(store, query)
    found = target.resolve(context, AtTime(moment))
    return store.catalog.find(found.savepoint_id, query=query), found.ends or "[]"


def elsewhere(
    store: Store, query: str, going_back: Collection[str], moment: datetime
) -> dict[str, TablePosition]:
    """Return where a reader ends in tables that do not go back, by their ids.

    Args:
        going_back: The tables that do, by URI.
    """
    _require_program(store, query)
    tables = bindings.complete(store).queries[query].tables.values()
    others = sorted({str(Location.of(one)) for one in tables} - {*going_back})
    read = [delta_versions.read(uri) for uri in others]
    return {one.table_id: table_position.after(one.table_id, one.before(moment)) for one in read}


def beyond(savepoint: Savepoint, ends: Mapping[str, TablePosition]) -> str:
    """Say what a savepoint has read beyond some ends; empty for nothing.

    Raises:
        IncompatibleError: If the query reads a topic, too.
    """
    for text in savepoint.cut.offsets:
        position = table_position.parse(text)
        if position is None:
            raise IncompatibleError(
                f"{savepoint.query} reads a table that is being rolled back and another source as "
                f"well (its position: {text}), so it cannot be rolled back to an exact time",
                hint="roll back to a group of savepoints by its tag; to see the groups: savepoints "
                f"pipeline list {savepoint.query}",
                query=savepoint.query,
            )
        end = ends.get(position.table_id)
        if end is not None and position.is_beyond(end):
            return (
                f"it has read beyond the exact time in table {position.table_id}, up to version "
                f"{position.version - 1}"
            )
    return ""


def run(
    member: PipelineMember, store: Store, check: Callable[[], None], progress: Progress
) -> None:
    """Run a query on to where it ends, before its generation begins; run again, it goes on."""
    assert member.ends is not None
    ends = member.ends
    if (tables := table_ends.parse(ends)) is not None:
        for uri in sorted({read.table_uri for read in member.reads}):
            there = delta_versions.read(uri)
            tables[there.table_id] = table_position.after(there.table_id, there.newest)
        if not tables:
            return  # It comes first, and its savepoint is exactly there.
        ends = table_ends.to_text(tables)
    RestoredQuery.of(member.rollback, store, progress).run_to(ends, check=check)


def _require_program(store: Store, query: str) -> None:
    run_to_point.application_of(query, bindings.complete(store), rewind_outputs=True)
