"""Tables by their names in a session's catalog: `catalog.schema.table`, resolved to where they are.

A savepoint records locations, which can be read without a session and do not change when a name is
given to another table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from savepoints.errors import IncompatibleError, NotFoundError
from savepoints.uri import is_table_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def located(spark: SparkSession, tables: Mapping[str, str]) -> dict[str, str]:
    """Return tables by where they are: names are looked up, URIs stay.

    Raises:
        NotFoundError: If the session's catalog has no table of a name.
        IncompatibleError: If one is no Delta table.
    """
    return {
        name: _location(spark, table) if is_table_name(table) else table
        for name, table in tables.items()
    }


def _location(spark: SparkSession, name: str) -> str:
    from pyspark.errors import AnalysisException

    quoted = ".".join(f"`{part}`" for part in name.split("."))
    try:
        (detail,) = spark.sql(f"DESCRIBE DETAIL {quoted}").select("format", "location").collect()
    except AnalysisException as error:
        raise NotFoundError(
            f"the session has no table {name}: {str(error).splitlines()[0]}",
            hint="check the name and the catalogs of the session: SHOW CATALOGS",
            table=name,
        ) from None
    if detail["format"] != "delta":
        raise IncompatibleError(
            f"the table {name} has the format {detail['format']}, but only Delta tables can be "
            "outputs",
            hint=f"remove {name} from the query's outputs, or write it as a Delta table",
            table=name,
        )
    return str(detail["location"])
