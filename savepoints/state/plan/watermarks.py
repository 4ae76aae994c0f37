"""The event-time watermarks of a query, by Spark's own plan of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from savepoints.spark import private_api
from savepoints.spark.java_trees import JavaObject, class_name, nodes

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_NODE = "EventTimeWatermarkExec"


def delays_ms(query: StreamingQuery) -> tuple[int, ...]:
    """Return the delay of each watermark, in milliseconds.

    Args:
        query: A query of a classic session that has run a batch.
    """
    return tuple(int(one.delayMs()) for one in _found(query))


def reached_ms(query: StreamingQuery) -> tuple[int, ...]:
    """Return what the events of its last batch move each watermark to; 0 where it had none.

    As `WatermarkTracker.updateWatermark` counts, which forgets it when the query is started again.

    Args:
        query: A query of a classic session that has run a batch.
    """
    stats = [(one.eventTimeStats().value(), int(one.delayMs())) for one in _found(query)]
    return tuple(int(seen.max()) - delay if seen.count() else 0 for seen, delay in stats)


def _found(query: StreamingQuery) -> Iterator[JavaObject]:
    plan = private_api.executed_plan(query)
    return (one for one in nodes(plan) if class_name(one) == _NODE)
