"""Read the names of a join's columns, which its state calls `field0`, `field1`, ….

Only Spark's own plan has them, through its private API, so this may return nothing. Source:
`StreamingSymmetricHashJoinExec`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from savepoints.spark import private_api
from savepoints.spark.java_trees import JavaObject, class_name, items, nodes

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOG = logging.getLogger(__name__)

_JOIN = "StreamingSymmetricHashJoinExec"


def keys_by_operator(query: StreamingQuery) -> dict[int, tuple[tuple[str, str], ...]]:
    """Return the names of the columns on the left and on the right, by position of the key.

    Args:
        query: A query of a classic session that has run a batch.

    Returns:
        By operator; operators that Spark does not describe are left out.
    """
    try:
        plan = private_api.executed_plan(query)
        joins = [one for one in nodes(plan) if class_name(one) == _JOIN]
        return {
            int(one.stateInfo().get().operatorId()): tuple(
                zip(_names(one.leftKeys()), _names(one.rightKeys()), strict=True)
            )
            for one in joins
        }
    except Exception:  # noqa: BLE001  (whatever py4j raises where Spark is another)
        _LOG.debug("Spark does not show the columns of its joins", exc_info=True)
        return {}


def _names(keys: JavaObject) -> list[str]:
    return [str(one.name()) if "name" in dir(one) else str(one.sql()) for one in items(keys)]
