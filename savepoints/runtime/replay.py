"""Replay of chosen events through an application's own code, in a scratch directory.

The scratch query is seeded with the state that the entities had in their base savepoints, or begins
with nothing, and reads the events in slices. Each slice is one batch, planned in the scratch
checkpoint, so that its watermarks and its processing time are those of the batch of the live query
that it stands for: `offsets/b-1` drops late rows, `offsets/b` evicts and emits.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from savepoints.checkpoint.cut import CutFiles, read_cut
from savepoints.checkpoint.logs import commit_log, file_log, offset_log
from savepoints.checkpoint.state import layout as state_layout
from savepoints.checkpoint.state import operators, schema
from savepoints.checkpoint.state.layout import Layout
from savepoints.checkpoint.state.operators import Operator, native_only
from savepoints.errors import IncompatibleError, NotAlignedError
from savepoints.io import Location, ObjectInfo, in_parallel
from savepoints.model import Cut, OperatorState
from savepoints.moments import epoch_ms
from savepoints.runtime import scratch_query
from savepoints.runtime.app import App
from savepoints.runtime.scratch_query import REPLAY_BATCH, Probed, ScratchQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from savepoints.state.merge.splice import OperatorKey
    from savepoints.state.storage.row_sources import CheckpointRows, SavedRows

PARTITIONS = 2
# Of the offset log: they bind a query to sources that have names, which files do not.
_OF_NAMED_SOURCES = (
    offset_log.FORMAT_KEY,
    "spark.sql.streaming.queryEvolution.enableSourceEvolution",
)


@dataclass(frozen=True)
class ReplayBatch:
    """One batch of a replay. Times are milliseconds since 1970.

    Attributes:
        late_watermark_ms: Drops late rows: the watermark in `offsets/b-1` of the live query.
        watermark_ms: Evicts and emits: that in `offsets/b`.
        timestamp_ms: Its processing time: that in `offsets/b`.
    """

    late_watermark_ms: int
    watermark_ms: int
    timestamp_ms: int


@dataclass(frozen=True)
class ReplayBase:
    """What some entities begin from.

    Attributes:
        entities: They: entity (string).
    """

    entities: DataFrame
    saved: SavedRows
    layout: Layout


@dataclass(frozen=True)
class Live:
    """The query that is replayed, at one of its cuts.

    Attributes:
        checkpoint: Its checkpoint, or files of it that were laid out as one.
        files: The cut; only its small files are read.
    """

    checkpoint: Location
    files: CutFiles

    @cached_property
    def small(self) -> dict[str, bytes]:
        """Metadata and schemas of its operators."""
        paths = [one.path for one in self.files.small if one.path.startswith("state/")]
        return dict(zip(paths, in_parallel(self.checkpoint.get, paths), strict=True))

    @cached_property
    def layout(self) -> Layout:
        """The fields of its state."""
        return state_layout.of_files(self.small)


@dataclass
class Replay:
    """A replay under way.

    Attributes:
        partitions: State partitions of the scratch query; few, since it has few keys.
    """

    spark: SparkSession
    app: App
    place: Location
    live: Live
    partitions: int = PARTITIONS

    def __post_init__(self) -> None:
        """Refuse a query whose state cannot be read."""
        for one in self.operators:
            if why := native_only(one, self.live.files.conf):
                raise IncompatibleError(
                    f"late events cannot be merged into operator {one.operator_id} "
                    f"({one.name}): {why}",
                    hint="to include them, empty the outputs and reread everything that the "
                    "sources still have: savepoints reset QUERY --to-earliest "
                    "--outputs truncate",
                    operator_id=one.operator_id,
                )
        self._query = ScratchQuery(self.spark, self.app, self.place, self.partitions)
        self._batches_run = 0
        # The batch of the first slice; a seed is batch 0.
        self._first = 0
        # By source: entries of its log so far.
        self._logged = [0] * len(self.sources)
        self._latest: bytes | None = None

    @property
    def operators(self) -> tuple[Operator, ...]:
        """The stateful operators of the query."""
        return self.live.files.operators

    @cached_property
    def probed(self) -> Probed:
        """What a run of the program on nothing shows; it takes a second or two."""
        return scratch_query.probe(self.spark, self.app, self.place / "probe")

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The input that each source is, in the order in which Spark counts them."""
        if len(self.app.inputs) == 1:
            return tuple(self.app.inputs) * len(self.live.files.cut.offsets)
        return self.probed.sources

    def keys(self, saved: SavedRows) -> list[OperatorKey]:
        """Return by what the operators keep their rows."""
        from savepoints.state.merge import splice

        has_joins = any(one.name == "symmetricHashJoin" for one in self.operators)
        names = {one.entity_key for one in self.app.inputs.values()}
        join_keys = self.probed.join_keys if has_joins else {}
        return splice.keys(saved, self.operators, names, join_keys)

    def seed(self, bases: Sequence[ReplayBase], *, watermark_ms: int, timestamp_ms: int) -> None:
        """Begin with the state that entities had; without it a replay begins with nothing."""
        from savepoints.state.merge import splice
        from savepoints.state.storage import write

        for one in bases:
            program = "the program of a savepoint that the replay starts from"
            _require_same(self.live.layout, one.layout, program)
        fields = splice.named_fields(self.keys(bases[0].saved))
        checkpoint = self._query.checkpoint
        files = {}
        for path, data in self.live.small.items():
            if operators.is_metadata(path):
                moved = operators.moved(data, path, checkpoint.uri.hadoop, self.partitions)
                files[operators.of_first_batch(path)] = moved
            else:
                files[path] = data
        positions: list[str | None] = [None] * len(self.sources)
        self._plan(0, positions, ReplayBatch(watermark_ms, watermark_ms, timestamp_ms))
        files["commits/0"] = commit_log.new(watermark_ms)
        in_parallel(lambda path: checkpoint.put(path, files[path]), list(files))
        rows = splice.seeded([(one.entities, one.saved) for one in bases], fields)
        write.write_rows(self.spark, checkpoint, self._cut, self.operator_states, rows)
        self._first = 1

    def write(self, events: Mapping[str, DataFrame]) -> None:
        """Write events of coming slices; what was written before is kept.

        Args:
            events: By input: the columns of `savepoints.sources.events.events`, and in which slice
                an event is: `replay_slice` (int), from 1. All events of a slice in one call.
        """
        for name, frame in events.items():
            self._query.write_events(name, frame)

    def run(self, one: ReplayBatch) -> None:
        """Run the next slice, with the events that were written for it, if any."""
        if self._first == 0 and self._batches_run == 0 and one.late_watermark_ms > 0:
            # Only a batch before it can say by what its late rows are dropped.
            self._first = 1
            self._run(
                0, {name: [] for name in self.app.inputs}, ReplayBatch(0, 0, one.timestamp_ms)
            )
        self._batches_run += 1
        self._run(self._batches_run - 1 + self._first, self._files(self._batches_run), one)

    @property
    def batches_run(self) -> int:
        """How many slices have run."""
        return self._batches_run

    def state(self) -> CheckpointRows:
        """Return the state after the last slice, which must be laid out as the live query's."""
        from savepoints.state.storage.row_sources import CheckpointRows

        checkpoint = self._query.checkpoint
        files = read_cut(checkpoint, self._batches_run - 1 + self._first)
        program = f"the program {self.app.name}"
        _require_same(self.live.layout, Live(checkpoint, files).layout, program)
        return CheckpointRows.of(self.spark, checkpoint, files)

    def outputs(self) -> DataFrame:
        """Return the rows that the application gave, with their `replay_slice` (int)."""
        return self._query.results(self.spark)

    @property
    def operator_states(self) -> tuple[OperatorState, ...]:
        """The operators as the writer of state wants them."""
        states = self.live.files.operator_states
        return tuple(replace(one, partitions=self.partitions) for one in states)

    @property
    def _cut(self) -> Cut:
        """The seed."""
        live = self.live.files.cut
        return Cut(0, live.committed_at, 0, (), live.provider, self.partitions)

    def _log_files(self, listed: Mapping[str, Sequence[ObjectInfo]]) -> list[str | None]:
        """Write down for each source which files it reads; return where it is then."""
        positions: list[str | None] = []
        for source, name in enumerate(self.sources):
            if files := listed[name]:
                at, place = self._logged[source], self._query.events(name).uri
                changed = epoch_ms(files[0].last_modified)
                data = file_log.entry(at, [place / one.path for one in files], changed)
                self._query.checkpoint.put(f"sources/{source}/{at}", data)
                self._logged[source] += 1
            known = self._logged[source]
            positions.append(file_log.position(known - 1) if known else None)
        return positions

    def _files(self, number: int) -> dict[str, list[ObjectInfo]]:
        """Return the files of a slice, by input."""
        listed = {
            name: self._query.events(name).list(f"{REPLAY_BATCH}={number}")
            for name in self.app.inputs
        }
        return {
            name: [one for one in files if one.path.endswith(".parquet")]
            for name, files in listed.items()
        }

    def _run(self, batch: int, files: Mapping[str, Sequence[ObjectInfo]], one: ReplayBatch) -> None:
        checkpoint = self._query.checkpoint
        if self._latest is not None:
            before = f"offsets/{batch - 1}"
            known = offset_log.parse(self._latest, before)
            data = offset_log.with_batch(
                self._latest, before, positions=known.sources, watermark_ms=one.late_watermark_ms
            )
            checkpoint.put(before, data)
            checkpoint.delete([f"offsets/.{batch - 1}.crc"])  # Hadoop's, on a local file system.
        self._plan(batch, self._log_files(files), one)
        size = sum(each.size for found in files.values() for each in found)
        self._query.run(self._batches_run, size)
        if not checkpoint.exists(f"commits/{batch}"):
            raise NotAlignedError(
                f"Spark stopped without an error but did not commit batch {self._batches_run} "
                f"of the replay of {self.app.name}",
                hint="run the command again",
                query=self.app.name,
            )

    def _plan(self, batch: int, positions: Sequence[str | None], one: ReplayBatch) -> None:
        if self._latest is None:
            self._query.checkpoint.put("metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
        conf = {
            key: value
            for key, value in self.live.files.conf.items()
            if key not in _OF_NAMED_SOURCES
        }
        self._latest = offset_log.new(
            {**conf, offset_log.PARTITIONS_KEY: str(self.partitions)},
            positions=positions,
            watermark_ms=one.watermark_ms,
            timestamp_ms=one.timestamp_ms,
        )
        self._query.checkpoint.put(f"offsets/{batch}", self._latest)


def _require_same(live: Layout, other: Layout, program: str) -> None:
    """Check that a program keeps the state of the live query: the same fields, by name."""
    hint = (
        "in the settings, name the program that the query runs; if the savepoint is from an older "
        "program, take a new savepoint: savepoints create QUERY"
    )
    if live.keys() != other.keys():
        raise IncompatibleError(
            f"the live query has the state stores {_named(live)}, but {program} has "
            f"{_named(other) or 'none'}",
            hint=hint,
        )
    for (operator_id, store), schemas in live.items():
        for one in schema.differences(schemas, other[operator_id, store]):
            raise IncompatibleError(
                f"{program} keeps different state from the live query: operator {operator_id}, "
                f"store {store}: {one}",
                hint=hint,
                operator_id=operator_id,
                store=store,
            )


def _named(layout: Layout) -> str:
    return ", ".join(f"{operator_id}/{store}" for operator_id, store in sorted(layout))
