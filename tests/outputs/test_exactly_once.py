"""Batches that are taken back are written again exactly once, whatever the sink, by Spark itself.

Each program runs over the same files, one a batch; then state goes back to batch 1 as a restore
does, the output goes back or does not, and a corrected program runs to the end.
"""

from __future__ import annotations

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.io import Location
from savepoints.model import OutputVersion
from savepoints.outputs.delta import batch_version
from savepoints.outputs.delta import log as delta_log
from savepoints.outputs.delta.batch_version import open_table
from savepoints.outputs.delta.write import write_batch
from savepoints.outputs.rewind import rewind
from savepoints.outputs.rewind.planned_rewind import Rewind
from savepoints.uri import Uri
from tests import draw
from tests.outputs import tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = [pytest.mark.spark, pytest.mark.drawn(8)]

BACK_TO = 1
WRONG, RIGHT = "wrong", "right"
# What each program writes into the output: the number, and what it said.
Rows = list[tuple[int, str]]


def rows(*batches: int, said: str | None = None) -> Rows:
    """Return the rows of batches; by default right after the one that was gone back to."""
    return [
        (10 * batch + i, said or (WRONG if batch <= BACK_TO else RIGHT))
        for batch in batches
        for i in (0, 1)
    ]


class Program(ABC):
    """A query without state, and what it writes to."""

    rows_of_ours: str | None = None

    def __init__(self, spark: SparkSession, at: Path) -> None:
        """Put everything below a directory."""
        self.spark, self.at = spark, at
        self.table, self.checkpoint = at / "table", at / "checkpoint"
        at.mkdir()

    @abstractmethod
    def writer(self, frame: DataFrame) -> DataStreamWriter:
        """Return what writes the rows, without checkpoint."""

    @property
    def app_id(self) -> str:
        """The application id under which it writes."""
        return str(json.loads((self.checkpoint / "metadata").read_text())["id"])

    def run(self, files: Iterable[int], said: str) -> None:
        """Process the files that are new, each in a batch."""
        from pyspark.sql import functions as sql

        source = self.at / "source"
        source.mkdir(exist_ok=True)
        for number in files:
            path = source / f"{number}.json"
            path.write_text("".join(json.dumps({"n": 10 * number + i}) + "\n" for i in (0, 1)))
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        read = self.spark.readStream.schema("n INT").option("maxFilesPerTrigger", 1)
        frame = read.json(str(source)).withColumn("said", sql.lit(said))
        writer = self.writer(frame).option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()

    def cut_back(self) -> None:
        """Take the checkpoint back to a batch, as a restore of a query without state does."""
        for directory in ("offsets", "commits", "sources/0"):
            for path in (self.checkpoint / directory).iterdir():
                number = path.name.removeprefix(".").removesuffix(".crc")
                if number.isdigit() and int(number) > BACK_TO:
                    path.unlink()

    def read(self) -> Rows:
        """Read the output with Spark."""
        self.spark.catalog.clearCache()
        found = self.spark.read.format("delta").load(str(self.table)).collect()
        return sorted((row["n"], row["said"]) for row in found)

    def version(self) -> OutputVersion:
        """Return the version of the batch that it goes back to."""
        return batch_version.version_of_batch("table", str(self.table), (self.app_id,), BACK_TO)

    def take_back(self) -> Rewind:
        """Take the output back."""
        plan = rewind.plan(self.version(), "orders/", self.app_id, self.rows_of_ours)
        rewind.execute(plan, "op-20261121-101530-aaaaaa")
        return plan


class DeltaSink(Program):
    """Spark's `format("delta")`, whose application id is the query's."""

    def writer(self, frame: DataFrame) -> DataStreamWriter:
        return frame.writeStream.format("delta").option("path", str(self.table))


class Appending(Program):
    """`foreachBatch` with an id of the user's own."""

    app_id = "shop-rows"

    def writer(self, frame: DataFrame) -> DataStreamWriter:
        def write(batch: DataFrame, number: int) -> None:
            writer = batch.write.format("delta").mode("append")
            writer.option("txnAppId", self.app_id).option("txnVersion", number).save(
                str(self.table)
            )

        return frame.writeStream.foreachBatch(write)


