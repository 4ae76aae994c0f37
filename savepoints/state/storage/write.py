"""Write state stores from canonical rows, for the checkpoint's provider."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from savepoints.checkpoint.state.operators import HDFS_PROVIDER
from savepoints.checkpoint.state_partitions import Partitions
from savepoints.errors import RESTORE_NATIVE, ListOrderError
from savepoints.io import Location
from savepoints.model import Cut, OperatorState
from savepoints.spark.versions import SparkVersion
from savepoints.state.storage import bulk_load, hdfs_provider, read, rocksdb_writer
from savepoints.state.storage.written_state import WrittenState

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Returns the rows of a store, of all that were saved.
RowsOf: TypeAlias = "Callable[[DataFrame, OperatorState, str], DataFrame]"
# A column that rows may have: about where a store that sorts its keys has them.
STORE_ORDER = "store_order"
# By which a frame without rows becomes one without tasks: before it runs, and while it does.
_WITHOUT_TASKS = {
    "spark.sql.optimizer.excludedRules": (
        "org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation"
    ),
    "spark.sql.adaptive.optimizer.excludedRules": (
        "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
    ),
}
# Of so many numbers a partition there is one for each partition nearly always.
_TRIED = 16


def require_writable(spark: SparkSession, cut: Cut) -> None:
    """Check that this Spark can write the cut's state, before anything is written."""
    if cut.provider != HDFS_PROVIDER:
        rocksdb_writer.require_private_api(spark)


def write_state(
    spark: SparkSession,
    checkpoint: Location,
    saved: DataFrame,
    cut: Cut,
    operators: Sequence[OperatorState],
    *,
    rows_of: RowsOf | None = None,
    saved_operators: Sequence[OperatorState] | None = None,
) -> WrittenState:
    """Write the state of a cut into a checkpoint that has everything but its state.

    Args:
        checkpoint: The directory with logs, metadata and schemas of these operators, and no others.
        cut: Batch, provider, partitions and checkpoint format to write; the number of
            partitions must be what `offsets/N` says, or the query would silently look for rows in
            the wrong place.
        rows_of: Makes the rows of a store; by default as they were saved.
    """
    saved.sparkSession.conf.set("spark.sql.shuffle.partitions", str(cut.partitions or 1))
    _require_order(saved, operators if saved_operators is None else saved_operators)

    def rows(operator: OperatorState, store: str) -> DataFrame:
        return (rows_of or _as_saved)(saved, operator, store)

    return write_rows(spark, checkpoint, cut, operators, rows)


def write_rows(
    spark: SparkSession,
    checkpoint: Location,
    cut: Cut,
    operators: Sequence[OperatorState],
    rows_of: Callable[[OperatorState, str], DataFrame],
    *,
    only: Partitions | None = None,
) -> WrittenState:
    """Write the state of a cut from any source of rows; see `write_state`.

    Args:
        checkpoint: The directory with logs, metadata and schemas of these operators, and no others.
        rows_of: Returns the canonical rows of a store. Those of one key are in the order of `ord`.
            With a column `STORE_ORDER`, all are put in the order of that, which RocksDB takes
            faster than keys in no order; those that are loaded as files are sorted anyway.
        only: State partitions, the others having been copied; where `is_loaded` says so.
            A row of another one is an error.
    """
    partitions = cut.partitions or 1
    own = _session(spark, cut)

    def placed(operator: OperatorState, store: str) -> DataFrame:
        rows = rows_of(operator, store)
        if operator.keyless:
            return rows.coalesce(1)
        return _by_id(rows, home(partitions), partitions)

    def by_key(operator: OperatorState, store: str) -> DataFrame:
        return _sorted(placed(operator, store), "key_bytes")

    if is_loaded(own, checkpoint, cut, operators):
        return bulk_load.write_state(own, checkpoint, cut, operators, by_key, only)
    assert only is None, "other writers write all partitions"
    return _put(own, checkpoint, cut, operators, placed)


def is_loaded(
    spark: SparkSession, checkpoint: Location, cut: Cut, operators: Sequence[OperatorState]
) -> bool:
    """Return True if state is loaded as files, of which some partitions can be left out.

    Args: See `write_rows`.
    """
    return cut.provider != HDFS_PROVIDER and bulk_load.fits(
        spark, checkpoint, cut.batch_id, operators
    )


def write_in_place(
    spark: SparkSession,
    checkpoint: Location,
    saved: DataFrame,
    cut: Cut,
    operators: Sequence[OperatorState],
) -> WrittenState:
    """Write the state of a cut from rows that are where they belong; see `write_state`.

    Args:
        saved: The rows of all operators, those of state partition p in task p, which is checked.
    """
    saved.sparkSession.conf.set("spark.sql.shuffle.partitions", str(cut.partitions or 1))
    own = _session(spark, cut)
    _require_order(saved, operators)

    def placed(operator: OperatorState, store: str) -> DataFrame:
        rows = _as_saved(saved, operator, store)
        return rows.coalesce(1) if operator.keyless else rows

    def checked(operator: OperatorState, store: str) -> DataFrame:
        rows = placed(operator, store)
        return rows if operator.keyless else at_home(rows, cut.partitions or 1)

    # Each file has its rows in the order in which the store had them.
    if is_loaded(own, checkpoint, cut, operators):
        return bulk_load.write_state(own, checkpoint, cut, operators, placed)
    return _put(own, checkpoint, cut, operators, checked)


