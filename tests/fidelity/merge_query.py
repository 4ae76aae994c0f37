"""Running a query over files of records, one a batch, and taking down what it gives."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.logs import offset_log
from savepoints.io import Location
from savepoints.runtime.app import App
from savepoints.runtime.replay import Live
from savepoints.sources.events.events import RAW_SCHEMA
from tests.fidelity import local_files, typed_state
from tests.fidelity.merge_events import BEGINNING, RAW, Event

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from savepoints.runtime.app import Output

PARTITIONS = 2
# Of the clock, between the batches of a query that goes by it.
_SECONDS_A_BATCH = 20

_STATE_STORE = "spark.sql.streaming.stateStore"
_CONF = {
    "spark.sql.streaming.pollingDelay": "0",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
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
        app: The program; it has one output.
        scale: How many seconds a second of the events is for it.
        disorder: Some events are out of order, so that some are dropped as late.
        clocked: It goes by the processing time of its batches, which are given theirs.
    """

    name: str
    app: App
    scale: int = 1
    disorder: bool = False
    clocked: bool = False

    @property
    def sources(self) -> int:
        return len(self.app.inputs)

    @property
    def output(self) -> Output:
        (found,) = self.app.outputs.values()
        return found

    @property
    def entity(self) -> str:
        """The column with the entity in what it gives."""
        return next(iter(self.app.inputs.values())).entity_key


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
        moment = int((BEGINNING.timestamp() + batch * _SECONDS_A_BATCH) * 1000)
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
                .parquet(str(self.place / f"in{source}"))
            )
            for source, (name, one) in enumerate(self.case.app.inputs.items())
        }

        def collect(batch: DataFrame, batch_id: int) -> None:
            if stop:
                raise _StopError
            rows = batch.collect()
            self.batches[batch_id] = [as_json(row.asDict(recursive=True)) for row in rows]

        query = (
            self.case.app.build(inputs)
            .writeStream.outputMode("append" if self.case.output.mode == "append" else "update")
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

    def batch_of(self, file: int, *, last: bool = False) -> int:
        """Return the batch that read a file, or the last one before the next file."""
        found = [one for one in sorted(self.watermarks()) if self.offsets(one)[0] == file + 1]
        return found[-1 if last else 0]

    def offsets(self, batch: int) -> list[int]:
        """Return how many files each source has read after a batch."""
        data = (self.checkpoint / "offsets" / str(batch)).read_bytes()
        positions = offset_log.parse(data, str(batch)).sources
        return [json.loads(one)["logOffset"] + 1 if one else 0 for one in positions]

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
    if case.output.mode == "append":
        return Counter(rows)
    latest = {}
    for row in rows:
        decoded = json.loads(row)
        latest[tuple(str(decoded[name]) for name in case.output.key)] = row
    return Counter(latest.values())


@dataclass
class Moved(Query):
    """A query that goes on in another checkpoint."""

    elsewhere: Path = Path()

    @property
    def checkpoint(self) -> Path:
        return self.elsewhere / "checkpoint"
