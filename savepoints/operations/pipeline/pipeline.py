"""`pipeline show`: which queries of a store read each other's tables, and how far behind they are.

A Delta source's position names the table that it reads by its id; settings, bindings and savepoints
say where the tables are that a query writes, and their logs which ids they have. Which topics of
Kafka it writes, settings and savepoints say where somebody has named them. Nothing says who writes
the files that a source of files reads. No JVM, nothing written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from savepoints.checkpoint import position
from savepoints.checkpoint.logs import source_kind, table_position
from savepoints.checkpoint.logs.kafka_position import kafka_offsets
from savepoints.config.settings import Settings
from savepoints.errors import FileSinkError, SavepointsError
from savepoints.io import Location, in_parallel
from savepoints.model import Generation, Savepoint
from savepoints.operations.pipeline import pipeline_graph
from savepoints.operations.pipeline.pipeline_graph import (
    KnownTable,
    Pipeline,
    PipelineFinding,
    PipelineOutput,
    PipelineQuery,
    PipelineSource,
)
from savepoints.operations.savepoint import history
from savepoints.outputs.delta import batch_version
from savepoints.store import bindings
from savepoints.store.root import Store
from savepoints.uri import spelled


@dataclass(frozen=True)
class _Place:
    """What is at the URI of an output or archive: a table, another output, or nothing readable."""

    uri: str
    table: KnownTable | None
    problem: str | None


def pipeline(store: Store, query: str) -> Pipeline:
    """Return the queries that are connected with one by the tables that they read and write.

    Of each query, the newest committed batch of the current generation counts.

    Args:
        query: Name of the query.

    Raises:
        QueryNotFoundError: If the store has no query of that name.
    """
    store = store.snapshot()
    store.generations.current(query)
    settings = bindings.complete(store)
    current = store.generations.living()
    # Positions before tables, which only grow: so no reader is ahead of its table.
    looked = in_parallel(_look_at, current)
    outputs = {one.query: _output_uris(store, one.query, settings) for one in current}
    known = store.catalog.all()
    topics = {one.query: history.output_topics(known, one.query, settings) for one in current}
    recorded = _Recorded.of(known)
    written = sorted({uri for uris in outputs.values() for uri in uris.values()})
    places = _open({*written, *_archives(settings)}, recorded)
    places |= _open(_recorded_places(looked, places, recorded), recorded)
    return pipeline_graph.graph(
        query,
        [
            replace(
                one, outputs=_outputs(outputs[one.name], places), output_topics=topics[one.name]
            )
            for one, _ in looked
        ],
        [place.table for place in places.values() if place.table],
        recorded=recorded.uri_of,
        findings=[
            *(finding for _, found in looked for finding in found),
            *_unreadable(outputs, places),
        ],
    )


@dataclass(frozen=True)
class _Recorded:
    """What savepoints say of tables: by id the URI, and by URI the id, by the newest of them."""

    uri_of: Mapping[str, str]
    id_at: Mapping[str, str]

    @classmethod
    def of(cls, savepoints: Iterable[Savepoint]) -> _Recorded:
        oldest_first = sorted(savepoints, key=lambda one: one.taken_order)
        pairs = [
            (output.table_id, output.uri)
            for one in oldest_first
            for output in one.outputs
            if output.kind == "delta"
        ]
        return cls(dict(pairs), {uri: table_id for table_id, uri in pairs})


def _look_at(generation: Generation) -> tuple[PipelineQuery, list[PipelineFinding]]:
    """Read how far a query is, from its checkpoint."""
    name, checkpoint = generation.query, generation.checkpoint
    query = PipelineQuery(name, generation.generation, checkpoint, None)
    try:
        now = position.read(Location.of(checkpoint))
    except (SavepointsError, FileNotFoundError) as error:
        said = error.message if isinstance(error, SavepointsError) else f"{error} is missing"
        what = f"the checkpoint of {name} cannot be read, so its sources are unknown: {said}"
        return query, [PipelineFinding("unreadable_checkpoint", (name,), what)]
    if now.committed is None:
        what = (
            f"the checkpoint of {name}, {checkpoint}, has no committed batch, so its "
            "sources are not yet known"
        )
        return query, [PipelineFinding("no_batch", (name,), what)]
    sources = [_source(number, one) for number, one in enumerate(now.positions) if one is not None]
    unknown = [
        PipelineFinding(
            "no_position",
            (name,),
            f"source {number} of {name} has no position yet, so it is not known what it reads",
        )
        for number, one in enumerate(now.positions)
        if one is None
    ]
    return replace(query, batch_id=now.committed, sources=tuple(sources)), unknown


def _source(number: int, position: str) -> PipelineSource:
    kind, table = source_kind.kind_of(position), table_position.parse(position)
    if kind == "delta" and table is None:
        kind = "unknown"
    return PipelineSource(number, kind, kafka_offsets(position) or {}, table)


def _output_uris(store: Store, query: str, settings: Settings) -> dict[str, str]:
    """Return the outputs of a query by name, each URI in one spelling."""
    found = history.output_uris(store, query, settings)
    return {name: spelled(uri) for name, uri in sorted(found.items())}


def _archives(settings: Settings) -> list[str]:
    return [spelled(uri) for one in settings.queries.values() for uri in one.archives.values()]


def _open(uris: Iterable[str], recorded: _Recorded) -> dict[str, _Place]:
    def look(uri: str) -> _Place:
        try:
            table = batch_version.open_table(uri)
        except FileSinkError:
            return _Place(uri, None, None)
        except SavepointsError as error:
            table_id = recorded.id_at.get(uri)
            known = KnownTable(uri, table_id, None) if table_id else None
            return _Place(uri, known, error.message)
        found = KnownTable(uri, batch_version.table_id(table), int(table.version()))
        return _Place(uri, found, None)

    return {place.uri: place for place in in_parallel(look, sorted(uris))}


def _recorded_places(
    looked: Sequence[tuple[PipelineQuery, object]],
    places: Mapping[str, _Place],
    recorded: _Recorded,
) -> set[str]:
    """Return where savepoints saw tables that are read and of which no more is known."""
    read = {
        source.position.table_id
        for query, _ in looked
        for source in query.sources
        if source.position
    }
    known = {place.table.table_id for place in places.values() if place.table}
    return {recorded.uri_of[one] for one in read - known if one in recorded.uri_of} - places.keys()


def _outputs(uris: Mapping[str, str], places: Mapping[str, _Place]) -> tuple[PipelineOutput, ...]:
    found = []
    for name, uri in uris.items():
        table = places[uri].table
        table_id, version = (table.table_id, table.version) if table else (None, None)
        found.append(PipelineOutput(name, uri, table_id, version))
    return tuple(found)


def _unreadable(
    outputs: Mapping[str, Mapping[str, str]], places: Mapping[str, _Place]
) -> list[PipelineFinding]:
    """Tell of outputs that cannot be read; an archive need not be there yet."""
    return [
        PipelineFinding(
            "unreadable_table",
            (query,),
            f"the output {name} of {query} cannot be read: {places[uri].problem}",
        )
        for query, uris in sorted(outputs.items())
        for name, uri in uris.items()
        if places[uri].problem
    ]
