"""One query, run: the current generation of an application, with periodic savepoints.

The runner holds the query's lease, so there is one runner per query. SIGTERM and SIGINT let the
running batch finish; the query then ends between two batches.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from savepoints.app import App
from savepoints.config import QuerySettings, Settings
from savepoints.errors import SavepointsError, UsageError
from savepoints.io import Location, Uri
from savepoints.outputs import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOG = logging.getLogger(__name__)

# How often the runner looks whether the query has ended or a savepoint is due.
POLL_SECONDS = 0.1
# What Kafka's source gives, with headers.
_KAFKA_COLUMNS = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "timestampType int, headers array<struct<key: string, value: binary>>"
)
# How often it asks Spark for its batches; Spark keeps the last 100.
COLLECT_SECONDS = 1.0


class _Drained(Exception):  # noqa: N818  (not an error: it carries "stop here" through Spark)
    """Raised instead of beginning another batch once the runner is to stop."""


@dataclass(frozen=True)
class Ran:
    """What a run did.

    Attributes:
        query: The query.
        generation: The generation that ran.
        first_batch: First batch committed by this run, None when there was none.
        last_batch: Last committed batch, None when there is none.
        batches: Batches that this run committed.
        input_rows: Rows they read.
        seconds: From the start of the query to its end.
        ended: `drained` by a signal, or `caught_up` with what the sources had at the start.
    """

    query: str
    generation: int
    first_batch: int | None
    last_batch: int | None
    batches: int
    input_rows: int
    seconds: float
    ended: str


class Runner:
    """Runs one generation of an application."""

    def __init__(
        self,
        spark: SparkSession,
        app: App,
        bound: QuerySettings,
        settings: Settings,
        *,
        generation: int,
        checkpoint: Location,
    ) -> None:
        """Bind the application; nothing is started.

        Raises:
            UsageError: If an output has no table in the settings.
        """
        missing = [name for name in app.outputs if name not in bound.outputs]
        if missing:
            raise UsageError(
                f"output {missing[0]!r} of {app.name} has no table",
                hint=f'set it: [queries.{app.name}.outputs] {missing[0]} = "s3://…"',
            )
        self._spark = spark
        self._app = app
        self._bound = bound
        self._settings = settings
        self._generation = generation
        self._checkpoint = checkpoint
        self._stopping = threading.Event()
        self._committed: list[tuple[int, int]] = []

    def stop(self) -> None:
        """Ask the run to end after the batch that runs now."""
        self._stopping.set()

    def run(
        self,
        *,
        until_latest: bool,
        check: Callable[[], None] = lambda: None,
    ) -> Ran:
        """Run until stopped, or until everything is read that the sources had at the start.

        Args:
            until_latest: End there.
            check: Called all the time; raises when the run must not go on.

        Raises:
            SavepointsError: If the query fails.
        """
        from pyspark.errors import StreamingQueryException

        begun = time.monotonic()
        query = self._start(until_latest=until_latest)
        collected = begun
        try:
            while query.isActive:
                check()
                if time.monotonic() > collected + COLLECT_SECONDS:
                    self._collect(query)
                    collected = time.monotonic()
                if self._stopping.is_set() and not query.status["isTriggerActive"]:
                    query.stop()
                    break
                with suppress(StreamingQueryException):  # Looked at below.
                    # Typed as whole seconds, but passed on in milliseconds.
                    query.awaitTermination(POLL_SECONDS)  # type: ignore[arg-type]
            self._raise_failure(query)
        finally:
            if query.isActive:
                query.stop()
        self._collect(query)
        return Ran(
            self._app.name,
            self._generation,
            self._committed[0][0] if self._committed else None,
            self._committed[-1][0] if self._committed else None,
            len(self._committed),
            sum(rows for _, rows in self._committed),
            time.monotonic() - begun,
            "drained" if self._stopping.is_set() else "caught_up",
        )

    def run_planned(self) -> None:
        """Run the one batch that the offset log has beyond the commit log, and nothing after it.

        Only `once` keeps to a batch that was planned; `availableNow` goes on to the newest.

        Raises:
            SavepointsError: If the query fails.
        """
        from pyspark.errors import StreamingQueryException

        query = self._start(once=True)
        with suppress(StreamingQueryException):  # Looked at below.
            query.awaitTermination()
        self._raise_failure(query)

    def run_on_nothing(self, scratch: Location) -> None:
        """Run the program once on empty inputs, which shows the layout of its state.

        Args:
            scratch: An empty directory, where the input and a checkpoint are made.
        """
        scratch.put("empty/0.json", b"\n")
        source = self._spark.readStream.schema(_KAFKA_COLUMNS).json((scratch / "empty").uri.hadoop)
        inputs = {name: one.decode(source) for name, one in self._app.inputs.items()}
        (
            self._app.build(inputs)
            .writeStream.outputMode(self._output_mode)
            .option("checkpointLocation", (scratch / "checkpoint").uri.hadoop)
            .trigger(availableNow=True)
            .format("noop")
            .start()
            .awaitTermination()
        )

    @property
    def _output_mode(self) -> str:
        modes = {output.mode for output in self._app.outputs.values()}
        return "complete" if "complete" in modes else "append" if modes == {"append"} else "update"

    def _start(self, *, until_latest: bool = False, once: bool = False) -> StreamingQuery:
        inputs = {name: self._read(name) for name in self._app.inputs}
        result = self._app.build(inputs)
        for name in self._app.outputs:
            write.ensure_table(self._table(name), result.schema)
        writer = (
            result.writeStream.queryName(self._app.name)
            .outputMode(self._output_mode)
            .option("checkpointLocation", self._checkpoint.uri.hadoop)
            .foreachBatch(self._write)
        )
        if once:
            writer = writer.trigger(once=True)
        elif until_latest:
            writer = writer.trigger(availableNow=True)
        elif self._bound.trigger:
            milliseconds = int(self._bound.trigger.total_seconds() * 1000)
            writer = writer.trigger(processingTime=f"{milliseconds} milliseconds")
        return writer.start()

    def _read(self, name: str) -> DataFrame:
        source = self._app.inputs[name]
        reader = (
            self._spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self._settings.kafka.bootstrap_servers)
            .option("subscribe", self._bound.topics.get(name, source.topic))
            .option("startingOffsets", "earliest")
            .option("failOnDataLoss", "true")
            .option("includeHeaders", "true")
        )
        for key, value in self._settings.kafka.options.items():
            reader = reader.option(f"kafka.{key}", value)
        if self._bound.max_offsets_per_trigger:
            reader = reader.option("maxOffsetsPerTrigger", self._bound.max_offsets_per_trigger)
        return source.decode(reader.load())

    def _write(self, batch: DataFrame, batch_id: int) -> None:
        if self._stopping.is_set():
            raise _Drained
        many = len(self._app.outputs) > 1
        if many:
            batch.persist()
        for name, output in self._app.outputs.items():
            write.write_batch(
                batch,
                self._table(name),
                mode=output.mode,
                key=output.key,
                app=write.app_id(self._app.name, name, self._generation),
                batch_id=batch_id,
            )
        if many:
            batch.unpersist()

    def _table(self, output: str) -> Uri:
        return Uri.parse(self._bound.outputs[output])

    def _collect(self, query: StreamingQuery) -> None:
        """Take over the batches that Spark reports as finished."""
        last = self._committed[-1][0] if self._committed else -1
        for progress in query.recentProgress:
            found: Any = progress
            if found["batchId"] > last and "addBatch" in found["durationMs"]:
                self._committed.append((int(found["batchId"]), int(found["numInputRows"])))

    def _raise_failure(self, query: StreamingQuery) -> None:
        error = query.exception()
        if error is None or (self._stopping.is_set() and _Drained.__name__ in str(error)):
            return
        raise SavepointsError(
            f"the query {self._app.name} failed: {_cause(str(error))}",
            hint="correct the cause and run it again, or go back: savepoints rollback latest",
            query=self._app.name,
        )


def _cause(report: str) -> str:
    """Return what is at the bottom of Spark's nested stack traces, which is what went wrong."""
    frames = ("at ", "File ", "...", "^", "Traceback", "JVM stacktrace")
    lines = [line.strip() for line in report.splitlines()]
    telling = [line for line in lines if ": " in line and not line.startswith(frames)]
    return telling[-1][:500] if telling else report[:500]


@contextmanager
def stopped_by_signals(runner: Runner) -> Iterator[None]:
    """Let SIGTERM and SIGINT end the run after its batch; a second one is obeyed at once."""

    def handle(number: int, _frame: object) -> None:
        _LOG.info("signal %s: ending after the running batch", number)
        for one, before in previous.items():
            signal.signal(one, before)
        runner.stop()

    previous = {one: signal.signal(one, handle) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for one, before in previous.items():
            signal.signal(one, before)
