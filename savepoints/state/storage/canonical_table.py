"""Write a savepoint's canonical Delta table, and sum up each operator's state."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from savepoints.checkpoint.cut import CutFiles
from savepoints.checkpoint.state.operators import Operator, native_only
from savepoints.errors import PlacementError, SavepointsError
from savepoints.io import Location
from savepoints.model import OperatorState
from savepoints.state.storage import new_table, read, row_files
from savepoints.state.storage.read import RawStore
from savepoints.texts import count_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PARTITIONED_BY = ("operator_id", "store_name")

_STRAY = "state rows"
_WORD = 1 << 64
# A column: how many elements a list has before this one.
_PLACE = "place"


@dataclass(frozen=True)
class Contents:
    """Totals of an operator's canonical rows.

    Attributes:
        content_hash: Independent of the number of partitions, in hex: two sums, modulo 2**64, of
            differently seeded xxHash64 over (store, column family, key, value). Where lists have
            several elements, that is, where rows have the same key, two more follow after `-`:
            sums, over all elements but the first, of xxHash64 over (the hash before, the number of
            elements before). Savepoints of earlier versions lack those.
    """

    rows: int
    state_bytes: int
    content_hash: str


def export(
    spark: SparkSession,
    checkpoint: Location,
    files: CutFiles,
    target: Location,
    tasks: int | None = None,
) -> dict[int, Contents]:
    """Write all state that has a canonical form as one Delta table, in one commit.

    The table is partitioned by `operator_id` and `store_name`. Its `key` has one field per
    operator, `op0`, `op1`, …, because their keys have different types: `key.op0.customer_id`.

    Args:
        checkpoint: A checkpoint that nobody writes to: a mounted savepoint, not a live query's.
        tasks: How many tasks write at the same time, each one state partition after the other; one
            for each partition by default.

    Returns:
        What was written, by operator id.
    """
    own = read.reading_session(spark, files.cut.checkpoint_format)
    if not (operators := _canonical(files)):
        return {}
    stores = {one: _stores(own, checkpoint, files, one) for one in operators}
    every = [*chain.from_iterable(stores.values())]
    if all(map(row_files.fits, every)):
        return _by_columns(every, target, tasks)
    frames, observed = {}, {}
    for operator, its in stores.items():
        frames[operator], observed[operator] = _observed(its)
    rows = _together(frames.items())
    written = new_table.write(
        rows if tasks is None else rows.coalesce(tasks), target, PARTITIONED_BY
    )
    found = {one.operator_id: _checked(one, observed[one].get) for one in observed}
    new_table.require_rows(written, sum(one.rows for one in found.values()), target)
    return found


def _by_columns(
    stores: Sequence[RawStore], target: Location, tasks: int | None
) -> dict[int, Contents]:
    """Write rows by columns, and make a table of the files that tasks have told of."""
    schema = _together([(one.operator, one.canonical()) for one in stores]).schema
    new_table.require_new(schema, target)
    files = row_files.write(stores, target, tasks)
    found = {}
    for operator in dict.fromkeys(one.operator for one in stores):
        own = [one for one in files if one.operator_id == operator.operator_id]
        if stray := sum(one.stray for one in own):
            raise _not_placed(
                f"{count_text(stray, 'state row')} of operator {operator.operator_id}"
            )
        found[operator.operator_id] = Contents(
            sum(one.rows for one in own),
            sum(one.state_bytes for one in own),
            _text(
                *(sum(one.hashes[seed] for one in own) for seed in (0, 1)),
                *(sum(one.orders[seed] for one in own) for seed in (0, 1)),
            ),
        )
    new_table.commit(schema, target, PARTITIONED_BY, {one.path: one.rows for one in files})
    return found


def rows_in_partitions(spark: SparkSession, table: Location, partitions: int) -> DataFrame | None:
    """Return the rows of a table as `write.write_in_place` wants them, or None.

    Args:
        spark: From `read.reading_session`.
        partitions: As many as the state had when it was saved.

    Returns:
        None for a table whose files do not say which state partition they are of, such as those of
        earlier versions.
    """
    return new_table.read_buckets(spark, table, partitions, "key_hash")


def rows_of_checkpoint(spark: SparkSession, checkpoint: Location, files: CutFiles) -> DataFrame:
    """Return the rows that `export` would write, with the same columns.

    To be read within `placement_checked`.

    Args:
        checkpoint: A checkpoint that nobody writes to, with an operator that has a canonical form.
    """
    from pyspark.sql import functions as F

    def placed(operator: Operator) -> DataFrame:
        problem = F.raise_error(F.lit(f"{_STRAY} of operator {operator.operator_id}"))
        stray = _is_stray(files.partitions[operator.operator_id])
        rows = read.read_operator(spark, checkpoint, files, operator)
        return rows.withColumn("key_hash", F.when(stray, problem).otherwise(F.col("key_hash")))

    return _together([(one, placed(one)) for one in _canonical(files)])


@contextmanager
def placement_checked() -> Iterator[None]:
    """Say of a row of `rows_of_checkpoint` that it is not where Spark would look for its key.

    Raises:
        PlacementError: Instead of what Spark made of it.
    """
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, SavepointsError) as error:
        if found := re.search(f"{_STRAY} of operator \\d+", str(error)):
            raise _not_placed(found.group()) from error
        raise


def _together(frames: Iterable[tuple[Operator, DataFrame]]) -> DataFrame:
    """Return the rows of all operators, whose keys have different types."""
    from pyspark.sql import functions as F

    return read.together(
        [
            rows.withColumn("key", F.struct(F.col("key").alias(f"op{operator.operator_id}")))
            for operator, rows in frames
        ]
    )


def of_checkpoint(
    spark: SparkSession, checkpoint: Location, files: CutFiles
) -> dict[int, Contents]:
    """Read all state that has a canonical form, and return its totals as `export` does."""
    own = read.reading_session(spark, files.cut.checkpoint_format)
    found = {}
    for operator in _canonical(files):
        rows, observed = _observed(_stores(own, checkpoint, files, operator))
        rows.write.format("noop").mode("overwrite").save()
        found[operator.operator_id] = _checked(operator, observed.get)
    return found


def of_table(
    spark: SparkSession, table: Location, operators: Sequence[OperatorState]
) -> dict[int, Contents]:
    """Read a canonical table, and return its totals as `export` did.

    Args:
        operators: Those of the savepoint; which of them may have lists is not in the table.
    """
    from pyspark.sql import functions as F

    rows = new_table.read(spark, table)
    may_be_listed = F.col("operator_id").isin(
        [one.operator_id for one in operators if one.column_families]
    )
    placed = _placed(rows.where(may_be_listed)).unionByName(_unplaced(rows.where(~may_be_listed)))
    sums = placed.groupBy("operator_id").agg(*_sums()).collect()
    return {row["operator_id"]: _contents(row.asDict()) for row in sums}


def _canonical(files: CutFiles) -> list[Operator]:
    return [one for one in files.operators if native_only(one, files.conf) is None]


def _stores(
    spark: SparkSession, checkpoint: Location, files: CutFiles, operator: Operator
) -> list[RawStore]:
    return [read.read_raw(spark, checkpoint, files, operator, one) for one in operator.stores]


def _observed(stores: Sequence[RawStore]) -> tuple[DataFrame, Any]:
    """Return the rows of an operator's stores, and their totals once they were read."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    stray = F.count_if(_is_stray(stores[0].partitions)).alias("stray")
    observation = Observation(f"op{stores[0].operator.operator_id}")
    rows = read.together([one.canonical() for one in stores])
    placed = (_placed if stores[0].operator.has_column_families else _unplaced)(rows)
    return placed.observe(observation, *_sums(), stray).drop(_PLACE), observation


