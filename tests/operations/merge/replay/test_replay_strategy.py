"""What can be said against the short way before it is tried."""

from __future__ import annotations

from savepoints.checkpoint.state.operators import Operator
from savepoints.operations.merge.replay.replay_strategy import reasons_against_short


def test_nothing_speaks_against_an_aggregate() -> None:
    """It does not depend on how events are cut into batches."""
    assert reasons_against_short([Operator(0, "stateStoreSave", ("default",), 3)]) == ()


def test_reasons_name_the_operator() -> None:
    """Each operator for itself, and events that may have been dropped."""
    timed = Operator(
        1,
        "transformWithStateInPySparkExec",
        ("default",),
        3,
        properties={"timeMode": "ProcessingTime"},
    )
    forgets = Operator(0, "dedupeWithinWatermark", ("default",), 3)
    first, second, third = reasons_against_short([forgets, timed], dropped=7)
    assert first.startswith("operator 0 (dedupeWithinWatermark) forgets")
    assert second.startswith(
        "operator 1 (transformWithStateInPySparkExec) depends on the processing"
    )
    assert (
        third == "7 other events came behind the watermark, so the live query may have dropped them"
    )
