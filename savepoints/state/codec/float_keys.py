"""Floating-point numbers in keys: which operators take -0.0 for 0.0, and each NaN for the same.

Spark writes such keys in one way (`NormalizeFloatingNumbers`); under another it finds no state.
"""

from __future__ import annotations

from savepoints.spark.versions import SparkVersion

_OPERATORS = frozenset({"stateStoreSave", "sessionWindowStateStoreSaveExec", "symmetricHashJoin"})
_DEDUPLICATIONS = frozenset({"dedupe", "dedupeWithinWatermark"})


def are_canonical(operator: str, version: SparkVersion) -> bool:
    """Return True if an operator's keys have 0.0 for -0.0, and one NaN.

    Those of functions over groups, such as `applyInPandasWithState`, are kept as they come.

    Args:
        operator: Spark's name of the operator.
        version: Of the Spark that runs the query.
    """
    if operator in _DEDUPLICATIONS:
        return version.normalizes_deduplicated_floats
    return operator in _OPERATORS
