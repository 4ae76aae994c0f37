"""Batches that were committed and not reported, by what the two logs say; no JVM."""

from __future__ import annotations

from dataclasses import replace

import pytest

from savepoints.checkpoint.position import CheckpointPosition
from savepoints.runtime import unreported_batch

STARTED = CheckpointPosition(
    committed=4,
    positions=('{"a":{"0":10,"1":20}}', '{"b":{"0":5}}'),
    begun=5,
    begun_positions=('{"a":{"0":13,"1":20}}', '{"b":{"0":9}}'),
    initial={},
    watermark_moved=False,
    next_watermark_ms=0,
)


@pytest.mark.parametrize(
    ("before", "committed", "begun", "expected"),
    [
        (STARTED, 5, None, True),
        (STARTED, 4, 5, False),
        (STARTED, 5, 6, False),
        (STARTED, 6, None, False),
        (replace(STARTED, begun=None, begun_positions=()), 5, None, False),
    ],
    ids=["committed", "failed", "the next began", "the next was committed", "none was planned"],
)
def test_only_the_planned_batch_counts_and_only_if_no_other_has_begun(
    before: CheckpointPosition, committed: int, begun: int | None, expected: bool
) -> None:
    now = replace(before, committed=committed, begun=begun)

    assert unreported_batch.is_one(before, now) == expected


def test_its_records_are_those_between_the_positions_of_all_sources() -> None:
    assert unreported_batch.rows(STARTED) == 3 + 4


def test_the_records_of_a_first_batch_are_counted_from_where_the_sources_begin() -> None:
    first = replace(
        STARTED,
        committed=None,
        positions=(),
        initial={0: '{"a":{"0":10,"1":20}}', 1: '{"b":{"0":0}}'},
    )

    assert unreported_batch.rows(first) == 3 + 9
