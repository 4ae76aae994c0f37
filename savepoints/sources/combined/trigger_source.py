"""A one-row streaming source that triggers a batch whose rows come from a table.

What an archive supplies to a batch is a table. A stream joined with a table is a stream; so each
input is the cross join of its rows with a stream of one row, which comes in the batch whose offsets
are planned. Its offsets are Kafka's, as Spark writes them, so Kafka's own source can continue from
the checkpoint at any moment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, kafka_position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAME = "savepoints_turn"
_COLUMN = "savepoints_turn"


def streamed(spark: SparkSession, rows: DataFrame, begin: KafkaOffsets) -> DataFrame:
    """Return rows as a stream that emits them in the one planned batch."""
    from pyspark.sql import functions as F

    spark.dataSource.register(_source())
    trigger = spark.readStream.format(_NAME).option("begin", kafka_position(begin)).load()
    return rows.crossJoin(F.broadcast(trigger)).drop(_COLUMN)


def _source() -> type:
    """Return the source, not as a class of this module, so that executors do not need it."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class Reader(DataSourceStreamReader):
        def __init__(self, begin: str) -> None:
            self._begin = begin

        def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's)
            return dict(json.loads(self._begin))

        def latestOffset(self, *_limits: object) -> dict[str, Any]:  # noqa: N802  (Spark's)
            return self.initialOffset()

        def partitions(
            self, start: Mapping[str, Any], end: Mapping[str, Any]
        ) -> list[InputPartition]:
            return [InputPartition(None)]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (1,)

        def commit(self, end: Mapping[str, Any]) -> None:
            """Do nothing: the source keeps no state."""

    class TriggerSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "savepoints_turn"

        def schema(self) -> str:
            return "savepoints_turn int"

        def streamReader(self, schema: object) -> Reader:  # noqa: N802  (Spark's)
            return Reader(str(self.options["begin"]))

    return TriggerSource
