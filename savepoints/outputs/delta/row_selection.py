"""Which rows and columns of a query's result one of its outputs has.

A query has one result. With several outputs each may take its part of it: accepted rows here,
rejected ones there. A part is decided row by row and by the row alone, so that it is the same in
whatever batch, replay or merge a row comes to be.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.errors import UsageError, message_of
from savepoints.spark import private_api
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

    def checked(self, rows: DataFrame, output: str) -> DataFrame:
        """Return the part of a result, of which only the columns are looked at.

        Raises:
            UsageError: If it names columns that the result does not have, or its predicate is none
                of the row alone: a replay or a merge would choose other rows.
        """
        from pyspark.errors import PySparkException

        try:
            part = self.of(rows)
            beside = self.where and private_api.beside_the_row(rows, self.where)
        except PySparkException as error:
            reason = message_of(error).strip().partition("\n")[0]
            raise UsageError(
                f"columns= or where= of the output {output!r} does not match the program's "
                f"result: {reason}",
                hint=f"use only columns of the result: {', '.join(rows.columns)}",
                output=output,
            ) from None
        if beside:
            raise UsageError(
                f"where={self.where!r} of the output {output!r} depends on {beside}, so a "
                "batch that runs again could write different rows",
                hint="in the build function, compute a column from the events, and use it in "
                "where=",
                output=output,
            )
        return part

    def type_of(self, result: str, output: str, session: SparkSession) -> str:
        """Return the type of an output's part, from the result's; Spark's JSON of a row type."""
        from pyspark.sql.types import StructType

        rows = session.createDataFrame([], StructType.fromJson(json.loads(result)))
        return self.checked(rows, output).schema.json()


EVERYTHING = RowSelection()
