"""What is compared besides state, and whether all that was planned was written; no JVM."""

from __future__ import annotations

import pytest

from savepoints.checkpoint.findings import Dropped
from savepoints.checkpoint.upgrade import OperatorVerdict, Upgrade
from savepoints.errors import NotAlignedError
from savepoints.operations.migrating import require_counts
from savepoints.operations.upgrade import compare_topics
from tests.samples import KAFKA, savepoint


@pytest.mark.parametrize(
    ("offsets", "topics", "found"),
    [
        ((KAFKA,), {"orders"}, []),
        ((KAFKA, '{"clicks":{"0":1}}'), {"orders", "clicks"}, []),
        ((KAFKA,), {"orders_v2"}, ["topic orders", "topic orders_v2"]),
        ((KAFKA,), {"orders", "clicks"}, ["topic clicks"]),
        ((KAFKA, '{"clicks":{"0":1}}'), {"orders"}, ["topic clicks"]),
    ],
)
def test_other_topics_are_incompatible(
    offsets: tuple[str, ...], topics: set[str], found: list[str]
) -> None:
    reasons = compare_topics(savepoint(1, offsets=offsets), frozenset(topics))

    assert [one.place for one in reasons] == found
    assert {one.verdict for one in reasons} <= {"incompatible"}
    assert all("--source" in one.hint for one in reasons)


def test_sources_that_are_not_kafka_are_not_compared() -> None:
    (reason,) = compare_topics(savepoint(1, offsets=('{"logOffset":3}',)), frozenset({"orders"}))

    assert reason.verdict == "compatible"
    assert "were not compared" in reason.text


@pytest.mark.parametrize(
    ("counted", "merged", "is_right"),
    [(7, False, True), (6, False, False), (8, False, False), (0, False, False),
     (3, True, True), (7, True, True), (8, True, False), (0, True, False)],
)  # fmt: skip
def test_rows_that_are_missing_or_too_many_are_found(
    counted: int, merged: bool, is_right: bool
) -> None:
    """Of ten rows three are dropped with a variable; where keys are merged there may be fewer."""
    dropped = (Dropped("variable x", (("default", "x"),), 3), Dropped("column y"))
    operators = (
        OperatorVerdict(0, 1, "a", "compatible", (), 10, dropped),
        OperatorVerdict(None, 0, "gone", "needs_migration", (), 5),
        OperatorVerdict(1, None, "new", "needs_migration", ()),
    )
    report = Upgrade("sp-1", "m:app", "needs_migration", operators)
    counts = {0: counted, 1: 0}

    if is_right:
        require_counts(report, counts, frozenset({0} if merged else ()))
    else:
        with pytest.raises(NotAlignedError, match=f"has {counted} rows of state where 7 were"):
            require_counts(report, counts, frozenset({0} if merged else ()))


def test_rows_in_an_operator_that_begins_empty_are_found() -> None:
    report = Upgrade(
        "sp-1", "m:app", "needs_migration", (OperatorVerdict(0, None, "new", "compatible", ()),)
    )

    with pytest.raises(NotAlignedError, match="has 1 rows of state where 0 were"):
        require_counts(report, {0: 1}, frozenset())
