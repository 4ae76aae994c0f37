"""Comparing two versions of an output row by row, as Spark jobs.

A row is identified by its key; without one by all of its columns. Rows that are identified alike
are numbered in the order of what else they hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from savepoints.errors import FileSinkError, IncompatibleError
from savepoints.model import OutputVersion
from savepoints.outputs.delta import column_types
from savepoints.outputs.delta.column_types import Unit
from savepoints.spark import columns, multiset
from savepoints.spark.multiset import RowDifference, TypeChange
from savepoints.spark.session import own_session
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType


@dataclass(frozen=True)
class ColumnChange:
    """How often and by how much a column differs in rows that both tables have.

    Attributes:
        column: Its name.
        rows: Rows in which it differs.
        unit: `number`, or `seconds` for dates and times; None for a type whose changes have no
            size.
        measured: Rows in which the change has a size: not those where one value is null, NaN or
            infinite.
        sum: Sum of the absolute differences, None when none was measured.
        mean: Mean of the absolute differences, None like `sum`.
        max: The largest absolute difference, None like `sum`.
    """

    column: str
    rows: int
    unit: Unit | None
    measured: int
    sum: float | None
    mean: float | None
    max: float | None


@dataclass(frozen=True)
class OutputDifference:
    """How an output differs between two queries.

    Attributes:
        name: The output.
        key: What identifies a row; empty when whole rows were compared.
        before: The first table at the version that was read.
        after: The second one.
        rows_before: Rows of the first table.
        rows_after: Rows of the second one.
        equal: Rows that both have.
        missing: Rows that the second one lacks.
        extra: Rows that only the second one has.
        changed: Rows of one key that differ in another column.
        changes: The columns that differ, the most frequent first.
        columns_added: Columns that only the second one has; their values are not compared.
        columns_dropped: Columns that only the first one has; their values are not compared.
        types: Columns whose types differ. Numbers of two types are compared exactly, the rest
            as JSON.
        sample: The first rows of each difference, in the order of their keys.
    """

    name: str
    key: tuple[str, ...]
    before: OutputVersion
    after: OutputVersion
    rows_before: int
    rows_after: int
    equal: int
    missing: int
    extra: int
    changed: int
    changes: tuple[ColumnChange, ...]
    columns_added: tuple[str, ...]
    columns_dropped: tuple[str, ...]
    types: Mapping[str, TypeChange]
    sample: tuple[RowDifference, ...]

    @property
    def different_rows(self) -> int:
        """Rows that are not in both tables as they are."""
        return self.missing + self.extra + self.changed

    @property
    def share(self) -> float:
        """Part of all rows, of either table, that differ: from 0 to 1."""
        return self.different_rows / ((self.equal + self.different_rows) or 1)

    @property
    def different_columns(self) -> int:
        """Columns that only one table has, or that are of different types."""
        return len(self.columns_added) + len(self.columns_dropped) + len(self.types)


def compare_outputs(
    spark: SparkSession,
    before: OutputVersion,
    after: OutputVersion,
    *,
    key: Sequence[str] = (),
    sample: int = 10,
    own_rows: str | None = None,
) -> OutputDifference:
    """Compare an output of two queries, each at its pinned version.

    Args:
        own_rows: SQL predicate which is true for the rows of the queries alone, for a table that
            others write to as well.
    """
    own = comparing_session(spark)
    frames = read_output(own, before, own_rows), read_output(own, after, own_rows)
    pair = _Pair(before, after, *frames, tuple(key), sample)
    return pair.compared()


def comparing_session(spark: SparkSession) -> SparkSession:
    """Return a session of one's own, in which times without a zone are in UTC."""
    own = own_session(spark)
    own.conf.set("spark.sql.session.timeZone", "UTC")
    return own


def read_output(
    spark: SparkSession, output: OutputVersion, own_rows: str | None = None
) -> DataFrame:
    """Read an output at its pinned version, or those of its rows that match a predicate."""
    if output.kind == "files":
        raise FileSinkError(
            f"{output.uri} is written by Spark's file sink, which keeps no old versions to read",
            hint="only Delta tables can be compared: run the comparison with a copy of the "
            "application that does not have this output",
            uri=output.uri,
        )
    uri = Uri.parse(output.uri).hadoop
    rows = spark.read.format("delta").option("versionAsOf", output.version).load(uri)
    return rows if own_rows is None else rows.where(own_rows)


