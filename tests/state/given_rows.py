"""State rows that a test makes up, in the columns of the canonical table."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Column family, key, place, bytes of the key, bytes of the value.
GivenRow = tuple[str, tuple[Any, ...], int, bytes, bytes]


@dataclass(frozen=True)
class GivenRows:
    """The state of one operator with one store.

    Attributes:
        spark: Holds it.
        key: Fields of the key, as DDL.
        given: The rows.
    """

    spark: SparkSession
    key: str
    given: Sequence[GivenRow]

    def rows(self, operator_id: int, store: str) -> DataFrame:
        """Return all of them; see `savepoints.state.storage.row_sources.SavedRows`."""
        from pyspark.sql import functions as F

        columns = (
            f"column_family string, key struct<{self.key}>, ord long, key_bytes binary, "
            "value_bytes binary"
        )
        frame = self.spark.createDataFrame(list(self.given), columns)
        return frame.withColumn("key_hash", F.hash("key.*"))


def number(value: float) -> bytes:
    """Return the bytes of a row with one number."""
    return struct.pack("<qd", 0, value)
