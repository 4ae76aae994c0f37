"""A table of data/make_tables.py, unpacked, read and written by Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from savepoints.io import Location
from savepoints.model import OutputVersion
from savepoints.outputs.delta import batch_version
from savepoints.outputs.delta import log as delta_log
from savepoints.outputs.rewind import rewind
from savepoints.outputs.rewind.planned_rewind import Rewind
from savepoints.spark.session import own_session
from savepoints.uri import Uri
from tests.outputs import tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWN, NEXT = "orders/totals/1", "orders/totals/2"
# What Spark knows of each row beside its columns.
_HIDDEN = {"row_tracking": ("_metadata.row_id", "_metadata.row_commit_version")}


class SparkTable:
    """A table of Spark."""

    def __init__(
        self, spark: SparkSession, name: str, place: Location, uri: str | None = None
    ) -> None:
        """Unpack it, unless it is at a URI or will be."""
        self.spark, self.name = spark, name
        self.uri = uri or tables.unpack(name, place / name)
        self.hadoop = Uri.parse(self.uri).hadoop

    @property
    def newest(self) -> int:
        """Its newest version."""
        return int(tables.opened(self.uri).version())

    def keys(self) -> list[tuple[Any, ...]]:
        """Read its rows without what Delta gives out itself."""
        return [row[:2] for row in self.rows()]

    def rows(self, version: int | None = None) -> list[tuple[Any, ...]]:
        """Read it with Spark, in a session that takes the templates for no older than they are."""
        reader = own_session(self.spark).read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        found = reader.load(self.hadoop).selectExpr("*", *_HIDDEN.get(self.name, ()))
        return sorted(map(tuple, found.collect()))

    def at(self, batch: int) -> OutputVersion:
        """Return the version of a batch."""
        return batch_version.version_of_batch("totals", self.uri, (NEXT, OWN), batch)

    def plan(self, batch: int) -> Rewind:
        """Plan to take it back to a batch."""
        return rewind.plan(self.at(batch), "orders/", NEXT)

    def write(self, batch: int, app: str) -> None:
        """Write a batch as Spark's sink does, which drops one that its id has seen."""
        rows = [(batch, "even"), (batch + 100, "odd")]
        frame = self.spark.createDataFrame(rows, "n BIGINT, part STRING").coalesce(1)
        writer = frame.write.format("delta").mode("append")
        writer.option("txnAppId", app).option("txnVersion", batch).save(self.hadoop)

    def sql(self, statement: str) -> None:
        """Run a statement about it."""
        self.spark.sql(statement.format(f"delta.`{self.hadoop}`"))

    def commit(self, version: int) -> list[dict[str, Any]]:
        """Return the actions of a commit."""
        data = delta_log.log_of(self.uri).get(f"{version:020}.json")
        return [json.loads(line) for line in data.decode().splitlines()]
