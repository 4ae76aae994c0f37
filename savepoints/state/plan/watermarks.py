"""The event-time watermarks of a query, by Spark's own plan of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from savepoints.spark import private_api
from savepoints.spark.java_trees import class_name, nodes

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_NODE = "EventTimeWatermarkExec"


def delays_ms(query: StreamingQuery) -> tuple[int, ...]:
    """Return the delay of each watermark, in milliseconds.

    Args:
        query: A query of a classic session that has run a batch.
    """
    found = (one for one in nodes(private_api.executed_plan(query)) if class_name(one) == _NODE)
    return tuple(int(one.delayMs()) for one in found)
