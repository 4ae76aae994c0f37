"""One query, run by Spark: the current generation of an application.

Either without an end (`run`), or one planned batch at a time (`run_planned`, see `bounded`). After
SIGTERM or SIGINT the running batch is finished, and the query ends between two batches.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from savepoints import faults
from savepoints.checkpoint import position
from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.errors import SavepointsError
from savepoints.io import Location
from savepoints.outputs.delta import batch_version, write
from savepoints.plan import Progress, silent
from savepoints.result import Result
from savepoints.runtime import failure, program, unreported_batch, written_outputs
from savepoints.runtime.app import App, Input, TableInput, require_tables
from savepoints.runtime.archive_batches import ArchivedInputs
from savepoints.runtime.failure import cause, report
from savepoints.runtime.inputs import Inputs
from savepoints.runtime.running_batch import Committed, RunningBatch
from savepoints.sources.events.events import RAW_SCHEMA
from savepoints.spark import private_api
from savepoints.state import executed_plan
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_LOG = logging.getLogger(__name__)

# How often the runner looks whether the query has ended or a savepoint is due.
POLL_SECONDS = 0.1
# Below it each input of a program has a directory, when it is run on nothing.
EMPTY = "empty"
_EMPTY_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
# How often it asks Spark for its batches; Spark keeps the last 100.
COLLECT_SECONDS = 1.0


class _Drained(Exception):  # noqa: N818  (not an error: it carries "stop here" through Spark)
    """Raised instead of beginning another batch once the runner is to stop."""


def _is_no_drain(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], _Drained))


# On its way into the JVM py4j logs it as a failure, with its traceback.
logging.getLogger("py4j.clientserver").addFilter(_is_no_drain)


Ended = Literal["drained", "caught_up", "max_duration", "max_records", "paused"]


@dataclass(frozen=True)
class Ran(Result):
    """What a run did.

    Attributes:
        query: The query.
        generation: The generation that ran.
        first_batch: First batch committed by this run, None when there was none.
        last_batch: Last batch committed by this run, None when there was none.
        batches: Batches that this run committed.
        input_rows: Rows they read.
        seconds: From the start of the query to its end.
        ended: `drained` by a signal, `caught_up` with the end that was asked for, or stopped by
            `max_duration` or `max_records`; `paused` by `savepoints pause`.
        caught_up: Everything up to the end that was asked for has been read; false for a run
            without an end.
        remaining_records: Records left up to that end (without `--until`, up to Kafka's end when
            the run began), None for a run without an end.
        offsets: Next-to-read offset by topic and partition.
        recovered_from: Id of the savepoint from which a damaged checkpoint was rebuilt, None if
            none was damaged.
        pauses: How often it was paused before; batches, rows and seconds are those since the last
            pause.
    """

    query: str
    generation: int
    first_batch: int | None
    last_batch: int | None
    batches: int
    input_rows: int
    seconds: float
    ended: Ended
    caught_up: bool = False
    remaining_records: int | None = None
    offsets: KafkaOffsets = field(default_factory=dict)
    recovered_from: str | None = None
    pauses: int = 0


class Runner:
    """Runs one generation of an application."""

    def __init__(
        self,
        spark: SparkSession,
        inputs: Inputs,
        *,
        generation: int,
        checkpoint: Location,
        archived: ArchivedInputs | None = None,
        progress: Progress = silent,
    ) -> None:
        """Bind the application, whose outputs must have tables; nothing is started."""
        require_tables(inputs.app, inputs.bound.outputs)
        self._spark = spark
        self._inputs = inputs
        self._app = inputs.app
        self._bound = inputs.bound
        self._output_mode = output_mode(inputs.app)
        self.query = inputs.app.name
        self.generation = generation
        self.checkpoint = checkpoint
        self.archived = archived
        self._progress = progress
        self._read_elsewhere: dict[int, int] = {}
        self._stopping = threading.Event()
        self._committed = Committed()
        self._watermarks_ms: dict[int, int] = {}
        self._is_first = True  # No batch was written since the query was started.

    def stop(self) -> None:
        """Ask the run to end after the batch that runs now."""
        self._stopping.set()

    @property
    def stopping(self) -> bool:
        """Whether it was asked to end."""
        return self._stopping.is_set()

    @property
    def last_batch(self) -> int | None:
        """Newest batch that this run has committed, as far as Spark was asked; None for none."""
        return self._committed.last

    @property
    def watermark_ms(self) -> int:
        """What the events of all planned batches that it ran have moved the watermark to.

        Spark begins anew with each of them, and then takes an input for one without events until
        it has some; what it had reached before stays.
        """
        return min(self._watermarks_ms.values(), default=0)

    @property
    def most(self) -> int | None:
        """Most records of a source in one batch, None for no limit."""
        return self._bound.max_offsets_per_trigger

    @property
    def needs_empty_batches(self) -> bool:
        """Whether Spark runs a batch without input when only the watermark has moved."""
        are_on = str(self._spark.conf.get(_EMPTY_BATCHES, "true")).lower() == "true"
        return are_on and self._output_mode != "complete"

    def ran(
        self,
        ended: Ended,
        *,
        seconds: float,
        offsets: KafkaOffsets,
        caught_up: bool = False,
        remaining_records: int | None = None,
    ) -> Ran:
        """Return what this runner did; see `Ran`."""
        return Ran(
            self.query,
            self.generation,
            self._committed.first,
            self._committed.last,
            self._committed.batches,
            self._committed.rows,
            seconds,
            ended,
            caught_up,
            remaining_records,
            offsets,
        )

    def run(
        self, *, check: Callable[[], None] = lambda: None, until_caught_up: bool = False
    ) -> None:
        """Run until stopped.

        Args:
            until_caught_up: End also with everything that its sources have now.

        Raises:
            CheckpointDamagedError: If Spark cannot load the state.
        """
        while self._run(check, until_caught_up=until_caught_up):
            pass

    def _run(self, check: Callable[[], None], *, until_caught_up: bool) -> bool:
        """Run until stopped; return whether to start again, as only its first batch was over."""
        from pyspark.errors import StreamingQueryException

        before = position.read(self.checkpoint)
        query = self._start(until_caught_up=until_caught_up)
        collected = time.monotonic()
        running = RunningBatch(self._progress)
        try:
            while query.isActive:
                check()
                running.look(query)
                if time.monotonic() > collected + COLLECT_SECONDS:
                    self._collect(query)
                    running.tell_committed(self._committed)
                    collected = time.monotonic()
                if self.stopping and not query.status["isTriggerActive"]:
                    query.stop()
                    break
                with suppress(StreamingQueryException):  # Looked at below.
                    # Typed as whole seconds, but passed on in milliseconds.
                    query.awaitTermination(POLL_SECONDS)  # type: ignore[arg-type]
            if self._failed_after_commit(query, before):
                return not self.stopping
            self._raise_failure(query)
        finally:
            if query.isActive:
                query.stop()
        self._collect(query)
        return False

    def run_planned(self, check: Callable[[], None] = lambda: None) -> None:
        """Run the one batch that the offset log has beyond the commit log, and nothing after it.

        Only `once` keeps to a batch that was planned; `availableNow` goes on to the newest. A batch
        that was begun is finished: being asked to stop ends nothing here.

        Args:
            check: Called all the time; raises when another process may have the query by now, whose
                outputs this batch must not be written to.

        Raises:
            CheckpointDamagedError: If Spark cannot load the state.
        """
        from pyspark.errors import StreamingQueryException

        before = position.read(self.checkpoint)
        reading = self.archived and self.archived.reading(self._spark, before)
        if reading:
            self._read_elsewhere[reading.batch] = reading.rows
        try:
            result = None
            if reading:
                result = self._with_tables(program.built(self._app, reading.inputs))
            query = self._start(result, once=True)
            running = RunningBatch(self._progress)
            try:
                with suppress(StreamingQueryException):  # Looked at below.
                    while not query.awaitTermination(POLL_SECONDS):  # type: ignore[arg-type]
                        running.look(query)
                        check()
            finally:
                if query.isActive:
                    query.stop()
        finally:
            if reading:
                reading.release()
        if not self._failed_after_commit(query, before):
            self._raise_failure(query)
            self._collect(query)
        for number, reached in enumerate(executed_plan.watermarks_reached_ms(query)):
            self._watermarks_ms[number] = max(reached, self._watermarks_ms.get(number, 0))

    def begin_in(self, scratch: Location) -> None:
        """Let Spark begin a first batch in another checkpoint, and stop it before it reads.

        The offset log there has the settings of a new query, and `sources/` the order in which
        Spark counts the sources, which is that of the plan and not of the application's inputs.
        """

        def stop(_batch: DataFrame, _batch_id: int) -> None:
            raise _Drained

        writer = self._result.writeStream.outputMode(self._output_mode).foreachBatch(stop)
        self._raise_failure(run_once(writer, scratch), drained=True)

    def has_written(self, batch: int) -> list[str]:
        """Return the outputs that have the rows already of a batch; see `written_outputs.find`."""
        return written_outputs.find(self._inputs, self.generation, self.checkpoint, batch)

    @property
    def app(self) -> App:
        """The program that it runs."""
        return self._app

    @cached_property
    def plan(self) -> str:
        """The digest of its program; see `program.digest`."""
        return program.digest(self._plan_text, self._program, self._inputs)

    @property
    def declares_variables(self) -> bool:
        """See `program.declares_variables`."""
        return program.declares_variables(self._plan_text)

    @property
    def tables_beside(self) -> list[str]:
        """What it reads besides its inputs, as it is now; see `private_api.tables_beside`."""
        return private_api.tables_beside(self._program)

    def run_on_nothing(self, scratch: Location) -> None:
        """Run the program once on empty inputs, which shows the layout of its state."""
        run_on_nothing(self._spark, self._app, scratch)

    @cached_property
    def _program(self) -> DataFrame:
        """What the application makes of its inputs."""
        return program.frame(self._spark, self._inputs)

    @cached_property
    def _plan_text(self) -> str:
        return program.text(self._program)

    @cached_property
    def _result(self) -> DataFrame:
        """The same, when there are tables for it."""
        return self._with_tables(self._program)

    def _with_tables(self, result: DataFrame) -> DataFrame:
        """Create the output tables that do not exist, and refuse those that lack columns.

        Raises:
            IncompatibleError: If they lack some, or Delta cannot write one.
        """
        for name, output in self._app.outputs.items():
            part = output.selection.checked(result, name)
            write.require_names(name, output.mode, part.schema.names)
            write.ensure_table(self._table(name), part.schema.json())
            batch_version.require_columns(str(self._table(name)), part.schema)
        return result

    def _start(
        self, result: DataFrame | None = None, *, once: bool = False, until_caught_up: bool = False
    ) -> StreamingQuery:
        writer = (
            (self._result if result is None else result)
            .writeStream.queryName(self.query)
            .outputMode(self._output_mode)
            .option("checkpointLocation", self.checkpoint.uri.hadoop)
            .foreachBatch(self._write if once else self._write_unless_stopping)
        )
        self._is_first = True
        if once:
            writer = writer.trigger(once=True)
        elif until_caught_up:
            writer = writer.trigger(availableNow=True)
        elif self._bound.trigger:
            milliseconds = int(self._bound.trigger.total_seconds() * 1000)
            writer = writer.trigger(processingTime=f"{milliseconds} milliseconds")
        return writer.start()

    def _write_unless_stopping(self, batch: DataFrame, batch_id: int) -> None:
        if self.stopping:
            raise _Drained
        self._write(batch, batch_id)

    def _write(self, batch: DataFrame, batch_id: int) -> None:
        is_first, self._is_first = self._is_first, False
        # Where it is run again after it was killed between outputs and commit. Delta asks for the
        # ids as well, but may have forgotten them.
        written = self.has_written(batch_id) if is_first else []
        outputs = {name: one for name, one in self._app.outputs.items() if name not in written}
        if not outputs:
            # Without that Spark finds the state not written and fails, each time.
            batch.write.format("noop").mode("overwrite").save()
            return
        many = len(outputs) > 1
        if many:
            batch.persist()
        for name, output in outputs.items():
            write.write_batch(
                output.selection.of(batch),
                self._table(name),
                mode=output.mode,
                key=output.key,
                app=write.app_id(self.query, name, self.generation),
                batch_id=batch_id,
            )
            faults.reach(f"run.written_{name}")
        faults.reach("run.outputs_written")
        if many:
            batch.unpersist()

    def _table(self, output: str) -> Uri:
        return Uri.parse(self._bound.outputs[output])

    def _collect(self, query: StreamingQuery) -> None:
        """Take over the batches that Spark reports as finished."""
        last = -1 if self._committed.last is None else self._committed.last
        for progress in query.recentProgress:
            found: Any = progress
            if found["batchId"] > last and "addBatch" in found["durationMs"]:
                batch = int(found["batchId"])
                rows = self._read_elsewhere.get(batch, int(found["numInputRows"]))
                self._committed.add(batch, rows)

    def _failed_after_commit(
        self, query: StreamingQuery, before: position.CheckpointPosition
    ) -> bool:
        """Say whether all that failed is Spark's report of the planned batch, and take it over."""
        error = query.exception()
        if error is None or not unreported_batch.is_one(before, position.read(self.checkpoint)):
            return False
        batch = before.next_batch
        _LOG.warning("Spark failed after it had committed batch %d: %s", batch, report(error))
        rows = self._read_elsewhere.get(batch, unreported_batch.rows(before))
        self._committed.add(batch, rows)
        return True

    def _raise_failure(self, query: StreamingQuery, *, drained: bool = False) -> None:
        error = query.exception()
        if error is None:
            return
        text = report(error)
        if (drained or self.stopping) and _Drained.__name__ in text:
            return
        raise failure.error_of(text, self.query, self._bound.app, self.checkpoint)


