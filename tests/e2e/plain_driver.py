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


PROGRAMS: dict[str, Callable[[DataFrame, int], tuple[DataFrame, str]]] = {
    "append": once,
    "complete": totals,
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
        writer = rows.writeStream.queryName("numbers").outputMode(mode).format("delta")
        query = writer.option("checkpointLocation", self.checkpoint).start(table or self.table)
        self.started.append(query)
        return query

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
