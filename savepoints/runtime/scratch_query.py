"""A query in a scratch directory, which runs the batches that are planned in its checkpoint.

It is an application bound to files of records instead of to Kafka, and to Parquet files instead of
to its outputs, so that what it computes of chosen events can be looked at. Which events a batch
reads, and its watermarks and time, is decided in `savepoints.runtime.replay`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from savepoints.checkpoint.logs import file_log, offset_log
from savepoints.errors import IncompatibleError, SavepointsError
from savepoints.io import Location
from savepoints.runtime.app import App
from savepoints.runtime.failure import cause, report
from savepoints.runtime.runner import EMPTY, output_mode, record_schema, run_on_nothing, run_once
from savepoints.spark.session import own_session
from savepoints.spark.versions import SparkVersion
from savepoints.state import executed_plan
from savepoints.state.storage import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# The number of a slice, beside records that it reads and rows that it gave.
REPLAY_BATCH = "replay_slice"
CHECKPOINT = "checkpoint"
RESULTS = "results"
_ENTITY = "entity"
# The log of what a source of files has read, and how the input stands in it.
_FILES_READ = re.compile(r"^sources/([^/]+)/0$")
_INPUT = re.compile(rf'/{EMPTY}/([^/"]+)/0\.json"')
_IN_ORDER = ("event_time", "event_id", "partition", "offset")
# Compiling expressions takes longer than evaluating them for fewer bytes of events.
_WORTH_COMPILING = 64 << 20
# Files are neither split nor read two by one task, so that the rows of an entity stay in order.
_WHOLE_FILES = str(1 << 40)
_CONF = {
    offset_log.CHECKPOINT_FORMAT_KEY: "1",
    file_log.COMPACT_KEY: str(1 << 30),
    "spark.sql.files.maxPartitionBytes": _WHOLE_FILES,
    "spark.sql.files.openCostInBytes": _WHOLE_FILES,
    "spark.sql.streaming.pollingDelay": "0",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # All batches are kept: what they were is compared.
    "spark.sql.streaming.minBatchesToRetain": str(1 << 20),
}


@dataclass(frozen=True)
class ScratchQuery:
    """An application, bound to a scratch directory."""

    spark: SparkSession
    app: App
    place: Location
    partitions: int

    @cached_property
    def session(self) -> SparkSession:
        """A session of its own."""
        session = own_session(self.spark)
        own = {
            offset_log.PARTITIONS_KEY: str(self.partitions),
            # Cheaper; that it renames less safely is nothing to a directory that is thrown away.
            read.FILE_MANAGER_KEY: SparkVersion.of(self.spark.version).file_manager,
        }
        for key, value in {**_CONF, **own}.items():
            session.conf.set(key, value)
        return session

    @property
    def checkpoint(self) -> Location:
        """Its checkpoint."""
        return self.place / CHECKPOINT

    @property
    def schema(self) -> StructType:
        """Columns of what it gives."""
        return self.result.schema

    def events(self, name: str) -> Location:
        """Return where the records of an input lie."""
        return self.place / f"events/{name}"

    def write_events(self, name: str, events: DataFrame) -> None:
        """Write the events of an input, each entity in one file, in order of their time.

        Args:
            events: The columns of `savepoints.sources.events.events`, or of the table that the
                input is with `entity`, `event_time` and `event_id`; and `replay_slice` (int). What
                was written before is kept.
        """
        order = [one for one in _IN_ORDER if one in events.columns]
        ordered = events.repartition(self.partitions, _ENTITY).sortWithinPartitions(
            REPLAY_BATCH, *order
        )
        columns = self.session.createDataFrame([], record_schema(self.app.inputs[name])).columns
        kept = ordered.select(*columns, REPLAY_BATCH)
        written = kept.write.mode("append").partitionBy(REPLAY_BATCH)
        written.parquet(self.events(name).uri.hadoop)

    def run(self, number: int, size: int) -> None:
        """Run the one batch that the offset log has beyond the commit log."""
        target = self.place / f"{RESULTS}/{REPLAY_BATCH}={number}"

        def write(batch: DataFrame, _batch_id: int) -> None:
            batch.write.mode("overwrite").parquet(target.uri.hadoop)

        compiles = size >= _WORTH_COMPILING
        self.session.conf.set("spark.sql.codegen.wholeStage", str(compiles).lower())
        self.session.conf.set(
            "spark.sql.codegen.factoryMode", "FALLBACK" if compiles else "NO_CODEGEN"
        )
        writer = self.result.writeStream.outputMode(output_mode(self.app)).foreachBatch(write)
        failure = run_once(writer, self.checkpoint).exception()
        if failure is not None:
            raise SavepointsError(
                f"the replay of {self.app.name} failed, and nothing was changed: "
                f"{cause(report(failure))}",
                hint="fix the cause and run the command again",
                query=self.app.name,
            )

    def results(self, spark: SparkSession) -> DataFrame:
        """Return the rows that all its batches gave.

        Returns:
            The columns of the result and the batch that gave a row, `replay_slice` (int).
        """
        from pyspark.sql.types import IntegerType, StructField, StructType

        schema = StructType([*self.schema.fields, StructField(REPLAY_BATCH, IntegerType())])
        return spark.read.schema(schema).parquet((self.place / RESULTS).uri.hadoop)

    @cached_property
    def decoded(self) -> dict[str, DataFrame]:
        """What the application reads, by input."""
        return {name: self._read(name) for name in self.app.inputs}

    @cached_property
    def result(self) -> DataFrame:
        """What the application makes of it."""
        return self.app.build(self.decoded)

    def _read(self, name: str) -> DataFrame:
        one = self.app.inputs[name]
        reader = self.session.readStream.schema(record_schema(one))
        # As a pattern: what is a directory to us is no column to it.
        return one.decode(reader.parquet(f"{self.events(name).uri.hadoop}/*"))


@dataclass(frozen=True)
class Probed:
    """What a run on nothing shows of a program.

    Attributes:
        sources: The input that each source is, in the order in which Spark counts them.
        join_keys: By join operator, the columns that it joins by, those of the left side and those
            of the right side with the same position; empty where Spark does not say.
    """

    sources: tuple[str, ...]
    join_keys: Mapping[int, tuple[tuple[str, str], ...]]


def compute(frames: Iterable[DataFrame], functions: str) -> None:
    """Compute frames, of which nothing is kept, to see that a program's functions do not fail."""
    from pyspark.errors import PySparkException

    try:
        for frame in frames:
            frame.write.format("noop").mode("overwrite").save()
    except PySparkException as error:
        raise IncompatibleError(
            f"{functions} failed, and nothing was changed: {cause(report(error))}",
            hint="correct the program and run the command again",
        ) from error


def probe(spark: SparkSession, app: App, scratch: Location) -> Probed:
    """Run an application on nothing, to see which source is which input and what joins go by."""
    query = run_on_nothing(spark, app, scratch)
    sources = inputs_in_order(scratch / CHECKPOINT)
    return Probed(tuple(sources), executed_plan.join_keys(query))


def inputs_in_order(checkpoint: Location) -> list[str]:
    """Return the inputs of a program that was run on nothing, in the order of Spark's sources.

    Each has a directory of its own, and Spark's log of a source of files says which it has read.
    """
    found: dict[str, str] = {}
    for info in checkpoint.list("sources"):
        if (number := _FILES_READ.match(info.path)) is None:
            continue
        if match := _INPUT.search(checkpoint.get(info.path).decode()):
            found[number.group(1)] = match.group(1)
    return [found[one] for one in sorted(found, key=lambda one: (len(one), one))]