def run_once(writer: DataStreamWriter, checkpoint: Location) -> StreamingQuery:
    """Run one batch of a query and wait for its end; whether it failed is for the caller to see.

    With `availableNow` a program that waits for time to pass would never end.
    """
    from pyspark.errors import StreamingQueryException

    located = writer.option("checkpointLocation", checkpoint.uri.hadoop)
    query = located.trigger(once=True).start()
    with suppress(StreamingQueryException):
        query.awaitTermination()
    return query


def run_on_nothing(spark: SparkSession, app: App, scratch: Location) -> StreamingQuery:
    """Run an application once on empty inputs, which shows the layout of its state."""
    from pyspark.errors import AnalysisException

    def source(name: str) -> DataFrame:
        """Return an input of its own: one for all would be joined with itself."""
        scratch.put(f"{EMPTY}/{name}/0.json", b"\n")
        columns = spark.readStream.schema(record_schema(app.inputs[name]))
        return columns.json((scratch / EMPTY / name).uri.hadoop)

    try:
        inputs = {name: one.decode(source(name)) for name, one in app.inputs.items()}
        writer = app.build(inputs).writeStream.outputMode(output_mode(app)).format("noop")
        query = run_once(writer, scratch / "checkpoint")
    except AnalysisException as error:
        raise _fails_on_nothing(app, error) from error
    if (failure := query.exception()) is not None:
        raise _fails_on_nothing(app, failure)
    return query


def record_schema(one: Input | TableInput) -> str:
    """Return the columns that an input decodes, in Spark's words."""
    return one.schema if isinstance(one, TableInput) else RAW_SCHEMA


def _fails_on_nothing(app: App, error: BaseException) -> SavepointsError:
    return SavepointsError(
        f"the program {app.name} fails on empty inputs, so nothing was changed: "
        f"{cause(report(error))}",
        hint="fix the cause and run the command again",
        query=app.name,
    )


def output_mode(app: App) -> str:
    """Return Spark's output mode for what an application writes."""
    modes = {output.mode for output in app.outputs.values()}
    return "complete" if "complete" in modes else "append" if modes == {"append"} else "update"
