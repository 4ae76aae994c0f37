"""Comparing the same variable of two savepoints row by row, as a Spark job.

A row is identified by its key, and by what else makes it one: the key of the map, the time of the
timer; buffered rows of a join by their contents, and by number where several are equal. A list is
compared as a whole. Where rows lie and in which order does not matter.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from savepoints.spark import columns
from savepoints.state.typed import typed
from savepoints.state.typed.typed import VariableKind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

RowChangeKind = Literal["added", "removed", "changed"]

_PLACE = "partition_id"
_IDENTITY = {
    "map": ("key", "map_key"),
    "side": ("key", "value"),
    "timers": ("key", "fires_at_ms"),
}


@dataclass(frozen=True)
class RowChange:
    """A row that differs.

    Attributes:
        difference: How.
        row: The columns that identify it, such as `{"key": {"k": 1}}`.
        before: Its other columns in the first savepoint, None when it was added.
        after: The same in the second one, None when it was removed.
    """

    difference: RowChangeKind
    row: dict[str, Any]
    before: dict[str, Any] | None
    after: dict[str, Any] | None


@dataclass(frozen=True)
class ColumnTypes:
    """The types of a variable's columns, where they differ.

    Attributes:
        before: In the first savepoint.
        after: In the second one.
    """

    before: str
    after: str


@dataclass(frozen=True)
class VariableDifference:
    """How the rows of a variable differ.

    Attributes:
        added: Rows that only the second savepoint has.
        removed: Rows that only the first one has.
        changed: Rows that differ in something else than what identifies them.
        layout: The types, if they differ; values are then compared as JSON.
        sample: The first rows of each difference, in the order of their keys.
    """

    added: int
    removed: int
    changed: int
    layout: ColumnTypes | None
    sample: tuple[RowChange, ...]

    @property
    def equal(self) -> bool:
        """Whether no row differs."""
        return not (self.added or self.removed or self.changed)


def compare_variables(
    before: DataFrame | None, after: DataFrame | None, kind: VariableKind, sample: int
) -> VariableDifference:
    """Compare two frames that `typed.read_variable` gave with whole lists.

    Args:
        before: Of the first savepoint; None when it has no such variable.

    Raises:
        IncompatibleError: If Spark cannot read the state.
    """
    from pyspark.sql import functions as F

    before, after = _present(before, after)
    types = [frame.drop(_PLACE).schema for frame in (before, after)]
    # Names may change without a change of what is meant; Spark itself goes by positions.
    as_text = types[0].names != types[1].names or _nameless(types[0]) != _nameless(types[1])
    if not as_text:
        after = after.select(*(F.col(one.name).cast(one.dataType) for one in types[0]))
    first = _identified(before, kind, as_text=as_text)
    second = _identified(after, kind, as_text=as_text)
    other = second.toDF(*(f"other_{name}" for name in second.columns))
    same_row = F.col("id").eqNullSafe(F.col("other_id")) & (
        F.col("number") == F.col("other_number")
    )
    difference = (
        F.when(F.col("id").isNull(), "added")
        .when(F.col("other_id").isNull(), "removed")
        .when(~F.col("content").eqNullSafe(F.col("other_content")), "changed")
    )
    different = (
        first.join(other, same_row, "full_outer")
        .select(
            difference.alias("difference"),
            F.coalesce("id", "other_id").alias("id"),
            F.coalesce("number", "other_number").alias("number"),
            F.col("content").alias("before"),
            F.col("other_content").alias("after"),
        )
        .where("difference IS NOT NULL")
    )
    with typed.refusals("one of the savepoints"):
        counts, rows = _collected(different, sample)
    texts = [one.simpleString() for one in types]
    return VariableDifference(
        counts.get("added", 0),
        counts.get("removed", 0),
        counts.get("changed", 0),
        ColumnTypes(*texts) if texts[0] != texts[1] else None,
        rows,
    )


def _present(before: DataFrame | None, after: DataFrame | None) -> tuple[DataFrame, DataFrame]:
    """Return a frame without rows in place of one that is not there."""
    if before is None:
        assert after is not None
        return after.limit(0), after
    return before, before.limit(0) if after is None else after


def _identified(frame: DataFrame, kind: VariableKind, *, as_text: bool) -> DataFrame:
    """Return what identifies a row (`id`, never null, and `number`) and the rest (`content`)."""
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    identity = _IDENTITY.get(kind, ("key",))
    frame = frame.drop(_PLACE)
    if kind == "side":
        fields = frame.select("value.*").columns
        *joined, matched = (F.col("value")[name].alias(name) for name in fields)
        frame = frame.select("key", F.struct(*joined).alias("value"), matched.alias("matched"))
    packed = frame.select(
        _packed(frame, [one for one in frame.columns if one in identity], as_text).alias("id"),
        _packed(frame, [one for one in frame.columns if one not in identity], as_text).alias(
            "content"
        ),
    )
    # Rows become matched and never the opposite, so those that were come first.
    equal_rows = Window.partitionBy("id").orderBy(F.desc("content"))
    number = F.row_number().over(equal_rows) if kind == "side" else F.lit(1)
    return packed.withColumn("number", number)


def _packed(frame: DataFrame, names: list[str], as_text: bool) -> Column:
    """Put columns into one that can be compared and is never null."""
    from pyspark.sql import functions as F

    if not names:
        return F.lit("{}")
    packed = frame.select(F.struct(*names).alias("packed"))
    make = columns.as_json if as_text else columns.comparable
    return make(F.struct(*names), packed.schema["packed"].dataType)


def _collected(different: DataFrame, sample: int) -> tuple[dict[str, int], tuple[RowChange, ...]]:
    """Count the differences, and take the first rows of each."""
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    shown = [
        columns.as_json(F.col(one.name), one.dataType).alias(one.name)
        if one.name != "difference" and one.dataType.typeName() == "struct"
        else F.col(one.name)
        for one in different.schema
    ]
    by_difference = Window.partitionBy("difference").orderBy("id", "number")
    different.persist()
    try:
        grouped = different.groupBy("difference").agg(F.count("*").alias("rows")).collect()
        counts = {row["difference"]: int(row["rows"]) for row in grouped}
        first = different.withColumn("place", F.row_number().over(by_difference))
        found = first.where(F.col("place") <= sample).select(*shown, "place")
        rows = found.collect() if counts and sample else []
    finally:
        different.unpersist()
    return counts, tuple(
        RowChange(
            row["difference"],
            json.loads(row["id"]) | ({"number": row["number"]} if row["number"] > 1 else {}),
            row["before"] and json.loads(row["before"]),
            row["after"] and json.loads(row["after"]),
        )
        for row in sorted(rows, key=lambda row: (row["difference"], row["place"]))
    )


def _nameless(data_type: DataType) -> str:
    """Write a type without the names of fields, and without what may be null."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(data_type, StructType):
        return f"({','.join(_nameless(one.dataType) for one in data_type)})"
    if isinstance(data_type, ArrayType):
        return f"[{_nameless(data_type.elementType)}]"
    if isinstance(data_type, MapType):
        return f"<{_nameless(data_type.keyType)},{_nameless(data_type.valueType)}>"
    return data_type.simpleString()
