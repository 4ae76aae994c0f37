"""State rows by store, from a canonical table or from the files of a checkpoint.

Both have the same columns, so rows of different keys can be taken from different sources and
written together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from savepoints.checkpoint import state_partitions
from savepoints.checkpoint.cut import CutFiles
from savepoints.checkpoint.state_partitions import Partitions
from savepoints.errors import IncompatibleError
from savepoints.io import Location
from savepoints.state.storage import new_table, read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("column_family", "key", "key_hash", "ord", "key_bytes", "value_bytes")


class SavedRows(Protocol):
    """The state of one cut."""

    def rows(self, operator_id: int, store: str) -> DataFrame:
        """Return the rows of a store.

        Returns:
            column_family (string), key (struct; null without a grouping key), key_hash (int), ord
            (long), key_bytes, value_bytes (binary).
        """


@dataclass(frozen=True)
class TableRows:
    """Rows of the canonical table of a savepoint."""

    spark: SparkSession
    table: Location

    def rows(self, operator_id: int, store: str) -> DataFrame:
        """Return the rows of a store; see `SavedRows`."""
        from pyspark.sql import functions as F

        table = new_table.read(self.spark, self.table)
        mine = table.where((F.col("operator_id") == operator_id) & (F.col("store_name") == store))
        return mine.withColumn("key", F.col("key")[f"op{operator_id}"]).select(*COLUMNS)


@dataclass(frozen=True)
class CheckpointRows:
    """Rows in the files of a checkpoint.

    Attributes:
        spark: From `read.reading_session`.
        checkpoint: A checkpoint that nobody writes to: a mounted savepoint, or one of a query that
            has ended.
    """

    spark: SparkSession
    checkpoint: Location
    files: CutFiles

    @classmethod
    def of(cls, spark: SparkSession, checkpoint: Location, files: CutFiles) -> CheckpointRows:
        """Read with a session of its own."""
        return cls(read.reading_session(spark, files.cut.checkpoint_format), checkpoint, files)

    def rows(self, operator_id: int, store: str) -> DataFrame:
        """Return the rows of a store; see `SavedRows`."""
        operator = next(
            (one for one in self.files.operators if one.operator_id == operator_id), None
        )
        if operator is None or store not in operator.stores:
            raise IncompatibleError(
                f"{self.checkpoint} has no state store {store} for operator {operator_id}",
                hint="see how the program differs from the savepoint: savepoints upgrade "
                "check --app MODULE:ATTR --from NAME",
                operator_id=operator_id,
                store=store,
            )
        found = read.read_raw(self.spark, self.checkpoint, self.files, operator, store)
        return found.canonical().select(*COLUMNS)

    def among(self, partitions: Partitions, place: Location) -> CheckpointRows:
        """Return the rows of some state partitions alone; see `state_partitions.lay_out`.

        Args:
            place: An empty directory for the files that are read.
        """
        state_partitions.lay_out(self.checkpoint, self.files, partitions, place)
        return replace(self, checkpoint=place)
