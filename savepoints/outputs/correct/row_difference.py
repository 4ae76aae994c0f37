"""How the rows that a table should hold differ from those that it holds, as rows to replace.

Rows are compared as often as they occur. Those that differ are found again in the table by the hash
of a row: all rows of an entity with one hash are replaced together, so two rows of one hash do no
harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.spark import columns, multiset
from savepoints.spark.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

HASH, ROW = "hash", "row"


@dataclass(frozen=True)
class Counts:
    """How many rows differ, and of how many entities."""

    rows_removed: int
    rows_added: int
    entities: int
    groups: int


@dataclass(frozen=True)
class Differing:
    """The rows that differ, computed once and kept.

    Attributes:
        frame: `hash` bigint; `row` struct of the table's columns, one of the rows that are alike;
            `have` bigint, how often the table has it; `want` bigint, how often it should;
            `replaced` boolean, whether the rows with this hash are taken out first.
    """

    frame: DataFrame
    entity: str

    def counts(self) -> Counts:
        """Count them, which computes them."""
        from pyspark.sql import functions as F

        more = F.col("want") - F.col("have")
        zero = F.lit(0)
        row = self.frame.agg(
            F.sum(F.greatest(-more, zero)).alias("removed"),
            F.sum(F.greatest(more, zero)).alias("added"),
            F.count_distinct(F.when(more != 0, F.col(ROW)[self.entity])).alias("entities"),
            F.count_distinct(F.when(F.col("replaced"), F.col(HASH))).alias("groups"),
        ).first()
        assert row is not None
        return Counts(*(int(value or 0) for value in row))

    @property
    def removed(self) -> DataFrame:
        """Entity (in the table's type) and `hash` of the rows to take out."""
        from pyspark.sql import functions as F

        rows = _removed(self.frame)
        return rows.select(F.col(ROW)[self.entity].alias("entity"), HASH).distinct()

    @property
    def added(self) -> DataFrame:
        """The rows to put in, in the table's columns, each as often as it is missing then."""
        return _added(self.frame).select(f"{ROW}.*")

    @property
    def changes(self) -> tuple[DataFrame, DataFrame]:
        """The rows that the table loses and those that it gets, each as often, in its columns."""
        from pyspark.sql import functions as F

        def surplus(more: Column) -> DataFrame:
            times = F.array_repeat(ROW, more.cast("int"))
            return self.frame.where(more > 0).select(F.explode(times).alias(ROW)).select(f"{ROW}.*")

        have, want = F.col("have"), F.col("want")
        return surplus(have - want), surplus(want - have)

    def paired(self, key: Sequence[str]) -> DataFrame:
        """Return the rows to take out, each beside the one that takes its place, if one does.

        Args:
            key: Columns by which one row takes the place of another; without them none does.

        Returns:
            `old` struct of the table's columns, null for a row that is put in; `old_hash` bigint,
            likewise; `new` struct of the table's columns, null for a row that is taken out.
        """
        from pyspark.sql import functions as F

        alone = "have + want = 1"
        if not key:
            return self._unpaired(self.frame)
        old = F.when(F.col("have") == 1, F.struct(ROW, HASH))
        new = F.when(F.col("want") == 1, F.struct(ROW))
        by_key = self.frame.where(alone).groupBy(*(F.col(ROW)[name] for name in key))
        lists = by_key.agg(F.collect_list(old).alias("old"), F.collect_list(new).alias("new"))
        pairs = lists.select(F.explode(F.arrays_zip("old", "new")).alias("pair")).select(
            F.col(f"pair.old.{ROW}").alias("old"),
            F.col(f"pair.old.{HASH}").alias("old_hash"),
            F.col(f"pair.new.{ROW}").alias("new"),
        )
        return pairs.unionByName(self._unpaired(self.frame.where(f"NOT ({alone})")))

    def _unpaired(self, frame: DataFrame) -> DataFrame:
        """Return rows as `paired` does, none beside another."""
        from pyspark.sql import functions as F

        no_row = F.lit(None).cast(frame.schema[ROW].dataType)
        out = _removed(frame).dropDuplicates([HASH])
        removed = out.select(
            F.col(ROW).alias("old"), F.col(HASH).alias("old_hash"), no_row.alias("new")
        )
        no_hash = F.lit(None).cast("long")
        added = _added(frame).select(
            no_row.alias("old"), no_hash.alias("old_hash"), F.col(ROW).alias("new")
        )
        return removed.unionByName(added)


def differing(current: DataFrame, desired: DataFrame, entity: str) -> Differing:
    """Compare what a table holds of some entities with what it should hold."""
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    schema = current.schema
    have, want = F.lit(1).cast("long"), F.lit(0).cast("long")
    both = current.select("*", have.alias("__have"), want.alias("__want")).unionByName(
        desired.select("*", want.alias("__have"), have.alias("__want"))
    )
    names = [quoted(one.name) for one in schema]
    rows = both.select(
        row_hash(schema).alias(HASH),
        multiset.whole(schema).alias("same"),
        F.struct(*names).alias(ROW),
        "__have",
        "__want",
    )
    # One exchange for both steps: rows that are alike have one hash.
    counted = (
        rows.repartition(HASH)
        .groupBy(HASH, "same")
        .agg(F.first(ROW).alias(ROW), F.sum("__have").alias("have"), F.sum("__want").alias("want"))
    )
    by_hash = Window.partitionBy(HASH)
    differs = F.max(F.col("have") != F.col("want")).over(by_hash)
    replaced = F.max(F.col("have") > F.col("want")).over(by_hash)
    found = counted.select(
        HASH, ROW, "have", "want", differs.alias("differs"), replaced.alias("replaced")
    )
    return Differing(found.where("differs").drop("differs"), entity)


def _removed(frame: DataFrame) -> DataFrame:
    return frame.where("replaced and have > 0")


def _added(frame: DataFrame) -> DataFrame:
    """Return `row` as often as it is missing once what is replaced was taken out."""
    from pyspark.sql import functions as F

    kept = F.when(F.col("replaced"), F.lit(0)).otherwise(F.col("have"))
    times = (F.col("want") - kept).cast("int")
    return frame.where(times > 0).select(F.explode(F.array_repeat(ROW, times)).alias(ROW))


def row_hash(schema: StructType, prefix: str = "") -> Column:
    """Return a hash of a row: xxHash64 of the columns that Spark can hash."""
    from pyspark.sql import functions as F

    return F.xxhash64(*(F.col(prefix + name) for name in _hashed(schema)))


def row_hash_sql(schema: StructType) -> str:
    """Return `row_hash` as SQL."""
    return f"xxhash64({', '.join(_hashed(schema))})"


def _hashed(schema: StructType) -> Sequence[str]:
    return [quoted(one.name) for one in schema if not columns.has_unordered(one.dataType)]
