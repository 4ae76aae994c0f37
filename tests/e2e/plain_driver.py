"""A driver as users write it: no `App`, no settings, `attach` as the README has it.

Input files have numbers; what must come of them is computed by pandas.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from confluent_kafka import Producer
from deltalake import DeltaTable

import savepoints
from savepoints.handle import Store
from savepoints.model import Savepoint
from savepoints.operations.run.attach import Attached
from tests import merge_once, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_FIRST_FILE = 1_700_000_000


def once(rows: DataFrame, factor: int) -> tuple[DataFrame, str]:
    """Each number once, which is state; the bug is a factor."""
    return rows.dropDuplicates(["n"]).selectExpr("n", f"n * {factor} as v"), "append"


def totals(rows: DataFrame, factor: int) -> tuple[DataFrame, str]:
    """Sums by the last digit, written as a whole."""
    return rows.groupBy((rows.n % 10).alias("n")).agg({"n": "sum"}).selectExpr(
        "n", f"`sum(n)` * {factor} as v"
    ), "complete"


def upserted(rows: DataFrame, factor: int) -> tuple[DataFrame, str]:
    """Sums by the last digit, of which each batch merges what changed."""
    sums, _ = totals(rows, factor)
    return sums, "update"


PROGRAMS: dict[str, Callable[[DataFrame, int], tuple[DataFrame, str]]] = {
    "append": once,
    "complete": totals,
    "upsert": upserted,
}


@dataclass
class Driver:
    """A driver that reads numbers, from files or a topic, and writes a table.

    Attributes:
        spark: The session.
        directory: Where its files are.
        program: Which of the programs.
        checkpoint: Where its checkpoint is now.
        servers: A broker's, where it reads a topic.
        topic: The topic, of one partition; without one it reads files, each a batch.
    """

    spark: SparkSession
    directory: Path
    program: str
    checkpoint: str = ""
    servers: str = ""
    topic: str = ""
    started: list[Any] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        for name in ("in", "store"):
            (self.directory / name).mkdir(exist_ok=True)
        self.checkpoint = self.checkpoint or str(self.directory / "checkpoint-1")

    @property
    def store(self) -> Store:
        return Store.at(str(self.directory / "store")).make()

    @property
    def table(self) -> str:
        return str(self.directory / "numbers")

    def add(self, *numbers: int) -> None:
        number = next(self._numbers)
        path = self.directory / "in" / f"{number}.json"
        text = "".join(json.dumps({"n": one}) + "\n" for one in numbers)
        path.with_suffix(".tmp").write_text(text)
        # Spark reads files by their time; of those of one tick of the clock any may be first.
        os.utime(path.with_suffix(".tmp"), (_FIRST_FILE + number, _FIRST_FILE + number))
        path.with_suffix(".tmp").rename(path)
        if self.topic:
            producer = Producer({"bootstrap.servers": self.servers})
            for one in numbers:
                producer.produce(self.topic, str(one).encode())
            assert producer.flush(30) == 0

    def start(self, factor: int = 1, table: str | None = None) -> Any:
        rows, mode = PROGRAMS[self.program](self._read(), factor)
        writer = rows.writeStream.queryName("numbers").outputMode(mode)
        writer = writer.option("checkpointLocation", self.checkpoint)
        if mode == "update":
            query = writer.foreachBatch(merge_once.into(self.table, "n")).start()
        else:
            query = writer.format("delta").start(table or self.table)
        self.started.append(query)
        return query

    def _read(self) -> DataFrame:
        stream = self.spark.readStream
        if self.topic:
            options = {"kafka.bootstrap.servers": self.servers, "subscribe": self.topic}
            options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "3"}
            options["kafka.fetch.max.wait.ms"] = "10"  # Else a batch of three rows takes a second.
            records = stream.format("kafka").options(**options).load()
            return records.selectExpr("cast(cast(value as string) as long) as n")
        files = stream.schema("n long").option("maxFilesPerTrigger", 1)
        return files.json(str(self.directory / "in"))

    def run(self, factor: int = 1) -> Savepoint:
        """Work off what is there, with `attach`, and return the savepoint of the end."""
        query = self.start(factor)
        attached = self.attach(query)
        query.processAllAvailable()
        taken = attached.stop()
        assert not query.isActive
        assert taken is not None
        return taken

    def run_and_die(self, factor: int, seconds: float) -> None:
        """Run in a process of its own that is killed after a while, and takes savepoints."""
        names = ("directory", "program", "checkpoint", "servers", "topic")
        words = [json.dumps({name: str(getattr(self, name)) for name in names}), str(factor)]
        command = [sys.executable, "-m", "tests.e2e.plain_driver", *words]
        root = Path(__file__).parents[2]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=root, start_new_session=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "runs"
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                # With its JVM, which goes on for a while when Python alone dies.
                os.killpg(process.pid, signal.SIGKILL)

    def attach(self, query: Any, every: str = "1h", **more: Any) -> Attached:
        if self.program == "upsert":
            # What foreachBatch writes is not found by itself.
            more = {"outputs": {"sums": self.table}, **more}
        return savepoints.attach(
            self.spark, query, every=every, store=str(self.store.root), forms=("native",), **more
        )

    def truth(self, factor: int = 1) -> list[tuple[int, int]]:
        """What all input must come to."""
        files = sorted((self.directory / "in").glob("*.json"))
        read = pd.concat([pd.read_json(one, lines=True) for one in files])
        if self.program == "append":
            return [(n, n * factor) for n in sorted(set(read["n"]))]
        sums = read["n"].groupby(read["n"] % 10).sum() * factor
        return [(int(n), int(v)) for n, v in sums.items()]

    def rows(self) -> list[tuple[int, int]]:
        found = DeltaTable(self.table).to_pyarrow_table().to_pylist()
        return sorted((one["n"], one["v"]) for one in found)


def main() -> None:
    """Be a driver that runs until it is killed."""
    given = json.loads(sys.argv[1])
    made = Driver(spark_session.start(), Path(given.pop("directory")), **given)
    query = made.start(int(sys.argv[2]))
    made.attach(query, every="150ms")
    print("runs", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main()
