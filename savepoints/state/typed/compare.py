"""Comparing the same variable of two savepoints row by row, as a Spark job.

A row is identified by its key, and by what else makes it one: the key of the map, the time of the
timer; buffered rows of a join by their contents, and by number where several are equal. A list is
compared as a whole. Where rows lie and in which order does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from savepoints.spark import columns, multiset
from savepoints.spark.multiset import RowDifference, RowDifferenceKind, TypeChange
from savepoints.state.typed import typed
from savepoints.state.typed.typed import VariableKind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

RowChangeKind = Literal["added", "removed", "changed"]

_CHANGES: dict[RowDifferenceKind, RowChangeKind] = {
    "changed": "changed",
    "missing": "removed",
    "extra": "added",
}
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
class VariableDifference:
    """How the rows of a variable differ.

    Attributes:
        added: Rows that only the second savepoint has.
        removed: Rows that only the first one has.
        changed: Rows with equal identity and different other values.
        layout: The types, if they differ; values are then compared as JSON.
        sample: The first rows of each difference, in the order of their keys.
    """

    added: int
    removed: int
    changed: int
    layout: TypeChange | None
    sample: tuple[RowChange, ...]

    @property
    def different_rows(self) -> int:
        """Rows that are not in both savepoints as they are."""
        return self.added + self.removed + self.changed

    @property
    def equal(self) -> bool:
        """Whether no row differs."""
        return not self.different_rows


def compare_variables(
    before: DataFrame | None, after: DataFrame | None, kind: VariableKind, sample: int
) -> VariableDifference:
    """Compare two frames that `typed.read_variable` gave with whole lists."""
    from pyspark.sql import functions as F

    before, after = _present(before, after)
    types = [frame.drop(_PLACE).schema for frame in (before, after)]
    # Names may change without a change of what is meant; Spark itself goes by positions.
    as_text = types[0].names != types[1].names or _nameless(types[0]) != _nameless(types[1])
    if not as_text:
        # What may be null inside of values is no difference, and Spark casts it in one way only.
        wanted = types[0].toNullable()
        after = after.select(*(F.col(one.name).cast(one.dataType) for one in wanted))
    first = _identified(before, kind, as_text=as_text)
    second = _identified(after, kind, as_text=as_text)
    with typed.refusals("one of the savepoints"):
        counts, rows = multiset.collect(multiset.different(first, second), sample)
    texts = [one.simpleString() for one in types]
    return VariableDifference(
        counts["extra"],
        counts["missing"],
        counts["changed"],
        TypeChange(*texts) if texts[0] != texts[1] else None,
        tuple(sorted(map(_row_change, rows), key=lambda one: one.difference)),
    )


def _present(before: DataFrame | None, after: DataFrame | None) -> tuple[DataFrame, DataFrame]:
    """Return a frame without rows in place of one that is not there."""
    if before is None:
        assert after is not None
        return after.limit(0), after
    return before, before.limit(0) if after is None else after


def _identified(frame: DataFrame, kind: VariableKind, *, as_text: bool) -> DataFrame:
    """Return rows as `multiset.different` takes them."""
    from pyspark.sql import functions as F

    identity = _IDENTITY.get(kind, ("key",))
    frame = frame.drop(_PLACE)
    if kind == "side":
        fields = frame.select("value.*").columns
        *joined, matched = (F.col("value")[name].alias(name) for name in fields)
        frame = frame.select("key", F.struct(*joined).alias("value"), matched.alias("matched"))
    rest = [one for one in frame.columns if one not in identity]
    packed = frame.select(
        _packed(frame, [one for one in frame.columns if one in identity], as_text).alias("id"),
        _packed(frame, rest, as_text).alias("content"),
    )
    # Rows become matched and never the opposite, so those that were come first.
    if kind == "side":
        return multiset.numbered(packed, F.desc("content"))
    return packed.withColumn("number", F.lit(1))


def _packed(frame: DataFrame, names: list[str], as_text: bool) -> Column:
    from pyspark.sql import functions as F

    if as_text and names:
        return columns.as_json(F.struct(*names), frame.select(*names).schema)
    types = {name: frame.schema[name].dataType for name in names}
    return multiset.packed(
        {name: columns.comparable(F.col(name), one) for name, one in types.items()}
    )


def _row_change(row: RowDifference) -> RowChange:
    number = {"number": row.number} if row.number > 1 else {}
    return RowChange(_CHANGES[row.difference], row.key | number, row.before, row.after)


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