class Merging(Program):
    """`foreachBatch` with MERGE, whose transaction id stands in the session."""

    app_id = "shop-merged"

    def writer(self, frame: DataFrame) -> DataStreamWriter:
        uri = Uri.parse(str(self.table))
        if not self.table.exists():
            self.spark.sql(f"CREATE TABLE delta.`{self.table}` (n INT, said STRING) USING delta")

        def write(batch: DataFrame, number: int) -> None:
            write_batch(batch, uri, mode="upsert", key=("n",), app=self.app_id, batch_id=number)

        return frame.writeStream.foreachBatch(write)


@pytest.mark.parametrize("kind", draw.some(1, [DeltaSink, Appending, Merging], "delta sink"))
def test_trap_the_delta_sink_skips_what_its_transaction_ids_have_seen(
    spark: SparkSession, tmp_path: Path, kind: type[Program]
) -> None:
    """RESTORE alone keeps them (delta-io/delta#1813): the rerun of batch 2 is dropped."""
    program = kind(spark, tmp_path / "program")
    program.run(range(3), WRONG)
    assert program.read() == rows(0, 1, 2, said=WRONG)
    version = program.version()
    program.cut_back()
    before = tmp_path / "before"
    shutil.copytree(program.at, before)

    open_table(str(program.table)).restore(version.version)
    program.run([3], RIGHT)
    assert program.read() == rows(0, 1, 3), "batch 2 is missing"

    shutil.rmtree(program.at)
    shutil.copytree(before, program.at)
    program.take_back()
    program.run([3], RIGHT)
    assert program.read() == rows(0, 1, 2, 3)


class FileSink(Program):
    """Spark's `format("parquet")`."""

    def writer(self, frame: DataFrame) -> DataStreamWriter:
        return frame.writeStream.format("parquet").option("path", str(self.table))

    def read(self) -> Rows:
        found = self.spark.read.parquet(str(self.table)).collect()
        return sorted((row["n"], row["said"]) for row in found)


def test_trap_the_file_sink_skips_batches_up_to_its_newest_entry(
    spark: SparkSession, tmp_path: Path
) -> None:
    """With an entry that was compacted in between, and each state on the way read by Spark."""
    program = FileSink(spark, tmp_path / "program")
    interval = "spark.sql.streaming.fileSink.log.compactInterval"
    spark.conf.set(interval, "3")
    try:
        program.run(range(4), WRONG)
        log = program.table / "_spark_metadata"
        assert {"0", "1", "2.compact", "3"} <= {path.name for path in log.iterdir()}
        program.cut_back()
        program.run([], RIGHT)
        assert program.read() == rows(0, 1, 2, 3, said=WRONG), "batches 2 and 3 were dropped"

        program.cut_back()
        plan = program.take_back()
        assert plan.newest == 3
        assert program.read() == rows(0, 1)
        rewind.undo(plan, "op-20261121-101530-aaaaaa")
        assert program.read() == rows(0, 1, 2, 3, said=WRONG)

        rewind.execute(plan, "op-20261121-101530-aaaaaa")
        program.run([4, 5], RIGHT)
        assert program.read() == rows(0, 1, 2, 3, 4, 5)
        assert (log / "5.compact").exists(), "compacted again, on top of what was set aside"
    finally:
        spark.conf.unset(interval)


class Shared(DeltaSink):
    """One of two queries that write one table."""

    def __init__(self, spark: SparkSession, at: Path, table: Path, source: str) -> None:
        super().__init__(spark, at)
        self.table, self.source = table, source
        self.rows_of_ours = f"source = '{source}'"

    def writer(self, frame: DataFrame) -> DataStreamWriter:
        from pyspark.sql import functions as sql

        return super().writer(frame.withColumn("source", sql.lit(self.source)))

    def read(self) -> Rows:
        found = self.spark.read.format("delta").load(str(self.table))
        return sorted(
            (row["n"], row["said"]) for row in found.where(f"source = '{self.source}'").collect()
        )


