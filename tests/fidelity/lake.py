"""Pipelines of real queries over Delta tables, and what each table must have in the end.

Numbers come in files. Queries append, merge by key, read plainly, by the change data feed or with
`skipChangeCommits`. Each batch reads one file, so that a query which begins again has the same
batches. A lake can have a bug: then `silver` writes other numbers.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.outputs.delta.write import write_batch
from savepoints.uri import Uri
from tests.samples import take

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Build = Callable[["Lake"], "DataStreamWriter"]

# The lake that a function of this module builds a query of, as a rollback is told of it.
CURRENT: list[Lake] = []


def __getattr__(name: str) -> Callable[[SparkSession], DataStreamWriter]:
    """Return what builds a query, as `tests.fidelity.lake:write_gold`."""
    if not name.startswith("write_"):
        raise AttributeError(name)
    return lambda _spark: CURRENT[-1].shape[name.removeprefix("write_")](CURRENT[-1])


@dataclass
class Lake:
    """Queries, each with a table of its name, that run when they are told to."""

    spark: SparkSession
    place: Location
    store: Store
    shape: Mapping[str, Build]
    has_bug: bool = False
    checkpoints: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.incoming.mkdir(parents=True)
        self.checkpoints = {name: str(self.place / "checkpoints" / name) for name in self.shape}
        CURRENT.append(self)

    @property
    def ahead(self) -> list[str]:
        """The queries that run while their readers are behind: all but the last."""
        return [*self.shape][:-1]

    @property
    def incoming(self) -> Path:
        return Path(str(self.place / "incoming"))

    def uri(self, table: str) -> str:
        return str(self.place / "tables" / table)

    def give(self, *numbers: int) -> None:
        """Give the first query a file, all of it at once."""
        name = f"{len(list(self.incoming.iterdir())):04}.json"
        written = self.incoming.parent / name
        written.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
        written.rename(self.incoming / name)

    def run(self, *names: str) -> None:
        """Run queries, one after the other, to the end of what there is."""
        for name in names or self.shape:
            writer = self.shape[name](self).option("checkpointLocation", self.checkpoints[name])
            query = writer.trigger(availableNow=True).start()
            assert query.awaitTermination(300)
            assert query.exception() is None

    def save(self, *names: str) -> dict[str, Savepoint]:
        """Take a savepoint of each query."""
        return {
            name: take(
                self.store,
                Location.of(self.checkpoints[name]),
                query=name,
                outputs={name: self.uri(name)},
            )
            for name in names or self.shape
        }

    def follow(self) -> None:
        """Go on with the generations that the store has now."""
        for name in self.shape:
            self.checkpoints[name] = self.store.generations.current(name).checkpoint

    def rows(self, table: str) -> Counter[tuple[Any, ...]]:
        """Return the rows of a table, each as often as it is there."""
        found = DeltaTable(self.uri(table)).to_pyarrow_table().to_pylist()
        return Counter(tuple(row[name] for name in sorted(row)) for row in found)

    def tables(self) -> dict[str, Counter[tuple[Any, ...]]]:
        return {name: self.rows(name) for name in self.shape}

    def stream(self, table: str, **options: object) -> DataFrame:
        reader = self.spark.readStream.format("delta").option("maxFilesPerTrigger", 1)
        return reader.options(**options).load(self.uri(table))  # type: ignore[arg-type]

    def append(self, rows: DataFrame, table: str, mode: str = "append") -> DataStreamWriter:
        # One file a batch, which is one batch of who reads it.
        return (
            rows.coalesce(1)
            .writeStream.format("delta")
            .outputMode(mode)
            .option("path", self.uri(table))
        )

    def merge(self, rows: DataFrame, table: str, key: str) -> DataStreamWriter:
        spark, uri = self.spark, self.uri(table)
        columns = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in rows.schema)
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS delta.`{uri}` ({columns}) USING delta "
            "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        )

        def write(batch: DataFrame, batch_id: int) -> None:
            app = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            assert app is not None
            write_batch(
                batch, Uri.parse(uri), mode="upsert", key=(key,), app=app, batch_id=batch_id
            )

        return rows.writeStream.outputMode("update").foreachBatch(write)


def bronze(lake: Lake) -> DataStreamWriter:
    files = lake.spark.readStream.schema("n long").option("maxFilesPerTrigger", 1)
    return lake.append(files.json(str(lake.incoming)), "bronze")


def _silver(lake: Lake, table: str, condition: str) -> DataStreamWriter:
    wrong = 1000 if lake.has_bug else 1
    rows = lake.stream("bronze").where(condition).selectExpr("n", f"n * 10 * {wrong} AS value")
    return lake.append(rows, table)


def silver(lake: Lake) -> DataStreamWriter:
    """Append."""
    return _silver(lake, "silver", "n % 2 = 0")


def odd(lake: Lake) -> DataStreamWriter:
    """Append the other half."""
    return _silver(lake, "odd", "n % 2 = 1")


def silver_by_key(lake: Lake) -> DataStreamWriter:
    """Merge sums by key, with a change data feed."""
    wrong = 1000 if lake.has_bug else 1
    rows = lake.stream("bronze").selectExpr("n % 3 AS k", f"n * {wrong} AS n")
    return lake.merge(rows.groupBy("k").sum("n").toDF("k", "total"), "silver", "k")


def gold(lake: Lake) -> DataStreamWriter:
    """One sum of all that silver has appended."""
    return lake.append(
        lake.stream("silver").groupBy().sum("value").toDF("total"), "gold", "complete"
    )


def copy(lake: Lake) -> DataStreamWriter:
    """All that silver has appended."""
    return lake.append(lake.stream("silver"), "copy")


def both(lake: Lake) -> DataStreamWriter:
    """One reader of two tables: sums by the last digit of the numbers of both."""
    rows = lake.stream("silver").union(lake.stream("odd")).selectExpr("n % 10 AS k", "value")
    return lake.append(rows.groupBy("k").sum("value").toDF("k", "total"), "both", "complete")


def changes(lake: Lake) -> DataStreamWriter:
    """Sums by key of what the change data feed of silver says, which are its totals again."""
    feed = lake.stream("silver", readChangeFeed="true").selectExpr(
        "k",
        "total * CASE _change_type WHEN 'insert' THEN 1 WHEN 'update_postimage' THEN 1 ELSE -1 END "
        "AS change",
    )
    return lake.append(feed.groupBy("k").sum("change").toDF("k", "total"), "changes", "complete")


def inserts(lake: Lake) -> DataStreamWriter:
    """What commits without updates have inserted into silver."""
    return lake.append(lake.stream("silver", skipChangeCommits="true"), "inserts")


def passed_on(lake: Lake) -> DataStreamWriter:
    """What every commit of silver has rewritten, merged by key."""
    rows = lake.stream("silver", ignoreChanges="true").groupBy("k").agg({"total": "max"})
    return lake.merge(rows.toDF("k", "highest"), "passed_on", "k")


CHAIN: Mapping[str, Build] = {"bronze": bronze, "silver": silver, "gold": gold}
SEVERAL: Mapping[str, Build] = {"bronze": bronze, "silver": silver, "copy": copy, "gold": gold}
DIAMOND: Mapping[str, Build] = {"bronze": bronze, "silver": silver, "odd": odd, "both": both}
FEED: Mapping[str, Build] = {"bronze": bronze, "silver": silver_by_key, "changes": changes}
SKIP: Mapping[str, Build] = {"bronze": bronze, "silver": silver_by_key, "inserts": inserts}
IGNORE: Mapping[str, Build] = {"bronze": bronze, "silver": silver_by_key, "passed_on": passed_on}
SHAPES = {
    "chain": CHAIN, "several": SEVERAL, "diamond": DIAMOND, "feed": FEED, "skip": SKIP,
    "ignore": IGNORE,
}  # fmt: skip
