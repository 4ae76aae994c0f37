"""Merges without Kafka and without a store, and the full replay that they have to equal.

A live query runs over batches from which some events are missing. They are replayed and spliced in,
and the query goes on with more batches. The truth is the same program from scratch over the same
batches, each with the late events in the first batch whose clock reaches them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from savepoints.io import Location, Uri
from savepoints.operations import splicing
from savepoints.operations.replay import Base, Replay, Slice
from savepoints.scratch import SLICE
from savepoints.state import contents, controls, splice
from savepoints.state.saved_rows import CheckpointRows, SavedRows, TableRows
from tests.fidelity.merge_events import AFTER, BEFORE, EVENT, events
from tests.fidelity.merge_query import Case, Moved, Query, as_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The live query is stopped and started again after the first of them.
PHASES = (range(2), range(2, BEFORE), range(BEFORE, BEFORE + AFTER))
# Where the base savepoints are taken, by number of the file.
BASES = (0, 2)

Way = Literal["short", "faithful"]


@dataclass(frozen=True)
class Outcome:
    """What differs from the truth, as counts; all zero for an exact merge."""

    state: int
    outputs: int
    later: int
    state_in_the_end: int

    @property
    def exact(self) -> bool:
        return not (self.state or self.outputs or self.later or self.state_in_the_end)


def different(one: Mapping[Any, Counter[str]], other: Mapping[Any, Counter[str]]) -> int:
    return sum(
        (
            (one.get(part, Counter()) - other.get(part, Counter()))
            + (other.get(part, Counter()) - one.get(part, Counter()))
        ).total()
        for part in {*one, *other}
    )


def entities_of(spark: SparkSession, entities: Sequence[str]) -> DataFrame:
    return spark.createDataFrame([(one,) for one in entities], "entity string")


@dataclass
class Merge:
    """One case with one seed: the live query, the truth, and merges of the one into the other."""

    spark: SparkSession
    case: Case
    place: Path
    seed: int
    conf: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # With batches without input the last batch before the merge is one of them.
        empty = str(bool(self.seed % 2)).lower()
        conf = {"spark.sql.streaming.noDataMicroBatches.enabled": empty, **self.conf}
        self.events = events(self.case.sources, self.case.disorder, self.seed)
        self.late = [one for one in self.events if one.late]
        in_time = [one for one in self.events if not one.late]
        self.in_time = in_time
        self.live = Query(self.spark, self.case, self.place / "live", conf)
        self.truth = Query(self.spark, self.case, self.place / "truth", conf)
        for batches in PHASES[:-1]:
            self.live.advance(in_time, batches)
        for batches in PHASES:
            self.truth.advance(self.events, batches)
        self.batch = max(self.live.watermarks())
        self.touched = sorted({one.k for one in self.late})
        self.untouched = ["k3", "k4"]

    def merged(self, way: Way) -> Query:
        """Merge; return the query that goes on from there."""
        place = self.place / way
        bases = self._bases()
        first = min(map(self.live.batch_of, bases.values()))
        slices = self._slices(way, first)
        scratch = Location.of(str(place / "scratch"))
        replay = Replay(self.spark, self.case.app, scratch, self.live.live)
        watermarks = self.live.watermarks()
        lowest = 0 if first < 0 else watermarks[first][0]
        if seeds := self._seeds(bases):
            moment = watermarks[max(first, 0)][1]
            replay.seed(seeds, watermark_ms=lowest, timestamp_ms=moment)
        replay.write(self._inputs(place, bases, slices))
        for number, batches in enumerate(slices, 1):
            last = batches[-1]
            before = watermarks[last - 1][0] if last else 0
            whole = way == "short" and number == 1
            low = Slice(lowest, lowest, watermarks[last][1])
            replay.run(low if whole else Slice(before, *watermarks[last]))
        self._splice(replay, place, sorted(bases))
        rows = self._corrected(replay, bases)
        return Moved(self.spark, self.case, self.live.place, self.live.conf, rows, place)

    def _seeds(self, bases: Mapping[str, int]) -> list[Base]:
        return [
            Base(
                entities_of(self.spark, [one for one, its in bases.items() if its == file]),
                self._saved(file),
                self.live.at(self.live.batch_of(file)).layout,
            )
            for file in sorted({*bases.values()} - {-1})
        ]

    def _inputs(
        self, place: Path, bases: Mapping[str, int], slices: Sequence[Sequence[int]]
    ) -> dict[str, DataFrame]:
        """Return the events that are replayed: those after their bases, and the late ones."""
        numbers = {batch: number for number, batches in enumerate(slices, 1) for batch in batches}
        chosen = [
            one
            for one in self.events
            if one.k in bases and one.batch < BEFORE and (one.late or one.batch > bases[one.k])
        ]
        rows = {
            f"in{source}": [
                one.event(numbers[self.live.batch_of(one.batch)])
                for one in chosen
                if one.source == source
            ]
            for source in range(self.case.sources)
        }
        return {name: self._frame(place, name, found) for name, found in rows.items()}

    def _splice(self, replay: Replay, place: Path, replayed: Sequence[str]) -> None:
        state = replay.state()
        known = entities_of(self.spark, replayed)
        fields = splice.entity_fields(replay.keys(state), state, replay.operators, known)
        live = self.live.live
        self.controls = controls.compare(
            CheckpointRows.of(self.spark, live.checkpoint, live.files),
            state,
            replay.operators,
            fields,
            entities_of(self.spark, self.untouched),
            layout=live.layout,
        )
        target = Location.of(str(place / "checkpoint"))
        touched = entities_of(self.spark, self.touched)
        splicing.write(self.spark, target, live, state, fields, touched)
        target.copy_from(live.checkpoint, "metadata", "metadata")

    def without_it(self) -> tuple[int, int]:
        """Return how many state rows and output rows differ from the truth without a merge."""
        return (
            different(self.live.state(self.batch), self.truth.state(self.batch)),
            different({0: self.live.rows(self.batch)}, {0: self.truth.rows(self.batch)}),
        )

    def outcome(self, merged: Query) -> Outcome:
        """Compare a merged query with the truth, at the merge and after more batches."""
        state = different(merged.state(self.batch), self.truth.state(self.batch))
        outputs = different({"": merged.rows(self.batch)}, {"": self.truth.rows(self.batch)})
        known = set(merged.batches)
        merged.advance(self.in_time, PHASES[-1])
        later = different(
            {batch: Counter(rows) for batch, rows in merged.batches.items() if batch not in known},
            {
                batch: Counter(rows)
                for batch, rows in self.truth.batches.items()
                if batch > self.batch
            },
        )
        last = max(self.truth.watermarks())
        in_the_end = different(merged.state(last), self.truth.state(last))
        return Outcome(state, outputs, later, in_the_end)

    def _bases(self) -> dict[str, int]:
        """Return after which file the base of each entity was taken; -1 where it has none."""
        clocks = [
            max(one.t for one in self.in_time if one.batch <= batch) for batch in range(BEFORE)
        ]
        found = {}
        for entity in self.touched:
            earliest = min(one.t for one in self.late if one.k == entity)
            before = [file for file in BASES if clocks[file] < earliest]
            found[entity] = max(before, default=-1)
        # The controls begin from what the others begin from, too: nothing, and the newest.
        files = sorted(found.values())
        return {**found, **dict(zip(self.untouched, (files[0], files[-1]), strict=True))}

    def _saved(self, file: int) -> SavedRows:
        """Return the state at a base: raw, or with even seeds from its canonical table."""
        live = self.live.at(self.live.batch_of(file))
        if self.seed % 2:
            return CheckpointRows.of(self.spark, live.checkpoint, live.files)
        table = Uri.parse(str(self.place / f"base-{file}"))
        if not Path(str(table)).exists():
            contents.export(self.spark, live.checkpoint, live.files, table)
        return TableRows(self.spark, table)

    def _slices(self, way: Way, first: int) -> list[list[int]]:
        """Return the live batches of each slice."""
        batches = list(range(first + 1, self.batch + 1))
        if way == "faithful":
            return [[one] for one in batches]
        return [batches[:-1] or [first], [self.batch]]

    def _frame(self, place: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
        path = place / f"{name}.parquet"
        place.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(list(rows), EVENT), path)
        return self.spark.read.parquet(str(path))

    def _corrected(self, replay: Replay, bases: Mapping[str, int]) -> dict[int, list[str]]:
        """Return the rows of each batch, those of touched entities after their base replayed."""
        kept = {}
        for batch, rows in self.live.batches.items():
            kept[batch] = [
                row
                for row in rows
                if (k := json.loads(row)["k"]) not in self.touched
                or batch <= self.live.batch_of(bases[k])
            ]
        replayed = replay.outputs().orderBy(SLICE).collect()
        for row in replayed:
            found = row.asDict(recursive=True)
            found.pop(SLICE)
            if found["k"] in self.touched:
                kept[self.batch].append(as_json(found))
        return kept