@dataclass(frozen=True)
class _Pair:
    """Two tables that are being compared."""

    before: OutputVersion
    after: OutputVersion
    first: DataFrame
    second: DataFrame
    key: tuple[str, ...]
    sample: int

    def __post_init__(self) -> None:
        for output, frame in ((self.before, self.first), (self.after, self.second)):
            missing = [name for name in self.key if name not in frame.columns]
            if missing:
                raise IncompatibleError(
                    f"{output.uri} has no column {missing[0]!r}, which is in the key used to "
                    f"compare rows of {output.name}",
                    hint=f"use other columns: --key {output.name}=COLUMN,COLUMN; available "
                    "columns: " + ", ".join(frame.columns),
                    output=output.name,
                    column=missing[0],
                )
        if not self._common:
            raise IncompatibleError(
                f"{self.before.uri} and {self.after.uri} have no columns in common",
                hint="compare other queries: these outputs have the same name but different "
                "content",
                output=self.before.name,
            )

    @property
    def _common(self) -> list[str]:
        return [name for name in self.first.columns if name in self.second.columns]

    @property
    def _contents(self) -> list[str]:
        """Columns that do not identify a row."""
        return [name for name in self._common if name not in self.key] if self.key else []

    def compared(self) -> OutputDifference:
        first, second = (self._identified(one) for one in self._frames)
        sums = [one for n in range(len(self._contents)) for one in self._sums(n)]
        counts, sample = multiset.collect(multiset.different(first, second), self.sample, *sums)
        rows_before, rows_after = self.first.count(), self.second.count()
        changes = [self._change(n, counts) for n in range(len(self._contents))]
        return OutputDifference(
            self.before.name,
            self.key,
            self.before,
            self.after,
            rows_before,
            rows_after,
            rows_before - counts["missing"] - counts["changed"],
            counts["missing"],
            counts["extra"],
            counts["changed"],
            tuple(sorted((one for one in changes if one.rows), key=lambda one: -one.rows)),
            tuple(name for name in self.second.columns if name not in self._common),
            tuple(name for name in self.first.columns if name not in self._common),
            {
                name: TypeChange(*(_type(one, name).simpleString() for one in self._frames))
                for name in self._common
                if not column_types.alike(*(_type(one, name) for one in self._frames))
            },
            tuple(sample),
        )

    @property
    def _frames(self) -> tuple[DataFrame, DataFrame]:
        return self.first, self.second

    def _identified(self, frame: DataFrame) -> DataFrame:
        """Return rows as `multiset.different` takes them."""
        from pyspark.sql import functions as F

        other = self.second if frame is self.first else self.first

        def packed(names: Sequence[str]) -> Column:
            types = {name: (_type(frame, name), _type(other, name)) for name in names}
            return multiset.packed({name: _value(name, *pair) for name, pair in types.items()})

        rows = frame.select(
            packed(list(self.key) or self._common).alias("id"),
            packed(self._contents).alias("content"),
        )
        return multiset.numbered(rows, F.col("content"))

    def _sums(self, n: int) -> list[Column]:
        """Aggregate the changes of a column."""
        from pyspark.sql import functions as F

        name = self._contents[n]
        before, after = F.col("before")[name], F.col("after")[name]
        changed = (F.col("difference") == "changed") & ~before.eqNullSafe(after)
        found = [F.count_if(changed).alias(f"rows{n}")]
        size = column_types.size(before, after, self._compared_type(n))
        if size is not None:
            finite = ~F.isnan(size) & (size != F.lit(float("inf")))
            size = F.when(changed & finite, size)
            found += [F.count(size).alias(f"measured{n}"), F.sum(size).alias(f"sum{n}")]
            found += [F.max(size).alias(f"max{n}")]
        return found

    def _compared_type(self, n: int) -> DataType:
        from pyspark.sql.types import StringType

        first, second = (_type(one, self._contents[n]) for one in self._frames)
        return (
            first
            if column_types.alike(first, second)
            else column_types.common_number(first, second) or StringType()
        )

    def _change(self, n: int, sums: dict[str, Any]) -> ColumnChange:
        measured, total = sums.get(f"measured{n}", 0), sums.get(f"sum{n}")
        unit = column_types.unit(self._compared_type(n))
        mean = None if total is None else total / measured
        return ColumnChange(
            self._contents[n], sums[f"rows{n}"], unit, measured, total, mean, sums.get(f"max{n}")
        )


def _value(name: str, data_type: DataType, other: DataType) -> Column:
    """Return a column in a form in which it can be compared with one of another type."""
    from pyspark.sql import functions as F

    column = F.col(columns.quoted(name))
    if column_types.alike(data_type, other):
        return columns.comparable(column, data_type)
    number = column_types.as_number(columns.quoted(name), data_type, other)
    if number is not None:
        return number
    return F.to_json(F.struct(column.alias("value")), dict(columns.JSON_OPTIONS))


def _type(frame: DataFrame, name: str) -> DataType:
    return frame.schema[name].dataType
