"""`topology`: where everything of a query is, its state, its sources and its outputs.

It is read from the checkpoint of the newest committed batch. What the store and Kafka know is added
as far as they know it; nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from savepoints.checkpoint.cut import CutFiles
from savepoints.checkpoint.logs import table_position
from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import CheckpointNotFoundError, SavepointsError, UsageError
from savepoints.io import Location, in_parallel
from savepoints.model import Cut, Generation, GenerationStatus, OutputKind, OutputVersion, Savepoint
from savepoints.operations.inspect import operator_places, source_places
from savepoints.operations.inspect.operator_places import OperatorPlace
from savepoints.operations.inspect.source_places import SourcePlace
from savepoints.operations.savepoint import history, output_versions, pin
from savepoints.result import Result
from savepoints.runtime.archive_of import archives_of
from savepoints.store import bindings, lineage
from savepoints.store.bindings import CloneOf
from savepoints.store.root import Store

_UNKNOWN_ALONE = "program, outputs and row counts are unknown"


@dataclass(frozen=True)
class OutputPlace:
    """An output of a query and where it is.

    Attributes:
        name: Name of the output.
        uri: Table URI.
        kind: `delta`, or `files` for Spark's file sink; null if unknown.
        table_id: Delta's own id of the table; of a file sink, a hash of its log; null if unknown.
        version: Table version that holds exactly the batches up to `batch_id`; of a file sink, its
            batch; null if unknown.
        batch_id: The newest batch that this version has recorded for the query; null before the
            first, and when it is not known.
        basis: Where the version comes from, or why it is not known.
        clone_of: The table whose files it reads, if it is a shallow clone.
        readers: Other queries whose newest savepoints show that they read the table as a stream.
    """

    name: str
    uri: str
    kind: OutputKind | None
    table_id: str | None
    version: int | None
    batch_id: int | None
    basis: str
    clone_of: CloneOf | None = None
    readers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Topology(Result):
    """A query's operators, sources and outputs, and where they are.

    Attributes:
        query: Its name; null when the store does not know the checkpoint.
        query_id: Spark's id of the query.
        checkpoint: URI of the checkpoint that was read.
        generation: The generation of that checkpoint; null like `query`.
        generation_status: `current` is the one that `run` starts; null like `query`.
        application: `package.module:attribute` of its program, if known.
        savepoint_id: Its newest savepoint that was not rolled back, if it has one.
        batch_id: The newest committed batch.
        committed_at: When that was committed.
        watermark_ms: Event-time watermark in force after the batch, milliseconds since 1970; null
            for none.
        provider: Class name of the state store provider.
        partitions: Number of state partitions that the query expects, null if not recorded.
        checkpoint_format: Of the state stores, 1 or 2.
        operators: The stateful operators, from the sink.
        sources: The sources, in the order of the offset log.
        outputs: The outputs, as far as the settings or a savepoint name them.
        findings: Further remarks for people.
    """

    query: str | None
    query_id: str
    checkpoint: str
    generation: int | None
    generation_status: GenerationStatus | None
    application: str | None
    savepoint_id: str | None
    batch_id: int
    committed_at: datetime
    watermark_ms: int | None
    provider: str
    partitions: int | None
    checkpoint_format: int
    operators: tuple[OperatorPlace, ...]
    sources: tuple[SourcePlace, ...]
    outputs: tuple[OutputPlace, ...]
    findings: tuple[str, ...]


@dataclass(frozen=True)
class _Known:
    """What the store knows of the query of a checkpoint.

    Attributes:
        readers: By the id of a Delta table, other queries that read it.
        origin: The savepoint that the generation began from.
        topics: The ids of the topics that it reads, as far as savepoints have them.
    """

    generation: Generation
    bound: QuerySettings | None
    saved: Sequence[Savepoint]
    clone_of: Mapping[str, CloneOf] = field(default_factory=dict)
    readers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    origin: Savepoint | None = None
    topics: Mapping[str, str] = field(default_factory=dict)

    def dated(self, cut: Cut) -> Cut:
        """Return the cut of its checkpoint with the time of its commit."""
        return history.dated(cut, self.origin)

    @property
    def application(self) -> str | None:
        """Reference of the program: as it is bound now, else as it was saved."""
        if self.bound is not None:
            return self.bound.app
        return next((one.application for one in self.saved if one.application), None)

    @property
    def outputs(self) -> dict[str, str]:
        """Table URI of each output: by the newest savepoint, and by the settings."""
        pinned = {one.name: one.uri for saved in self.saved[:1] for one in saved.outputs}
        return history.located(pinned, self.bound)

    def saved_output(self, name: str, uri: str) -> tuple[OutputVersion, Savepoint] | None:
        """Return an output as the newest savepoint that has it knew it."""
        return next(
            (
                (output, one)
                for one in self.saved
                for output in history.named_as_now(one, {name: uri}).outputs
                if (output.name, output.uri) == (name, str(Location.of(uri)))
            ),
            None,
        )


def topology(store: Store, query: str | None = None, checkpoint: str | None = None) -> Topology:
    """Return where a query's operators, sources and outputs are; changes nothing.

    Args:
        store: What it knows of the query is added: name, generation, program, outputs, rows.
        query: Name of the query; its current generation is described.
        checkpoint: URI of a checkpoint instead, which the store need not know.

    Raises:
        UsageError: If not exactly one of query and checkpoint is given.
        QueryNotFoundError: If the store does not know the query.
        CheckpointNotFoundError: If there is no checkpoint.
        NoCommittedBatchError: If it has no finished batch yet.
        UnsupportedProviderError: If the state is not kept by one of Spark's own providers.
        IncompatibleError: If a file's format is not supported.
    """
    store = store.snapshot()
    if query is not None and checkpoint is None:
        return _of_generation(store, store.generations.current(query))
    if checkpoint is None or query is not None:
        raise UsageError(
            "topology needs either a query or a checkpoint, but not both",
            hint="name a query (savepoints topology QUERY) or a checkpoint: savepoints "
            "topology --checkpoint URI",
        )
    generation = store.generations.of_checkpoint(Location.of(checkpoint))
    if generation is None:
        alone = of_checkpoint(checkpoint, store.settings)
        unknown = f"the store {store.root} does not know this checkpoint: its {_UNKNOWN_ALONE}"
        return replace(alone, findings=(unknown, *alone.findings[1:]))
    return _of_generation(store, generation)


def of_checkpoint(checkpoint: str, settings: Settings) -> Topology:
    """Say what a checkpoint alone tells, where there is no store; see `topology`."""
    return _look(Location.of(checkpoint), settings, None)


def _of_generation(store: Store, generation: Generation) -> Topology:
    query, number = generation.query, generation.generation
    settings = bindings.complete(store, generations={query: number})
    try:
        return _look(
            Location.of(generation.checkpoint), settings, _known(store, settings, generation)
        )
    except CheckpointNotFoundError as error:
        error.hint = (
            f"run it if generation {number} of {query} has not run yet: savepoints run "
            f"{query}; or recover it if the checkpoint was lost: savepoints run {query} "
            "--recover"
        )
        raise


def _known(store: Store, settings: Settings, generation: Generation) -> _Known:
    binding = bindings.find(store.root, generation.query, generation.generation)
    return _Known(
        generation,
        settings.queries.get(generation.query),
        _saved(store, generation),
        binding.clone_of if binding else {},
        _readers(store, generation.query),
        store.catalog.get(generation.begun_from),
        lineage.topic_ids(store, generation),
    )


def _saved(store: Store, generation: Generation) -> list[Savepoint]:
    """Return the whole savepoints of what a generation holds, the newest first."""
    if generation.status == "current":
        return history.history(store, generation.query)
    return [
        one
        for one in store.catalog.all()
        if one.place == generation.place and one.state == "complete" and one.edit is None
    ]


def _readers(store: Store, query: str) -> dict[str, tuple[str, ...]]:
    """Find which other queries read Delta tables, by the offsets in their newest savepoints."""
    newest: dict[str, Savepoint] = {}
    for one in store.catalog.all():
        if one.query != query and one.state == "complete":
            newest.setdefault(one.query, one)
    found: dict[str, set[str]] = {}
    for one in newest.values():
        for position in filter(None, map(table_position.parse, one.cut.offsets)):
            found.setdefault(position.table_id, set()).add(one.query)
    return {table_id: tuple(sorted(names)) for table_id, names in found.items()}


def _look(checkpoint: Location, settings: Settings, known: _Known | None) -> Topology:
    files = pin.read(checkpoint, None)
    cut = known.dated(files.cut) if known else files.cut
    saved = known.saved if known else ()
    archives = archives_of(settings, known.generation.query) if known else ()
    topics = known.topics if known else {}
    sources = source_places.of_positions(cut.offsets, settings.kafka, archives, topics)
    outputs = _outputs(files, known) if known else ()
    return Topology(
        query=known.generation.query if known else None,
        query_id=files.query_id,
        checkpoint=str(checkpoint),
        generation=known.generation.generation if known else None,
        generation_status=known.generation.status if known else None,
        application=known.application if known else None,
        savepoint_id=saved[0].id if saved else None,
        batch_id=cut.batch_id,
        committed_at=cut.committed_at,
        watermark_ms=cut.watermark_ms or None,
        provider=cut.provider,
        partitions=cut.partitions,
        checkpoint_format=cut.checkpoint_format,
        operators=operator_places.of_cut(checkpoint, files, saved),
        sources=sources,
        outputs=outputs,
        findings=(*_of_store(known, outputs), *_of_kafka(sources)),
    )


def _outputs(files: CutFiles, known: _Known) -> tuple[OutputPlace, ...]:
    return tuple(in_parallel(lambda one: _output(*one, files, known), list(known.outputs.items())))


def _output(name: str, uri: str, files: CutFiles, known: _Known) -> OutputPlace:
    """Ask the table which version belongs to the batch, else the newest savepoint."""
    of = known.generation
    found: OutputVersion | None
    try:
        (found,) = output_versions.outputs_of(
            of.query, of.generation, files, {name: uri}, known.bound
        )
        basis = f"the table's log, for batch {files.cut.batch_id}"
    except SavepointsError as error:
        found, basis = None, f"unknown: {error.message}"
        if saved := known.saved_output(name, uri):
            found, savepoint = saved
            basis = (
                f"savepoint {savepoint.id}, because the table could not be read: {error.message}"
            )
    clone_of = known.clone_of.get(name)
    if found is None:
        return OutputPlace(name, uri, None, None, None, None, basis, clone_of)
    return OutputPlace(
        name,
        found.uri,
        found.kind,
        found.table_id,
        found.version,
        found.app_version,
        basis,
        clone_of,
        known.readers.get(found.table_id, ()),
    )


def _of_store(known: _Known | None, outputs: Sequence[OutputPlace]) -> list[str]:
    if known is None:
        return [f"no store was given: the {_UNKNOWN_ALONE}"]
    query = known.generation.query
    if not outputs:
        return [f"its output tables are unknown: name them in [queries.{query}.outputs]"]
    return []


def _of_kafka(sources: Sequence[SourcePlace]) -> list[str]:
    return [
        (
            f"{one.topic} partition {one.partition}: Kafka no longer has the next {one.lost} "
            f"records, starting at offset {one.position}"
        )
        for source in sources
        for one in source.partitions
        if one.lost
    ]