def _session(spark: SparkSession, cut: Cut) -> SparkSession:
    own = read.state_session(spark, cut.checkpoint_format)
    own.conf.set("spark.sql.shuffle.partitions", str(cut.partitions or 1))
    return own


def _put(
    own: SparkSession,
    checkpoint: Location,
    cut: Cut,
    operators: Sequence[OperatorState],
    placed: Callable[[OperatorState, str], DataFrame],
) -> WrittenState:
    """Write rows one after the other, of which those of state partition p are in task p."""
    by_id = {one.operator_id: one for one in operators}

    def rows(operator_id: int, store: str) -> DataFrame:
        operator = by_id[operator_id]
        return _in_order(placed(operator, store), operator)

    if cut.provider != HDFS_PROVIDER:
        return rocksdb_writer.write_state(own, checkpoint.uri, cut.batch_id, rows)
    counts = dict.fromkeys(by_id, 0)
    for operator in operators:
        for store in operator.stores:
            counts[operator.operator_id] += sum(
                hdfs_provider.write_store(
                    rows(operator.operator_id, store),
                    checkpoint,
                    cut.batch_id + 1,
                    operator.operator_id,
                    store,
                ).values()
            )
    return WrittenState({}, counts)


def count(
    spark: SparkSession,
    checkpoint: Location,
    cut: Cut,
    operators: Sequence[OperatorState],
    written: WrittenState,
) -> dict[int, int]:
    """Count the rows of each operator in a written checkpoint."""
    if cut.provider == HDFS_PROVIDER:
        return dict(written.rows)
    own = read.reading_session(spark, cut.checkpoint_format)
    return {
        one.operator_id: sum(
            read.load(own, checkpoint.uri, cut.batch_id, one.operator_id, store).count()
            for store in one.stores
        )
        for one in operators
    }


def _as_saved(saved: DataFrame, operator: OperatorState, store: str) -> DataFrame:
    from pyspark.sql import functions as F

    return saved.where(
        (F.col("operator_id") == operator.operator_id) & (F.col("store_name") == store)
    )


def at_home(rows: DataFrame, partitions: int) -> DataFrame:
    """Return rows of which each is in the task of its state partition, or fail at one that is not.

    Whoever reads them must read `key_bytes`.
    """
    from pyspark.sql import functions as F

    stray = F.raise_error(F.lit("a state row is in a file of another state partition than its own"))
    is_home = home(partitions) == F.spark_partition_id()
    return rows.withColumn("key_bytes", F.when(is_home, F.col("key_bytes")).otherwise(stray))


def home(partitions: int) -> Column:
    """Return the state partition in which Spark will look for a row with a `key_hash`."""
    from pyspark.sql import functions as F

    return F.pmod(F.col("key_hash"), F.lit(partitions)).cast("int")


def _in_order(rows: DataFrame, operator: OperatorState) -> DataFrame:
    order = [STORE_ORDER] if STORE_ORDER in rows.columns else []
    if operator.column_families:
        order.append("ord")  # List state keeps its order only if its rows are written in it.
    return _sorted(rows, *order) if order else rows


def _sorted(rows: DataFrame, *order: str) -> DataFrame:
    """Return rows sorted in the tasks that they are in, all of which run even without any row.

    Spark takes a frame without rows for one without tasks, if it knows or finds out that there are
    none. While it runs it spares rows that are put into partitions on purpose, but not if they are
    sorted there (`AQEPropagateEmptyRelation`).
    """
    for key, rule in _WITHOUT_TASKS.items():
        rows.sparkSession.conf.set(key, rule)
    return rows.sortWithinPartitions(*order)


def _by_id(rows: DataFrame, partition: Column, partitions: int) -> DataFrame:
    """Return the rows, each in the partition whose number, from 0, a column has."""
    if SparkVersion.of(rows.sparkSession.version).repartitions_by_id:
        return rows.repartitionById(partitions, partition)
    from pyspark.sql import functions as F

    stand_in = F.array(*map(F.lit, _stand_ins(rows.sparkSession, partitions)))
    return rows.repartition(partitions, F.element_at(stand_in, partition + 1))


def _stand_ins(spark: SparkSession, partitions: int) -> list[int]:
    """Return, for each partition, a number whose hash Spark puts there."""
    from pyspark.sql import functions as F

    found: dict[int, int] = {}
    tried = _TRIED * partitions
    while len(found) < partitions:
        number = F.col("id").cast("int")
        home = F.pmod(F.hash(number), F.lit(partitions))
        found = dict(spark.range(tried).select(home, number).collect())
        tried *= 2
    return [found[one] for one in range(partitions)]


def _require_order(saved: DataFrame, operators: Sequence[OperatorState]) -> None:
    """Check that no two elements of a list have the same position.

    Only stores with column families hold lists, as several rows of one key.
    """
    from pyspark.sql import functions as F

    with_lists = [one.operator_id for one in operators if one.column_families]
    if not with_lists:
        return
    place = ("operator_id", "store_name", "column_family", "key_bytes", "ord")
    mine = saved.where(F.col("operator_id").isin(with_lists))
    unordered = mine.groupBy(*place).count().where((F.col("count") > 1) | F.col("ord").isNull())
    if found := unordered.head():
        raise ListOrderError(
            f"the order of the elements of {found.column_family} of operator "
            f"{found.operator_id} is missing from the canonical rows",
            hint=RESTORE_NATIVE,
            operator_id=found.operator_id,
            column_family=found.column_family,
        )