def _placed(rows: DataFrame) -> DataFrame:
    """Return rows with the number of elements that a list has before each."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    key = Window.partitionBy("operator_id", "store_name", "column_family", "key_bytes")
    return rows.withColumn(_PLACE, F.row_number().over(key.orderBy("ord")).cast("long") - 1)


def _unplaced(rows: DataFrame) -> DataFrame:
    """Return rows of operators without lists as `_placed` would, which sorts them."""
    from pyspark.sql import functions as F

    return rows.withColumn(_PLACE, F.lit(0).cast("long"))


def _is_stray(partitions: int) -> Column:
    """Return whether a row is not in the partition of its key, by Spark's own placement."""
    from pyspark.sql import functions as F

    return F.col("partition_id") != F.pmod(F.col("key_hash"), F.lit(partitions)).cast("int")


def _not_placed(what: str) -> PlacementError:
    return PlacementError(
        f"{what} found in a state partition other than the one that the hash of the key determines",
        hint="use only the native form, which keeps the rows where they are: --format native",
    )


def _checked(operator: Operator, sums: dict[str, Any]) -> Contents:
    if sums["stray"]:
        raise _not_placed(
            f"{count_text(sums['stray'], 'state row')} of operator {operator.operator_id}"
        )
    return _contents(sums)


def _sums() -> list[Column]:
    """Aggregates of which `_contents` makes the hash."""
    from pyspark.sql import functions as F

    row = [F.col(name) for name in ("store_name", "column_family", "key_bytes", "value_bytes")]
    size = F.octet_length("key_bytes") + F.coalesce(F.octet_length("value_bytes"), F.lit(0))
    sums = [F.count(F.lit(1)).alias("rows"), F.coalesce(F.sum(size), F.lit(0)).alias("state_bytes")]
    for seed in (1, 2):
        value = F.xxhash64(F.lit(seed), *row)
        sums += _sum(value, f"rows{seed}")
        order = F.xxhash64(value, F.col(_PLACE))
        sums += _sum(F.when(F.col(_PLACE) > 0, order), f"order{seed}")
    return sums


def _sum(word: Column, name: str) -> list[Column]:
    """Sums of the halves of words, of 32 bits, which cannot overflow a long."""
    from pyspark.sql import functions as F

    halves = (word.bitwiseAND(F.lit(0xFFFFFFFF)), F.shiftrightunsigned(word, 32))
    return [
        F.coalesce(F.sum(half), F.lit(0)).alias(f"{name}_{which}")
        for half, which in zip(halves, ("low", "high"), strict=True)
    ]


def _contents(sums: dict[str, Any]) -> Contents:
    words = (
        int(sums[f"{name}{seed}_low"]) + (int(sums[f"{name}{seed}_high"]) << 32)
        for name in ("rows", "order")
        for seed in (1, 2)
    )
    return Contents(int(sums["rows"]), int(sums["state_bytes"]), _text(*words))


def _text(*words: int) -> str:
    """Return the hash of rows of two words, and that of their order of two more if there is any."""
    parts = [one % _WORD for one in words]
    rows, order = ("".join(f"{one:016x}" for one in parts[at : at + 2]) for at in (0, 2))
    return f"{rows}-{order}" if any(parts[2:]) else rows
