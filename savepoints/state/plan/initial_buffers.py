"""Read the initial buffers of a query's aggregates, for a key without rows.

NULL is not always empty: an average that starts with NULL stays NULL, and a count cannot be NULL.
Only Spark's own plan has them, through its private API, so this may return nothing. Source:
`DeclarativeAggregate.initialValues`, `TypedImperativeAggregate`.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from savepoints.checkpoint.evolution.findings import Start
from savepoints.spark import private_api
from savepoints.spark.java_trees import JavaObject, class_name, items, nodes

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOG = logging.getLogger(__name__)

_SAVING = frozenset({"StateStoreSaveExec", "SessionWindowStateStoreSaveExec"})
_AGGREGATING = frozenset(
    {"HashAggregateExec", "ObjectHashAggregateExec", "SortAggregateExec", "MergingSessionsExec"}
)


def buffers_by_operator(query: StreamingQuery) -> dict[int, tuple[Start, ...]]:
    """Return each aggregating operator's initial buffers, in the order of its state.

    Args:
        query: A query of a classic session that has run a batch.

    Returns:
        By operator; operators that Spark does not describe are left out.
    """
    try:
        plan = private_api.executed_plan(query)
        saving = [one for one in nodes(plan) if class_name(one) in _SAVING]
        return {int(one.stateInfo().get().operatorId()): _starts(one) for one in saving}
    except Exception:  # noqa: BLE001  (whatever py4j raises where Spark is another)
        _LOG.debug("Spark does not show the initial buffers of its aggregates", exc_info=True)
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
