"""Which rows and columns of a query's result one of its outputs has.

A query has one result. With several outputs each may take its part of it: accepted rows here,
rejected ones there. A part is decided row by row and by the row alone, so that it is the same in
whatever batch, replay or merge a row comes to be.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.spark.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class RowSelection:
    """A part of a result.

    Attributes:
        where: SQL predicate over the columns of the result; rows for which it is false or null are
            left out. None for all rows.
        columns: Names of columns, in the order of the table; empty for all.
    """

    where: str | None = None
    columns: tuple[str, ...] = ()

    def of(self, rows: DataFrame, *, beside: tuple[str, ...] = ()) -> DataFrame:
        """Return the part of a result.

        Args:
            beside: Columns that are not of the program, and stay.
        """
        found = rows if self.where is None else rows.where(self.where)
        return found.select(*map(quoted, (*self.columns, *beside))) if self.columns else found

    def type_of(self, result: str, session: SparkSession) -> str:
        """Return the type of the part of a result, both as Spark's JSON of a row type."""
        from pyspark.sql.types import StructType

        rows = session.createDataFrame([], StructType.fromJson(json.loads(result)))
        return self.of(rows).schema.json()


EVERYTHING = RowSelection()
