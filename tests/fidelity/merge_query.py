"""Running a query over files of records, one a batch, and taking down what it gives."""

from __future__ import annotations

import json
import os
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
from savepoints.io import Location
from savepoints.operations.replay import Live
from savepoints.sources.events import RAW_SCHEMA
from tests.fidelity import local_files, typed_state
from tests.fidelity.merge_events import BEGINNING, RAW, SECONDS_A_BATCH, Event

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 3

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
        path = self.checkpoint / "offsets" / str(batch)
        if "spark.sql.shuffle.partitions" not in (text := path.read_text()):
            # Offset log 2 leaves it out in a first run; a savepoint that is laid out has it.
            added = f'"conf":{{"spark.sql.shuffle.partitions":"{PARTITIONS}",'
            path.write_text(text.replace('"conf":{', added))
            path.with_name(f".{batch}.crc").unlink(missing_ok=True)
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
            pq.write_table(pa.Table.from_pylist(rows, RAW), path)
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
        """Return the batch that read a file; -1 where that is none."""
        if file < 0:
            return -1
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


@dataclass
class Moved(Query):
    """A query that goes on in another checkpoint."""

    elsewhere: Path = Path()

    @property
    def checkpoint(self) -> Path:
        return self.elsewhere / "checkpoint"