@draw.taking_turns("two queries in a table", "readers of a table")
def test_trap_two_queries_in_one_table_only_one_of_which_goes_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop, site = (
        Shared(spark, tmp_path / source, tmp_path / "table", source) for source in ("shop", "site")
    )
    shop.run(range(2), WRONG)
    site.run([0], RIGHT)
    shop.run([2], WRONG)
    site.run([1], RIGHT)
    shop.cut_back()

    shop.take_back()
    assert shop.read() == rows(0, 1)
    shop.run([3], RIGHT)

    assert shop.read() == rows(0, 1, 2, 3)
    assert site.read() == rows(0, 1, said=RIGHT)
    site.run([2], RIGHT)
    assert site.read() == rows(0, 1, 2, said=RIGHT)


@draw.taking_turns("readers of a table", "two queries in a table")
def test_streaming_readers_see_what_the_plan_says(spark: SparkSession, tmp_path: Path) -> None:
    """They fail at the rewind, pass over it with skipChangeCommits, and the feed has deletes."""
    from pyspark.errors import StreamingQueryException

    table = tmp_path / "table"
    spark.sql(
        f"CREATE TABLE delta.`{table}` (n INT) USING delta "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    for batch in range(3):
        frame = spark.createDataFrame([(batch,)], "n INT").coalesce(1)
        writer = frame.write.format("delta").mode("append")
        writer.option("txnAppId", "shop").option("txnVersion", batch).save(str(table))

    def follow(name: str, **options: str) -> None:
        reader = spark.readStream.format("delta").options(**options).load(str(table))
        writer = reader.writeStream.format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / name)).start().awaitTermination()

    follow("plain")
    shutil.copytree(tmp_path / "plain", tmp_path / "skipping")
    output = batch_version.version_of_batch("table", str(table), ("shop",), 1)
    version = rewind.execute(rewind.plan(output, "orders/", "shop"), "op-20261121-101530-aaaaaa")

    with pytest.raises(StreamingQueryException, match="DELTA_SOURCE"):
        follow("plain")
    follow("skipping", skipChangeCommits="true")
    feed = spark.read.format("delta").option("readChangeFeed", "true")
    changes = feed.option("startingVersion", version).load(str(table)).collect()
    assert [(row["n"], row["_change_type"]) for row in changes] == [(2, "delete")]
    log = Location.of(str(table)) / "_delta_log"
    assert delta_log.parse_commit(version, log.get(f"{version:020}.json")).back_to == 2


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name", ["deletion_vectors", "column_mapping", "generated", "change_data_feed"]
)
def test_spark_reads_tables_of_which_own_rows_were_taken_back(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """Also with the features that change how rows are written; Spark goes on writing there."""
    uri = tables.unpack(name, Location.of(str(tmp_path / name)))
    reader = spark.read.format("delta")

    def read() -> list[tuple[int, str]]:
        return sorted((row["n"], row["part"]) for row in reader.load(uri).collect())

    before = read()
    plan = rewind.plan_empty("table", uri, "orders/", (), "orders/totals/2", "part = 'odd'")
    rewind.execute(plan, "op-1")
    assert read() == [row for row in before if row[1] == "even"]
    version = rewind.undo(plan, "op-1")
    assert read() == before

    frame = spark.createDataFrame([(500, "odd")], "n BIGINT, part STRING").coalesce(1)
    frame.write.format("delta").mode("append").save(uri)
    assert read() == sorted([*before, (500, "odd")])
    if name == "generated":
        assert all(row["twice"] == 2 * row["n"] for row in reader.load(uri).collect())
    if name == "change_data_feed":
        feed = spark.read.format("delta").option("readChangeFeed", "true")
        changes = feed.option("startingVersion", version).option("endingVersion", version)
        found = sorted((row["n"], row["_change_type"]) for row in changes.load(uri).collect())
        assert found == [(n, "insert") for n, part in before if part == "odd"]
