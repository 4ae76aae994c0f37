"""Who reads the tables of a query, and whether they can take over corrections of these tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from savepoints.checkpoint.cut import read_cut
from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import IncompatibleError, SavepointsError
from savepoints.io import Location
from savepoints.operations.inspect import arcs
from savepoints.operations.merge.replay import replay_strategy
from savepoints.operations.pipeline.pipeline import pipeline
from savepoints.operations.pipeline.pipeline_graph import FindingKind, PipelineEdge, PipelineQuery
from savepoints.runtime import app as apps
from savepoints.runtime.app import App, TableInput
from savepoints.sources.events.events import Decoding
from savepoints.store import bindings
from savepoints.store.locks import journal
from savepoints.store.root import Store

# With any of these nobody knows who reads whose rows.
_UNCLEAR: frozenset[FindingKind] = frozenset(
    {
        "cycle", "shared_table", "copied_table", "replaced_table", "beyond_table",
        "unreadable_checkpoint", "no_position",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Reader:
    """A query that reads one table, which a query of its pipeline writes."""

    query: str
    writer: str
    app: App
    bound: QuerySettings
    input: str
    source: TableInput
    table: str
    table_id: str

    @property
    def decoding(self) -> Decoding:
        """How it reads rows of the table as events."""
        one = self.source
        return Decoding(one.decode, one.entity_key, one.event_time, one.event_id)

    def entity_of(self, output: str) -> str:
        """Return the column of an output with the entity that a row is about."""
        return self.app.outputs[output].entity_key or self.source.entity_key


def names(store: Store, query: str) -> tuple[str, ...]:
    """Return the queries that the rows of a query reach, writers before readers; no JVM."""
    return tuple(one for one in pipeline(store, query).downstream if one != query)


def behind_topics(store: Store, query: str) -> frozenset[str]:
    """Return those of `names` that rows reach through topics only, where none is corrected."""
    found = pipeline(store, query)
    tables = {(one.writer, one.reader) for one in found.edges if one.writer is not None}
    return frozenset(found.downstream) - arcs.downstream(tables, query)


def left_behind(store: Store, query: str, merge: str) -> tuple[str, ...]:
    """Return who reads from a query, where a merge into it that is done has corrected none of them.

    Such as one without `--downstream merge`: merged again with it, the batch has nothing new.
    """
    known = journal.all_operations(store.root)
    if any(one.follows == merge and not one.undone for one in known):
        return ()
    return names(store, query)


def find(store: Store, query: str) -> tuple[Reader, ...]:
    """Return the queries that the rows of a query reach, writers before readers; no JVM."""
    found = pipeline(store, query)
    settings = bindings.complete(store)
    refused = [one.what for one in found.findings if one.kind in _UNCLEAR]
    reached = {query, *found.downstream}
    readers = []
    for one in found.queries:
        if one.name == query or one.name not in reached:
            continue
        edges = [edge for edge in found.edges if edge.reader == one.name]
        if topics := [edge for edge in found.topic_edges if edge.reader == one.name]:
            refused += [
                f"{one.name} reads topic {edge.topic}, which {edge.writer} writes, and records "
                "in a topic cannot be corrected"
                for edge in topics
            ]
            continue
        try:
            readers.append(_reader(one, edges, settings))
        except SavepointsError as error:
            refused.append(f"{one.name}: {error.message}")
    refused += _not_appended(query, readers, settings)
    if refused:
        raise IncompatibleError(
            "nothing was changed, because the corrections cannot be applied exactly to the queries "
            f"that read from {query}: {'; '.join(refused)}",
            hint="merge with --downstream none, then rebuild each of these queries from the "
            "tables it reads: savepoints reset QUERY --to-earliest --outputs truncate",
            query=query,
            reasons=refused,
        )
    return tuple(readers)


def _reader(one: PipelineQuery, edges: Sequence[PipelineEdge], settings: Settings) -> Reader:
    """Return what a query needs to be replayed from its table.

    Raises:
        SavepointsError: If it cannot be; its message says why.
    """
    bound = settings.bound(one.name, "its program is unknown")
    app = apps.load_for(one.name, bound)
    if len(app.inputs) != 1 or len(one.sources) != 1 or len(edges) != 1:
        raise _cannot(f"it has {len(one.sources)} sources, and only one table can be replayed")
    ((name, source),) = app.inputs.items()
    (edge,) = edges
    if not isinstance(source, TableInput) or edge.writer is None or edge.table_uri is None:
        raise _cannot(f"its input {name} is not a table that a query of the store writes")
    if source.changes:
        raise _cannot(
            f"its input {name} is the change data feed of a table, whose rows are not the events "
            "that it has read"
        )
    if str(Location.of(bound.tables[name])) != str(Location.of(edge.table_uri)):
        raise _cannot(f"its settings name {bound.tables[name]}, but it has read {edge.table_uri}")
    if edge.position.in_snapshot:
        raise _cannot("it has not yet read everything that the table held when the query began")
    files = read_cut(Location.of(one.checkpoint))
    if against := replay_strategy.reasons_against_short(files.operators):
        raise _cannot("; ".join(against))
    return Reader(one.name, edge.writer, app, bound, name, source, edge.table_uri, edge.table_id)


def _not_appended(query: str, readers: Sequence[Reader], settings: Settings) -> list[str]:
    """Say whose tables are read although their rows change with each batch."""
    bound = settings.bound(query, "its program is unknown")
    writers = {query: (apps.load_for(query, bound), bound)}
    writers |= {one.query: (one.app, one.bound) for one in readers}
    refused = []
    for name, (app, written) in writers.items():
        tables = {str(Location.of(one.table)) for one in readers if one.writer == name}
        read = [one for one in app.outputs if str(Location.of(written.outputs[one])) in tables]
        refused += [
            (
                f"{name} writes {written.outputs[one]} in mode {app.outputs[one].mode}, so the "
                "table no longer shows what its readers have read"
            )
            for one in read
            if app.outputs[one].mode != "append"
        ]
        refused += [
            (
                f"{name} is not the only writer of {written.outputs[one]} (own_rows), so the "
                "commit of the correction could also contain rows from other writers"
            )
            for one in read
            if one in written.own_rows
        ]
    return refused


def _cannot(why: str) -> IncompatibleError:
    return IncompatibleError(why, hint="merge without this query: --downstream none")
