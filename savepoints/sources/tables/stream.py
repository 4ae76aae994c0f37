"""A Delta table read as a stream: what another query writes, for example."""

from __future__ import annotations

from typing import TYPE_CHECKING

from savepoints.errors import IncompatibleError, NotFoundError
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, uri: str, schema: str, *, changes: bool = False) -> DataFrame:
    """Read columns of a table, from its beginning, then commit by commit.

    Args:
        schema: The columns in Spark's words; those that the change data feed adds among them.
        changes: Read the change data feed.
    """
    from pyspark.errors import AnalysisException

    reader = spark.readStream.format("delta")
    if changes:
        reader = reader.option("readChangeFeed", "true")
    try:
        found = reader.load(Uri.parse(uri).hadoop)
    except AnalysisException as error:
        raise NotFoundError(
            f"the table {uri} cannot be read: {str(error).splitlines()[0]}",
            hint="check the URI of the table; if nothing has been written to it yet, first run the "
            "query that writes to it: savepoints run NAME --until latest",
            uri=uri,
        ) from None
    wanted = spark.createDataFrame([], schema)
    has = dict(found.dtypes)
    if wrong := [
        f"{name} {kind} (it has {has.get(name, 'no such column')})"
        for name, kind in wanted.dtypes
        if has.get(name) != kind
    ]:
        raise IncompatibleError(
            f"columns that the program reads are missing from {uri} or have a different type "
            f"there: {', '.join(wrong)}",
            hint="correct columns=… in the TableInput, or the program that writes the table",
            uri=uri,
        )
    return found.select(*wanted.columns)
