"""Drivers as users write them, which walks start, kill and start again.

Run as a program, it is a service as docs/your-driver.md has it: it asks the store for the
checkpoint that is current, attaches, and ends at SIGTERM with a savepoint.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import savepoints
from savepoints.model import FORMS
from savepoints.operations.run.attach import Attached
from savepoints.runtime.app import App
from tests import merge_once, spark_session
from tests.e2e import late_apps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENT = "k string, n long"


@dataclass(frozen=True)
class Job:
    """A query of a driver.

    Attributes:
        program: Which of `PROGRAMS`.
        directory: Where its input is.
        place: Where its store, its checkpoints and its table are; below the directory or on S3.
        query: Its name, and its table's.
        servers: A broker's, where it reads a topic.
        topic: The topic.
        every: How often it takes a savepoint.
        factor: By what it multiplies numbers, if it writes a topic.
    """

    program: str
    directory: str
    place: str
    query: str
    servers: str = ""
    topic: str = ""
    every: str = "700ms"
    factor: int = 1

    @property
    def table(self) -> str:
        """Where it writes."""
        return f"{self.place}/tables/{self.query}"

    @property
    def first_checkpoint(self) -> str:
        """Where its first generation is."""
        return f"{self.place}/checkpoints/{self.query}/1"

    def start(self, spark: SparkSession) -> tuple[Any, Attached]:
        """Start the query where it continues, and attach."""
        store = savepoints.Store.at(f"{self.place}/store").make()
        known = self.query in store.queries()
        checkpoint = store.query(self.query).generation.checkpoint if known else ""
        rows, sink = PROGRAMS[self.program](spark, self)
        writer = rows.writeStream.queryName(self.query)
        writer = writer.option("checkpointLocation", checkpoint or self.first_checkpoint)
        outputs, topics = None, None
        if sink == "kafka":
            topics = [self.topic]
            writer = writer.option("kafka.bootstrap.servers", self.servers)
            query = writer.option("topic", self.topic).format(sink).start()
        elif isinstance(sink, str):
            query = writer.format(sink).start(self.table)
        else:
            outputs = {"out": self.table}
            query = writer.outputMode("update").foreachBatch(sink).start()
        # Rows take most of a walk's time; one program has them, written beside its batches.
        forms = FORMS if self.program == "once" else FORMS[:1]
        attached = savepoints.attach(
            spark, query, every=self.every, store=store, outputs=outputs, forms=forms,
            output_topics=topics,
        )  # fmt: skip
        return query, attached


def _read(spark: SparkSession, job: Job) -> tuple[DataFrame, DataFrame]:
    files = spark.readStream.schema(EVENT).json(f"{job.directory}/in")
    return files, spark.readStream.format("delta").load(f"{job.directory}/tables/in")


def _pairs(spark: SparkSession, job: Job) -> tuple[DataFrame, str]:
    """Join files and a table, both of which its state keeps."""
    left, right = _read(spark, job)
    return left.join(right.withColumnRenamed("n", "m"), "k"), "delta"


def _once(spark: SparkSession, job: Job) -> tuple[DataFrame, str]:
    """Write each event of files and a table once, as files."""
    files, table = _read(spark, job)
    return files.union(table).dropDuplicates(), "parquet"


class Sum(StatefulProcessor):
    """Keeps the sum of a key."""

    def init(self, handle: Any) -> None:
        """Declare the state variable."""
        self.total: Any = handle.getValueState("total", "s long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        """Add the rows."""
        before = self.total.get()[0] if self.total.exists() else 0
        self.total.update((before + sum(row.n for row in rows),))
        yield Row(k=key[0], s=self.total.get()[0])

    def close(self) -> None:
        """Nothing is open."""


def _sums(spark: SparkSession, job: Job) -> tuple[DataFrame, Callable[[Any, int], None]]:
    """Sum a topic by key into a table that each batch merges into."""
    events = _records(spark, job).select(
        F.from_json(F.col("value").cast("string"), EVENT).alias("e")
    )
    sums = events.select("e.*").groupBy("k")
    summed = sums.transformWithState(Sum(), "k string, s long", "update", "none")

    return summed, merge_once.into(job.table, "k")


def _records(spark: SparkSession, job: Job) -> DataFrame:
    options = {"kafka.bootstrap.servers": job.servers, "subscribe": job.topic}
    options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "5"}
    options["kafka.fetch.max.wait.ms"] = "10"  # Else a batch of few rows takes a second.
    return spark.readStream.format("kafka").options(**options).load()


def _app(spark: SparkSession, job: Job) -> tuple[DataFrame, Any]:
    """Do what an App of the query's name does, as one who knows nothing of Apps."""
    app: App = getattr(late_apps, job.query)
    records = _records(spark, job)
    rows = app.build({name: one.decode(records) for name, one in app.inputs.items()})
    appends = app.outputs["out"].mode == "append"
    return rows, "delta" if appends else merge_once.into(job.table, "k")


def _events(spark: SparkSession, job: Job) -> tuple[DataFrame, str]:
    """Write events from files, a file a batch, into a topic that an App reads."""
    columns = f"{late_apps.FIELDS}, at_ms long"
    files = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1)
    events = files.json(f"{job.directory}/in").withColumn("n", F.col("n") * job.factor)
    return events.select(F.col("k").alias("key"), F.to_json(F.struct("*")).alias("value")), "kafka"


PROGRAMS: dict[str, Callable[[SparkSession, Job], tuple[DataFrame, Any]]] = {
    "pairs": _pairs,
    "once": _once,
    "sums": _sums,
    "app": _app,
    "events": _events,
}


def words(job: Job) -> list[str]:
    """Return the command that runs a job in a process of its own."""
    return [sys.executable, "-m", "tests.fidelity.driver_job", json.dumps(asdict(job))]


def main() -> None:
    """Be a service until it is told to end, or killed."""
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    spark = spark_session.start()
    spark.conf.set("spark.sql.pyspark.jvmStacktrace.enabled", "true")  # Or causes are not told.
    query, attached = Job(**json.loads(sys.argv[1])).start(spark)
    try:
        while not ending.is_set() and not query.awaitTermination(1):
            pass
    finally:
        attached.stop()


if __name__ == "__main__":
    main()
