"""Functions of Python over columns whose values pass through Arrow."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from savepoints.errors import IncompatibleError
from savepoints.spark.versions import SparkVersion

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


def arrow_function(function: Callable[..., Any], returns: DataType | str) -> Callable[..., Column]:
    """Return a function over columns that gets and returns arrays of Arrow, of equal lengths.

    Raises:
        IncompatibleError: If this version of Spark has none.
    """
    from pyspark import __version__

    version = SparkVersion.of(__version__)
    if not version.has_arrow_functions:
        raise IncompatibleError(
            f"Spark {version} cannot change state values, because it has no Arrow UDFs",
            hint="run the command where Spark 4.1 or 4.2 is installed",
            spark_version=__version__,
        )
    from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf

    with warnings.catch_warnings():
        # It asks for type hints, which only a function of known columns can have.
        warnings.filterwarnings("ignore", "It is preferred to specify type hints", UserWarning)
        made = arrow_udf(function, returns, ArrowUDFType.SCALAR)
    return cast("Callable[..., Column]", made)
