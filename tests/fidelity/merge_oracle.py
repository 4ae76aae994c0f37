"""Merges without Kafka and without a store, and the full replay that they have to equal.

A live query runs over batches from which some events are missing. They are replayed and spliced in,
and the query goes on with more batches. The truth is the same program from scratch over the same
batches, each with the late events in the first batch whose clock reaches them.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from savepoints.app import App, Input, Output
from savepoints.checkpoint import offset_log
from savepoints.checkpoint.layout import read_cut
from savepoints.io import Location, Uri
from savepoints.operations import splicing
from savepoints.operations.replay import Base, Live, Replay, Slice
from savepoints.scratch import SLICE
from savepoints.sources.events import RAW_SCHEMA
from savepoints.state import contents, controls, splice
from savepoints.state.saved_rows import CheckpointRows, SavedRows, TableRows
from tests.fidelity import local_files, typed_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 3
# Batches before the merge, and after it.
BEFORE, AFTER = 5, 2
# The live query is stopped and started again after the first of them.
PHASES = (range(2), range(2, BEFORE), range(BEFORE, BEFORE + AFTER))
# Where the base savepoints are taken, by number of the file.
BASES = (0, 2)
SECONDS_A_BATCH = 20
ROWS_A_BATCH = 20
# So far apart that only a late event between them makes one session of two.
SESSIONS = (25, 35)
BETWEEN = 30
BEGINNING = dt.datetime(2026, 11, 20, 10, tzinfo=dt.timezone.utc)

_STATE_STORE = "spark.sql.streaming.stateStore"
_CONF = {
    "spark.sql.streaming.pollingDelay": "0",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.session.timeZone": "UTC",
    **local_files.CONF,
    f"{_STATE_STORE}.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_RAW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", _HEADERS),
    ]
)
_EVENT = pa.schema(
    [
        *_RAW,
        ("entity", pa.string()),
        ("event_time", pa.timestamp("us", tz="UTC")),
        ("event_id", pa.string()),
        (SLICE, pa.int32()),
    ]
)

Way = Literal["short", "faithful"]


@dataclass(frozen=True)
class Event:
    """An event of one of the inputs.

    Attributes:
        source: The input, `0` or `1`.
        batch: Number of the batch in which it comes, or would have come.
        offset: Its place in the input; late events have places of their own, below zero.
        k: Its entity.
        v: Some number.
        t: When it happened, in seconds.
        late: It arrives after the live query has run.
    """

    source: int
    batch: int
    offset: int
    k: str
    v: int
    t: float
    late: bool = False

    @property
    def time(self) -> dt.datetime:
        return BEGINNING + dt.timedelta(seconds=self.t)

    def record(self) -> dict[str, Any]:
        value = {"id": f"{self.source}-{self.offset}", "k": self.k, "v": self.v}
        return {
            "key": self.k.encode(),
            "value": json.dumps({**value, "t": self.time.isoformat()}).encode(),
            "topic": f"in{self.source}",
            "partition": -1 if self.late else 0,
            "offset": abs(self.offset),
            "timestamp": self.time,
            "timestampType": 0,
            "headers": None,
        }

    def event(self, number: int) -> dict[str, Any]:
        identity = {"entity": self.k, "event_time": self.time}
        event_id = f"{self.source}-{self.offset}"
        return {**self.record(), **identity, "event_id": event_id, SLICE: number}


@dataclass(frozen=True)
class Case:
    """A program and what its events are like.

    Attributes:
        name: Unique.
        build: Makes the result of the decoded inputs.
        mode: Of its output.
        key: Of its output, for `upsert`.
        sources: How many inputs it reads.
        disorder: Share of the events that are out of order, so that some are dropped as late.
        clocked: It goes by the processing time of its batches, which are given theirs.
    """

    name: str
    build: Callable[[Sequence[DataFrame]], DataFrame]
    mode: Literal["append", "upsert"] = "append"
    key: tuple[str, ...] = ()
    sources: int = 1
    disorder: float = 0.0
    clocked: bool = False

    @property
    def app(self) -> App:
        def build(inputs: Mapping[str, DataFrame]) -> DataFrame:
            return self.build([inputs[f"in{number}"] for number in range(self.sources)])

        return App(
            name=self.name,
            inputs={
                f"in{number}": Input(
                    topic=f"in{number}",
                    decode=decode,
                    entity_key="k",
                    event_time="t",
                    event_id=("id",),
                )
                for number in range(self.sources)
            },
            build=build,
            outputs={"out": Output(mode=self.mode, key=self.key, entity_key="k")},
        )


def decode(records: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    value = F.from_json(F.col("value").cast("string"), "id string, k string, v long, t timestamp")
    parsed = records.select(value.alias("e"), "topic", "partition", "offset")
    return parsed.select("e.*", "topic", "partition", "offset")


def events(case: Case, seed: int) -> list[Event]:
    """Make the events of all batches; those that are late are of a few entities only.

    Some come before the first event of their entity, some are of an entity that nobody has seen,
    some happen at the very time of another one, and some after the watermark.
    """
    chance = random.Random(seed)
    entities = [f"k{number}" for number in range(6)]
    found = []
    for source in range(case.sources):
        rows = []
        for batch in range(BEFORE + AFTER):
            # The first two entities begin later than the others.
            known = entities if batch > 1 else entities[2:]
            for _ in range(ROWS_A_BATCH):
                back = chance.randrange(100) if chance.random() < case.disorder else 0
                t = max(0, batch * SECONDS_A_BATCH + chance.randrange(SECONDS_A_BATCH) - back)
                rows.append((batch, chance.choice(known), chance.randrange(6), t))
        rows += [(1, "pair", chance.randrange(6), t) for t in SESSIONS]
        found += [Event(source, row[0], at, *row[1:]) for at, row in enumerate(rows)]
    return found + _late(case, found, chance)


def _late(case: Case, live: Sequence[Event], chance: random.Random) -> list[Event]:
    late = []
    for source in range(case.sources):
        clocks = _clocks([one for one in live if one.source == source])
        mine = [one for one in live if one.source == source and one.batch < BEFORE]
        equal = chance.choice([one for one in mine if one.k == "k1"])
        last, newest = clocks[BEFORE - 2], clocks[BEFORE - 1]
        wanted = [
            ("k0", chance.randrange(2 * SECONDS_A_BATCH)),  # Before its first event.
            ("k0", chance.randrange(2 * SECONDS_A_BATCH, last)),
            ("k1", equal.t),
            *(("k2", chance.randrange(last, newest)) for _ in range(2)),
            *(("new", chance.randrange(newest)) for _ in range(2)),
            ("pair", BETWEEN),
        ]
        for number, (k, t) in enumerate(wanted):
            batch = next(one for one, clock in enumerate(clocks) if clock >= t)
            v = equal.v if k == "k1" else chance.randrange(6)
            late.append(Event(source, batch, -1 - number, k, v, t, late=True))
    return late


def _clocks(live: Sequence[Event]) -> list[int]:
    """Return, for each batch, the newest time of everything up to its end."""
    return [
        int(max(one.t for one in live if one.batch <= batch)) for batch in range(BEFORE + AFTER)
    ]


class _StopError(Exception):
    """Ends a batch before it has read anything."""


@dataclass
class Query:
    """A run of a case over files, one a batch.

    Attributes:
        spark: With what tests share.
        case: What runs.
        place: A directory of its own.
        conf: Settings besides.
        batches: The rows that each batch gave, as JSON.
    """

    spark: SparkSession
    case: Case
    place: Path
    conf: Mapping[str, str] = field(default_factory=dict)
    batches: dict[int, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.session = self.spark.newSession()
        for key, value in {**_CONF, "spark.sql.shuffle.partitions": str(PARTITIONS)}.items():
            self.session.conf.set(key, value)
        for key, value in self.conf.items():
            self.session.conf.set(key, value)

    @property
    def checkpoint(self) -> Path:
        return self.place / "checkpoint"

    @property
    def live(self) -> Live:
        return self.at(max(self.watermarks()))

    def at(self, batch: int) -> Live:
        location = Location.of(str(self.checkpoint))
        return Live(location, read_cut(location, batch))

    def advance(self, found: Sequence[Event], batches: Sequence[int]) -> None:
        """Write the files of some batches and read them."""
        for batch in batches:
            self._write(found, batch)
            if self.case.clocked:
                self._run_at(batch)
        if not self.case.clocked:
            self._run()

    def _write(self, found: Sequence[Event], batch: int) -> None:
        for source in range(self.case.sources):
            path = self.place / f"in{source}" / f"{batch}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = [one.record() for one in found if (one.source, one.batch) == (source, batch)]
            pq.write_table(pa.Table.from_pylist(rows, _RAW), path)
            os.utime(path, (BEGINNING.timestamp() + batch,) * 2)

    def _run_at(self, batch: int) -> None:
        """Run one batch at a processing time of its own, by an entry of the offset log."""
        moment = int((BEGINNING.timestamp() + batch * SECONDS_A_BATCH) * 1000)
        offsets = self.checkpoint / "offsets"
        if batch == 0:
            self._run(stop=True)
            _, metadata, *_ = (offsets / "0").read_text().split("\n")
            (offsets / ".0.crc").unlink(missing_ok=True)
        else:
            _, metadata, *_ = (offsets / str(batch - 1)).read_text().split("\n")
            path = {"path": f"file://{self.place}/in0/{batch}.parquet", "timestamp": 1}
            log = self.checkpoint / "sources" / "0" / str(batch)
            log.write_text("v1\n" + json.dumps({**path, "batchId": batch}))
        changed = json.dumps({**json.loads(metadata), "batchTimestampMs": moment})
        position = json.dumps({"logOffset": batch})
        (offsets / str(batch)).write_text(f"v1\n{changed}\n{position}")
        self._run()

    def _run(self, *, stop: bool = False) -> None:
        from pyspark.errors import StreamingQueryException

        inputs = {
            name: one.decode(
                self.session.readStream.schema(RAW_SCHEMA)
                .option("maxFilesPerTrigger", 1)
                .parquet(str(self.place / name))
            )
            for name, one in self.case.app.inputs.items()
        }

        def collect(batch: DataFrame, batch_id: int) -> None:
            if stop:
                raise _StopError
            rows = batch.collect()
            self.batches[batch_id] = [as_json(row.asDict(recursive=True)) for row in rows]

        query = (
            self.case.app.build(inputs)
            .writeStream.outputMode("append" if self.case.mode == "append" else "update")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**({"once": True} if self.case.clocked else {"availableNow": True}))
            .foreachBatch(collect)
            .start()
        )
        try:
            assert query.awaitTermination(120), "the query hangs"
        except StreamingQueryException as error:
            if not (stop and _StopError.__name__ in str(error)):
                raise

    def watermarks(self) -> dict[int, tuple[int, int]]:
        """Return watermark and time of each batch."""
        found = {}
        for path in (self.checkpoint / "commits").iterdir():
            if path.name.isdigit():
                data = (self.checkpoint / "offsets" / path.name).read_bytes()
                entry = offset_log.parse(data, path.name)
                found[int(path.name)] = entry.watermark_ms, entry.timestamp_ms
        return found

    def batch_of(self, file: int) -> int:
        """Return the batch that read a file."""
        for batch in sorted(self.watermarks()):
            data = (self.checkpoint / "offsets" / str(batch)).read_bytes()
            position = offset_log.parse(data, str(batch)).sources[0]
            if position is not None and json.loads(position)["logOffset"] >= file:
                return batch
        raise LookupError(file)

    def state(self, batch: int) -> dict[str, Counter[str]]:
        found = typed_state.read(self.session, self.checkpoint, batch, ())
        return typed_state.without_partitions(found)

    def rows(self, upto: int) -> Counter[str]:
        """Return the contents of the output after a batch."""
        batches = {batch: rows for batch, rows in self.batches.items() if batch <= upto}
        return content(self.case, [row for batch in sorted(batches) for row in batches[batch]])


def as_json(row: Mapping[str, Any]) -> str:
    return json.dumps(row, default=str, sort_keys=True)


def content(case: Case, rows: Sequence[str]) -> Counter[str]:
    """Return what an output has after rows were written to it, one after the other."""
    if case.mode == "append":
        return Counter(rows)
    latest = {}
    for row in rows:
        decoded = json.loads(row)
        latest[tuple(str(decoded[name]) for name in case.key)] = row
    return Counter(latest.values())


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
        self.events = events(self.case, self.seed)
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
        files = self._bases()
        replayed = {*self.touched, *self.untouched}
        chosen = [
            one
            for one in self.events
            if one.k in replayed
            and one.batch < BEFORE
            and (one.late or one.batch > (-1 if files[one.k] is None else files[one.k]))
        ]
        first = min((-1 if file is None else self.live.batch_of(file)) for file in files.values())
        slices = self._slices(way, first)
        numbers = {batch: number for number, batches in enumerate(slices, 1) for batch in batches}
        rows = {
            f"in{source}": [
                one.event(numbers[self.live.batch_of(one.batch)])
                for one in chosen
                if one.source == source
            ]
            for source in range(self.case.sources)
        }
        replay = Replay(
            self.spark,
            self.case.app,
            Location.of(str(place / "scratch")),
            self.live.live,
        )
        watermarks = self.live.watermarks()
        lowest = 0 if first < 0 else watermarks[first][0]
        if any(file is not None for file in files.values()):
            by_base: dict[int, list[str]] = {}
            for entity, file in files.items():
                if file is not None:
                    by_base.setdefault(file, []).append(entity)
            replay.seed(
                [
                    Base(entities_of(self.spark, entities), self._saved(file))
                    for file, entities in by_base.items()
                ],
                watermark_ms=lowest,
                timestamp_ms=watermarks[max(first, 0)][1],
            )
        replay.write({name: self._frame(place, name, found) for name, found in rows.items()})
        for number, batches in enumerate(slices, 1):
            last = batches[-1]
            if way == "short" and number == 1:
                one = Slice(lowest, lowest, watermarks[last][1])
            else:
                before = watermarks[last - 1][0] if last else 0
                one = Slice(before, *watermarks[last])
            replay.run(one)
        self._splice(replay, place, sorted(replayed))
        batches = self._corrected(replay, files)
        return _Moved(self.spark, self.case, self.live.place, self.live.conf, batches, place)

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

    def _bases(self) -> dict[str, int | None]:
        """Return, for each entity that is replayed, the file after which its base was taken."""
        clocks = [
            max(one.t for one in self.in_time if one.batch <= batch) for batch in range(BEFORE)
        ]
        found: dict[str, int | None] = {}
        for entity in self.touched:
            earliest = min(one.t for one in self.late if one.k == entity)
            before = [file for file in BASES if clocks[file] < earliest]
            found[entity] = max(before, default=None)
        # The controls begin from what the others begin from, too: nothing, and the newest.
        files = sorted(found.values(), key=lambda file: -1 if file is None else file)
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
        pq.write_table(pa.Table.from_pylist(list(rows), _EVENT), path)
        return self.spark.read.parquet(str(path))

    def _corrected(self, replay: Replay, files: Mapping[str, int | None]) -> dict[int, list[str]]:
        """Return the rows of each batch, those of touched entities after their base replayed."""
        kept = {}
        for batch, rows in self.live.batches.items():
            kept[batch] = [
                row
                for row in rows
                if (k := json.loads(row)["k"]) not in self.touched
                or (files[k] is not None and batch <= self.live.batch_of(files[k]))
            ]
        replayed = replay.outputs().orderBy(SLICE).collect()
        for row in replayed:
            found = row.asDict(recursive=True)
            found.pop(SLICE)
            if found["k"] in self.touched:
                kept[self.batch].append(as_json(found))
        return kept


@dataclass
class _Moved(Query):
    """A query that goes on in another checkpoint."""

    elsewhere: Path = Path()

    @property
    def checkpoint(self) -> Path:
        return self.elsewhere / "checkpoint"
