"""What only Spark's own plan of a query says: initial buffers, columns of joins, watermarks.

It is read through Spark's private API, so of operators this may return nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from savepoints.checkpoint.evolution.findings import Start
from savepoints.spark import private_api
from savepoints.spark.java_trees import JavaObject, class_name, items, nodes

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")

_JOINS = frozenset({"StreamingSymmetricHashJoinExec"})
_SAVING = frozenset({"StateStoreSaveExec", "SessionWindowStateStoreSaveExec"})
_AGGREGATING = frozenset(
    {"HashAggregateExec", "ObjectHashAggregateExec", "SortAggregateExec", "MergingSessionsExec"}
)
_WATERMARK = "EventTimeWatermarkExec"


def initial_buffers(query: StreamingQuery) -> dict[int, tuple[Start, ...]]:
    """Return each aggregating operator's initial buffers, for a key without rows.

    NULL is not always empty: an average that starts with NULL stays NULL, and a count cannot be
    NULL. Source: `DeclarativeAggregate.initialValues`, `TypedImperativeAggregate`.

    Args:
        query: A query of a classic session that has run a batch.

    Returns:
        By operator, in the order of its state; operators that Spark does not describe are left out.
    """
    return _by_operator(query, _SAVING, _starts, "the initial buffers of its aggregates")


def join_keys(query: StreamingQuery) -> dict[int, tuple[tuple[str, str], ...]]:
    """Return the names of a join's columns, which its state calls `field0`, `field1`, ….

    Source: `StreamingSymmetricHashJoinExec`.

    Args:
        query: A query of a classic session that has run a batch.

    Returns:
        By operator, those on the left and on the right by position of the key; operators that
        Spark does not describe are left out.
    """
    return _by_operator(query, _JOINS, _joined_by, "the columns of its joins")


def watermark_delays_ms(query: StreamingQuery) -> tuple[int, ...]:
    """Return the delay of each watermark, in milliseconds.

    Args:
        query: A query of a classic session that has run a batch.
    """
    return tuple(int(one.delayMs()) for one in _watermarks(query))


def watermarks_reached_ms(query: StreamingQuery) -> tuple[int, ...]:
    """Return what the events of its last batch move each watermark to; 0 where it had none.

    As `WatermarkTracker.updateWatermark` counts, which forgets it when the query is started again.

    Args:
        query: A query of a classic session that has run a batch.
    """
    stats = [(one.eventTimeStats().value(), int(one.delayMs())) for one in _watermarks(query)]
    return tuple(int(seen.max()) - delay if seen.count() else 0 for seen, delay in stats)


def _watermarks(query: StreamingQuery) -> Iterator[JavaObject]:
    plan = private_api.executed_plan(query)
    return (one for one in nodes(plan) if class_name(one) == _WATERMARK)


def _by_operator(
    query: StreamingQuery, kinds: Collection[str], read: Callable[[JavaObject], _T], what: str
) -> dict[int, _T]:
    """Return what operators of some kinds say; nothing where Spark is another."""
    try:
        found = [one for one in nodes(private_api.executed_plan(query)) if class_name(one) in kinds]
        return {int(one.stateInfo().get().operatorId()): read(one) for one in found}
    except Exception:  # noqa: BLE001  (whatever py4j raises)
        _LOG.debug("Spark does not show %s", what, exc_info=True)
        return {}


def _starts(saving: JavaObject) -> tuple[Start, ...]:
    aggregating = next(one for one in nodes(saving) if class_name(one) in _AGGREGATING)
    return tuple(
        replace(start, aggregate=number)
        for number, expression in enumerate(items(aggregating.aggregateExpressions()))
        for start in _of_function(expression.aggregateFunction())
    )


def _of_function(function: JavaObject) -> list[Start]:
    if "initialValues" in dir(function):
        return [Start(_value(one.eval(None))) for one in items(function.initialValues())]
    return [Start(bytes(function.serialize(function.createAggregationBuffer())))]


def _value(found: JavaObject) -> Any:  # noqa: ANN401  (whatever the literal is)
    if found is None or isinstance(found, (bool, int, float)):
        return found
    return str(found.toString())


def _joined_by(join: JavaObject) -> tuple[tuple[str, str], ...]:
    return tuple(zip(_names(join.leftKeys()), _names(join.rightKeys()), strict=True))


def _names(keys: JavaObject) -> list[str]:
    return [str(one.name()) if "name" in dir(one) else str(one.sql()) for one in items(keys)]
