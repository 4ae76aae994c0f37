"""Who reads whom: queries, tables and topics between them, as values; nothing is read here.

`pipeline` finds out what there is in a store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from savepoints.checkpoint.logs.source_kind import SourceKind
from savepoints.checkpoint.logs.table_position import TablePosition
from savepoints.json_values import to_json
from savepoints.operations.inspect import arcs
from savepoints.result import Result

InputKind = Literal["table", "topic", "files", "unknown"]
FindingKind = Literal[
    "cycle",
    "shared_table",
    "shared_topic",
    "copied_table",
    "replaced_table",
    "beyond_table",
    "no_outputs",
    "unreadable_checkpoint",
    "no_batch",
    "no_position",
    "unreadable_table",
]


@dataclass(frozen=True)
class PipelineOutput:
    """An output of a query.

    Attributes:
        name: Its name in the settings or savepoints.
        uri: The table's URI.
        table_id: Delta's own id of the table; null when it cannot be read and no savepoint has it,
            and for a file sink.
        version: The newest version of the table; null when it cannot be read, and for a file sink.
    """

    name: str
    uri: str
    table_id: str | None
    version: int | None


@dataclass(frozen=True)
class PipelineSource:
    """What a query reads through one source.

    Attributes:
        number: Of the source, in the order of the offset log.
        kind: Its kind, by the form of its position; `unknown` for others.
        topics: Of a Kafka source, its next offset by topic and partition.
        position: Of a Delta source, how far it has read its table.
    """

    number: int
    kind: SourceKind
    topics: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    position: TablePosition | None = None


@dataclass(frozen=True)
class PipelineQuery:
    """A query as it is now.

    Attributes:
        name: Its name.
        generation: Its current generation.
        checkpoint: URI of that generation's checkpoint.
        batch_id: Its newest committed batch; null before the first, or when it cannot be read.
        sources: What it reads after that batch, without sources that have no position yet.
        outputs: The outputs that settings or its newest savepoint name.
        output_topics: The topics that these say it writes.
    """

    name: str
    generation: int
    checkpoint: str
    batch_id: int | None
    sources: tuple[PipelineSource, ...] = ()
    outputs: tuple[PipelineOutput, ...] = ()
    output_topics: tuple[str, ...] = ()


@dataclass(frozen=True)
class KnownTable:
    """A Delta table whose place is known."""

    uri: str
    table_id: str
    version: int | None


@dataclass(frozen=True)
class PipelineEdge:
    """A table that one query writes and another reads.

    Attributes:
        writer: Name of the query that writes it; null when none is known.
        reader: Name of the query that reads it.
        source: Number of the reader's source, in the order of the offset log.
        table_id: Delta's own id of the table.
        table_uri: Where the table is; null if not known.
        version: The newest version of the table; null when it cannot be read.
        position: How far the reader's newest committed batch has read it.
        behind: How many versions of the table the reader has not read completely; a version need
            not have rows. Null without `version`, and when the position lies beyond it.
    """

    writer: str | None
    reader: str
    source: int
    table_id: str
    table_uri: str | None
    version: int | None
    position: TablePosition
    behind: int | None


@dataclass(frozen=True)
class TopicEdge:
    """A Kafka topic that one query writes and another reads.

    Attributes:
        writer: Name of the query that says it writes it.
        reader: Name of the query that reads it.
        source: Number of the reader's source, in the order of the offset log.
        topic: Its name.
        offsets: By partition, the next offset that the reader's newest committed batch has not
            read. Kafka is not asked how far the topic goes.
    """

    writer: str
    reader: str
    source: int
    topic: str
    offsets: Mapping[int, int]


@dataclass(frozen=True)
class ExternalInput:
    """What queries read and no known query writes.

    Attributes:
        kind: `table`, `topic`, `files` (a source of files), or `unknown` (another source).
        name: For a topic, its name; for a table, its URI, or its id if that is unknown; for others,
            the query and the number of the source.
        readers: Names of the queries that read it.
    """

    kind: InputKind
    name: str
    readers: tuple[str, ...]


@dataclass(frozen=True)
class PipelineFinding:
    """A finding about a pipeline.

    Attributes:
        kind: `cycle`: queries read each other in a cycle; `shared_table`: several write one table;
            `shared_topic`: several write one topic; `copied_table`: several tables have one id;
            `replaced_table`: a different table has taken the place of the one that is read;
            `beyond_table`: a position lies beyond the end of its table; `no_outputs`: no output is
            known; `unreadable_checkpoint`, `no_batch` and `no_position`: what a query reads is not
            known; `unreadable_table`: an output cannot be read.
        queries: Names of the queries concerned, sorted; of a cycle, those on it.
        what: A sentence for a person.
    """

    kind: FindingKind
    queries: tuple[str, ...]
    what: str


@dataclass(frozen=True)
class Pipeline(Result):
    """The pipeline that a query belongs to: all queries connected with it by tables and topics.

    Attributes:
        query: Name of the query.
        queries: Its queries, writers before readers, as far as cycles allow.
        edges: The tables that its queries read.
        topic_edges: The topics that some of them write and others read.
        inputs: What it reads from outside.
        upstream: Names of the queries whose rows reach this one, directly or not, in the order of
            `queries`; also itself when it is on a cycle.
        downstream: Names of the queries that its rows reach, directly or not.
        findings: What is unknown, or wrong.
    """

    query: str
    queries: tuple[PipelineQuery, ...]
    edges: tuple[PipelineEdge, ...]
    inputs: tuple[ExternalInput, ...]
    upstream: tuple[str, ...]
    downstream: tuple[str, ...]
    findings: tuple[PipelineFinding, ...]
    topic_edges: tuple[TopicEdge, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return dict(to_json(self))


def graph(
    query: str,
    queries: Sequence[PipelineQuery],
    tables: Sequence[KnownTable],
    *,
    recorded: Mapping[str, str],
    findings: Sequence[PipelineFinding] = (),
) -> Pipeline:
    """Put together the pipeline that a query belongs to.

    Args:
        tables: Every table that is known, of outputs and others, each URI once.
        recorded: By id of a table, the URI at which a savepoint saw it.
        findings: What was found while all this was read; told of every pipeline, because whoever
            they are about may belong to it.
    """
    edges, topic_edges = _edges(queries, tables), _topic_edges(queries)
    every = {(one.writer, one.reader) for one in edges if one.writer is not None}
    every |= {(one.writer, one.reader) for one in topic_edges}
    shown = arcs.connected(every, query)
    inside = {arc for arc in every if arc[0] in shown}
    order = arcs.topological_order(shown, inside)
    place = {name: number for number, name in enumerate(order)}
    mine = [one for one in edges if one.reader in shown]
    mine.sort(key=lambda one: (place.get(one.writer or "", -1), place[one.reader], one.source))
    members = sorted((one for one in queries if one.name in shown), key=lambda one: place[one.name])
    above, below = arcs.upstream(inside, query), arcs.downstream(inside, query)
    return Pipeline(
        query,
        tuple(members),
        tuple(mine),
        _inputs(members, mine),
        tuple(name for name in order if name in above),
        tuple(name for name in order if name in below),
        (
            *_cycles(inside),
            *_shared(queries, shown),
            *_about_tables(mine, queries, tables, recorded),
            *_without_outputs(queries, mine, shown),
            *findings,
        ),
        tuple(one for one in topic_edges if one.reader in shown),
    )


def _writers(queries: Iterable[PipelineQuery]) -> dict[str, list[str]]:
    """Return by URI of an output the names of the queries that write it, sorted."""
    found: dict[str, set[str]] = {}
    for query in queries:
        for output in query.outputs:
            found.setdefault(output.uri, set()).add(query.name)
    return {uri: sorted(names) for uri, names in sorted(found.items())}


def _edges(queries: Sequence[PipelineQuery], tables: Sequence[KnownTable]) -> list[PipelineEdge]:
    by_id: dict[str, list[KnownTable]] = {}
    for known in tables:
        by_id.setdefault(known.table_id, []).append(known)
    writers = _writers(queries)
    edges = []
    for query in queries:
        for source in query.sources:
            if (position := source.position) is None:
                continue
            places = by_id.get(position.table_id, [])
            # Of several tables with one id nothing says which is read.
            table = places[0] if len(places) == 1 else None
            names: Sequence[str | None] = writers.get(table.uri, []) if table else []
            edges += [
                _edge(name, query.name, source.number, position, table) for name in names or [None]
            ]
    return edges


def _topic_writers(queries: Iterable[PipelineQuery]) -> dict[str, list[str]]:
    """Return by topic the names of the queries that write it, sorted."""
    found: dict[str, set[str]] = {}
    for query in queries:
        for topic in query.output_topics:
            found.setdefault(topic, set()).add(query.name)
    return {topic: sorted(names) for topic, names in sorted(found.items())}


def _topic_edges(queries: Sequence[PipelineQuery]) -> list[TopicEdge]:
    writers = _topic_writers(queries)
    return sorted(
        (
            TopicEdge(writer, query.name, source.number, topic, offsets)
            for query in queries
            for source in query.sources
            for topic, offsets in source.topics.items()
            for writer in writers.get(topic, [])
        ),
        key=lambda one: (one.writer, one.reader, one.source, one.topic),
    )


def _edge(
    writer: str | None, reader: str, source: int, position: TablePosition, table: KnownTable | None
) -> PipelineEdge:
    version = table.version if table else None
    behind = None if version is None else position.behind(version)
    return PipelineEdge(
        writer,
        reader,
        source,
        position.table_id,
        table.uri if table else None,
        version,
        position,
        behind if behind is not None and behind >= 0 else None,
    )


def _inputs(
    queries: Sequence[PipelineQuery], edges: Sequence[PipelineEdge]
) -> tuple[ExternalInput, ...]:
    found: dict[tuple[InputKind, str], dict[str, None]] = {}
    inside = _topic_writers(queries).keys()
    for edge in edges:
        if edge.writer is None:
            name = edge.table_uri or edge.table_id
            found.setdefault(("table", name), {})[edge.reader] = None
    for query in queries:
        for source in query.sources:
            for topic in source.topics.keys() - inside:
                found.setdefault(("topic", topic), {})[query.name] = None
            if source.kind in {"files", "unknown"}:
                kind: InputKind = "files" if source.kind == "files" else "unknown"
                found[kind, f"source {source.number} of {query.name}"] = {query.name: None}
    return tuple(
        ExternalInput(kind, name, tuple(readers))
        for (kind, name), readers in sorted(found.items(), key=lambda one: one[0])
    )


def _cycles(inside: arcs.Arcs) -> list[PipelineFinding]:
    return [
        PipelineFinding(
            "cycle",
            group,
            f"{group[0]} reads a table or topic that it writes itself"
            if len(group) == 1
            else (f"{_listed(group)} read each other in a cycle, so they cannot be put in order"),
        )
        for group in arcs.cycles(inside)
    ]


def _shared(queries: Sequence[PipelineQuery], shown: frozenset[str]) -> list[PipelineFinding]:
    written: tuple[tuple[FindingKind, str, str, Mapping[str, Sequence[str]]], ...] = (
        ("shared_table", "table", "versions do not show whose rows", _writers(queries)),
        ("shared_topic", "topic", "offsets do not show whose records", _topic_writers(queries)),
    )
    return [
        PipelineFinding(
            kind,
            tuple(names),
            f"{_listed(names)} write the same {what} {name}: its {hidden} a reader has read",
        )
        for kind, what, hidden, writers in written
        for name, names in writers.items()
        if len(names) > 1 and shown & {*names}
    ]


def _about_tables(
    edges: Sequence[PipelineEdge],
    queries: Sequence[PipelineQuery],
    tables: Sequence[KnownTable],
    recorded: Mapping[str, str],
) -> list[PipelineFinding]:
    """Tell of the tables that are read what makes an edge less than certain."""
    writers, now = _writers(queries), {table.uri: table.table_id for table in tables}
    found = []
    for edge in edges:
        reads = f"source {edge.source} of {edge.reader} reads the table {edge.table_id}"
        places = sorted(table.uri for table in tables if table.table_id == edge.table_id)
        was_at = recorded.get(edge.table_id, "")
        if len(places) > 1:
            others = {name for uri in places for name in writers.get(uri, [])}
            concerned = tuple(sorted({edge.reader, *others}))
            what = (
                f"{reads}, but {_listed(places)} have this same id, so it is unknown which of "
                "them is read"
            )
            found.append(PipelineFinding("copied_table", concerned, what))
        elif not places and was_at in now:
            what = (
                f"{reads}, which was at {was_at} when a savepoint was taken; a different "
                f"table, {now[was_at]}, is there now, and Delta refuses to continue with it"
            )
            found.append(PipelineFinding("replaced_table", (edge.reader,), what))
        elif edge.version is not None and edge.position.behind(edge.version) < 0:
            what = (
                f"{reads} ({edge.table_uri}) from version {edge.position.version} on, but the "
                f"table ends at version {edge.version}: it may have been replaced by an older copy"
            )
            found.append(PipelineFinding("beyond_table", (edge.reader,), what))
    # A table with several writers has several edges from one source.
    return list(dict.fromkeys(found))


def _without_outputs(
    queries: Sequence[PipelineQuery], edges: Sequence[PipelineEdge], shown: frozenset[str]
) -> list[PipelineFinding]:
    """Tell whose outputs are not known: of all queries where a table lacks its writer."""
    open_ended = any(edge.writer is None for edge in edges)
    names = [
        one.name
        for one in queries
        if not one.outputs and (open_ended or (one.name in shown and not one.output_topics))
    ]
    if not names:
        return []
    what = (
        f"the outputs of {_listed(names)} are unknown, and so are their readers: name the tables "
        f"in [queries.{names[0]}.outputs] in the settings, or when taking savepoints: savepoints "
        "create --table NAME=URI"
    )
    return [PipelineFinding("no_outputs", tuple(sorted({*names})), what)]


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
