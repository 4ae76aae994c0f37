"""Figures of one's own about the outputs of a query, given as SQL over them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from savepoints.errors import UsageError
from savepoints.model import OutputVersion
from savepoints.outputs.compare import by_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What a metric may be; None when SQL gives null, such as the mean of nothing.
Figure = int | float | Decimal | None


def measure(
    spark: SparkSession, outputs: Sequence[OutputVersion], metrics: Mapping[str, str]
) -> dict[str, Figure]:
    """Evaluate metrics over the outputs at their pinned versions.

    Args:
        spark: Any session; the views are made in one of its own.
        metrics: By name, a query that gives one row with one number.

    Raises:
        UsageError: If one gives something else, or two outputs have the same name.
    """
    if not metrics:
        return {}
    refuse_ambiguous([output.name for output in outputs])
    own = by_key.comparing_session(spark)
    for output in outputs:
        by_key.read_output(own, output).createOrReplaceTempView(f"`{output.name}`")
    names = [output.name for output in outputs]
    return {name: _figure(own, name, sql, names) for name, sql in metrics.items()}


def refuse_ambiguous(outputs: Sequence[str]) -> None:
    """Refuse outputs that SQL cannot tell apart: it compares names without case."""
    names = [one.lower() for one in outputs]
    twice = sorted(one for one in names if names.count(one) > 1)
    if twice:
        both = [one for one in outputs if one.lower() == twice[0]]
        raise UsageError(
            f"SQL knows several outputs as {twice[0]} ({', '.join(both)}), so what reads it is "
            "ambiguous",
            hint="rename one of them in its application (SQL compares names without case, and "
            "puts live_ before those of a live query), or remove the SQL from [compare.metrics] "
            "and [promote.checks]",
            output=both[0],
        )


def _figure(spark: SparkSession, name: str, sql: str, outputs: Sequence[str]) -> Figure:
    from pyspark.errors import PySparkException

    query = sql.strip().rstrip(";")
    try:
        # As a subquery it can only read; a comment at its end must not swallow the parenthesis.
        rows = _shown(spark.sql(f"SELECT * FROM (\n{query}\n)").limit(2)).collect()  # noqa: S608
    except PySparkException as error:
        raise UsageError(
            f"the metric {name} cannot be computed: {str(error).strip().partition(chr(10))[0]}",
            hint=f"correct the SQL, which can query {', '.join(outputs) or 'the outputs by name'}; "
            f"it was: {sql}",
            metric=name,
        ) from None
    values = [tuple(row) for row in rows]
    if len(values) != 1 or len(values[0]) != 1 or not _is_figure(values[0][0]):
        raise UsageError(
            f"the metric {name} returned {_described(values)}, but one number is needed",
            hint="write, for example, SELECT sum(total) FROM totals",
            metric=name,
        )
    figure: Figure = values[0][0]
    return figure


def _shown(frame: DataFrame) -> DataFrame:
    """Return it with everything but numbers as text: Python has no time after the year 9999."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import NumericType

    numbered = frame.toDF(*map(str, range(len(frame.columns))))
    return numbered.select(
        *(
            F.col(one.name)
            if isinstance(one.dataType, NumericType)
            else F.col(one.name).cast("string")
            for one in numbered.schema
        )
    )


def _is_figure(value: object) -> bool:
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return math.isfinite(value)
    return value is None


def _described(values: Sequence[tuple[object, ...]]) -> str:
    if len(values) != 1:
        return "no rows" if not values else "several rows"
    if len(values[0]) != 1:
        return f"{len(values[0])} columns"
    return f"{values[0][0]!r}"
