"""A driver as users write it: no `App`, no settings, `attach` as the README has it.

Input files have numbers; what must come of them is computed by pandas.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from deltalake import DeltaTable

import savepoints
from savepoints.model import Savepoint
from savepoints.operations.run.attach import Attached
from savepoints.store.root import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    """A driver that reads files of numbers and writes a table."""

    spark: SparkSession
    directory: Path
    program: str
    checkpoint: str = ""
    started: list[Any] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        for name in ("in", "store"):
            (self.directory / name).mkdir()
        self.checkpoint = str(self.directory / "checkpoint-1")

    @property
    def store(self) -> Store:
        return Store.open(str(self.directory / "store"))

    @property
    def table(self) -> str:
        return str(self.directory / "numbers")

    def add(self, *numbers: int) -> None:
        path = self.directory / "in" / f"{next(self._numbers)}.json"
        text = "".join(json.dumps({"n": one}) + "\n" for one in numbers)
        path.with_suffix(".tmp").write_text(text)
        path.with_suffix(".tmp").rename(path)

    def start(self, factor: int = 1, table: str | None = None) -> Any:
        read = self.spark.readStream.schema("n long").option("maxFilesPerTrigger", 1)
        rows, mode = PROGRAMS[self.program](read.json(str(self.directory / "in")), factor)
        writer = rows.writeStream.queryName("numbers").outputMode(mode)
        writer = writer.option("checkpointLocation", self.checkpoint)
        if mode == "update":
            query = writer.foreachBatch(self._merge).start()
        else:
            query = writer.format("delta").start(table or self.table)
        self.started.append(query)
        return query

    def _merge(self, batch: DataFrame, batch_id: int) -> None:
        """Merge a batch once, as docs/operating.md has it: under Spark's id of the query."""
        from delta.tables import DeltaTable as SparkTable

        spark = batch.sparkSession
        query_id = str(spark.sparkContext.getLocalProperty("sql.streaming.queryId"))
        spark.conf.set("spark.databricks.delta.write.txnAppId", query_id)
        spark.conf.set("spark.databricks.delta.write.txnVersion", batch_id)
        try:
            made = SparkTable.createIfNotExists(spark).location(self.table)
            table = made.addColumns(batch.schema).execute()
            merge = table.alias("t").merge(batch.alias("s"), "t.n = s.n")
            merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        finally:
            spark.conf.unset("spark.databricks.delta.write.txnAppId")
            spark.conf.unset("spark.databricks.delta.write.txnVersion")

    def run(self, factor: int = 1) -> Savepoint:
        """Work off what is there, with `attach`, and return the savepoint of the end."""
        query = self.start(factor)
        attached = self.attach(query)
        query.processAllAvailable()
        taken = attached.stop()
        assert not query.isActive
        assert taken is not None
        return taken

    def attach(self, query: Any, every: str = "1h", **more: Any) -> Attached:
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
