"""Where a merge keeps the frames that it goes on from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.io import Location
from savepoints.store import scratch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Rows that are kept in a plan instead of in files: those of a merge of few events.
FEW_ROWS = 2_000


@dataclass(frozen=True)
class Workspace:
    """Where one merge keeps what it works with.

    Attributes:
        few: Whether it is about few events, so that its frames may well have few rows.
    """

    spark: SparkSession
    place: Location
    few: bool

    def keep(self, frame: DataFrame, name: str) -> DataFrame:
        """Keep rows where further plans begin: in the plan if they are few, else in Parquet files.

        Where the rows are few, most of the time would go into writing, listing and reading files.
        """
        from savepoints.spark import few_rows

        few = few_rows.in_plan(self.spark, frame, FEW_ROWS) if self.few else None
        return scratch.keep(self.spark, frame, self.place / name) if few is None else few
