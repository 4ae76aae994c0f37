"""What Spark's own plan of a query shows of its state, through Spark's private API.

- The initial buffers of its aggregates, for a key without rows. NULL is not always empty: an
  average that starts with NULL stays NULL, and a count cannot be NULL. Source:
  `DeclarativeAggregate.initialValues`, `TypedImperativeAggregate`.
- The names of a join's columns, which its state calls `field0`, `field1`, …. Source:
  `StreamingSymmetricHashJoinExec`.
- The delays of its watermarks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from savepoints.checkpoint.evolution.findings import Start
from savepoints.spark import private_api
from savepoints.spark.private_api import JavaObject

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOG = logging.getLogger(__name__)

_SAVING = frozenset({"StateStoreSaveExec", "SessionWindowStateStoreSaveExec"})
_AGGREGATING = frozenset(
    {"HashAggregateExec", "ObjectHashAggregateExec", "SortAggregateExec", "MergingSessionsExec"}
)
_JOIN = frozenset({"StreamingSymmetricHashJoinExec"})
_WATERMARK = "EventTimeWatermarkExec"

T = TypeVar("T")


def buffers_by_operator(query: StreamingQuery) -> dict[int, tuple[Start, ...]]:
    """Return each aggregating operator's initial buffers, in the order of its state.

    Args:
        query: A query of a classic session that has run a batch.

    Returns:
        By operator; operators that Spark does not describe are left out.
    """
    return _by_operator(query, _SAVING, _starts, "the initial buffers of its aggregates")


def join_keys_by_operator(query: StreamingQuery) -> dict[int, tuple[tuple[str, str], ...]]:
    """Return the names of the columns on the left and on the right, by position of the key.

    Args and returns as of `buffers_by_operator`.
    """
    return _by_operator(query, _JOIN, _keys, "the columns of its joins")


def delays_ms(query: StreamingQuery) -> tuple[int, ...]:
    """Return the delay of each watermark, in milliseconds.

    Args:
        query: A query of a classic session that has run a batch.
    """
    plan = private_api.executed_plan(query)
    found = (one for one in nodes(plan) if class_name(one) == _WATERMARK)
    return tuple(int(one.delayMs()) for one in found)


def _by_operator(
    query: StreamingQuery, classes: Collection[str], read: Callable[[JavaObject], T], what: str
) -> dict[int, T]:
    try:
        found = [
            one for one in nodes(private_api.executed_plan(query)) if class_name(one) in classes
        ]
        return {int(one.stateInfo().get().operatorId()): read(one) for one in found}
    except Exception:  # noqa: BLE001  (whatever py4j raises where Spark is another)
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


def _keys(join: JavaObject) -> tuple[tuple[str, str], ...]:
    return tuple(zip(_names(join.leftKeys()), _names(join.rightKeys()), strict=True))


def _names(keys: JavaObject) -> list[str]:
    return [str(one.name()) if "name" in dir(one) else str(one.sql()) for one in items(keys)]


def nodes(plan: JavaObject) -> Iterator[JavaObject]:
    """Yield a plan and all plans below it."""
    yield plan
    for child in items(plan.children()):
        yield from nodes(child)


def items(sequence: JavaObject) -> list[JavaObject]:
    """Return the elements of a Scala sequence."""
    return [sequence.apply(position) for position in range(sequence.size())]


def class_name(one: JavaObject) -> str:
    """Return the class name of a Java object, without its package."""
    return str(one.getClass().getSimpleName())
