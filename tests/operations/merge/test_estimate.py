"""How long a merge will take, by what earlier ones took: drawn by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from savepoints.moments import utc_now
from savepoints.operations.merge import estimate
from savepoints.operations.merge.estimate import Size
from savepoints.store.tables.events import Event

SHORT = Size("exact", "short", rows=10, events=1_000, batches=50)


def done(name: str, size: Size, seconds: float, **other: object) -> Event:
    parameters = {key: str(value) for key, value in size.parameters.items() if value is not None}
    event = Event(f"op-{name}", utc_now(), "merge", "me", "done", "orders", None, parameters)
    return replace(event, seconds=seconds, **other)  # type: ignore[arg-type]


def test_nothing_is_known_of_the_first_one() -> None:
    others = [
        done("failed", SHORT, 3, result="failed"),
        done("elsewhere", SHORT, 3, query="another"),
        done("each", replace(SHORT, way="faithful"), 3),
        done("all", replace(SHORT, policy="replay-all", way=None), 3),
        replace(done("old", SHORT, 3), parameters={"rows": "10"}),
    ]

    assert estimate.expected(others, "orders", SHORT) is None
    assert "unknown" in estimate.text(None)


@pytest.mark.parametrize(
    ("events", "seconds", "basis"),
    [
        (10, 20.0, "op-small took 20 s for 900 events"),
        (1_000, 20.0 * 1_000 / 900, "op-small took 20 s for 900 events"),
        (20_000, 90.0 * 2, "op-large took 90 s for 10000 events"),
    ],
)
def test_the_most_similar_one_counts(events: int, seconds: float, basis: str) -> None:
    """A small one is mostly what each costs, so it is not taken to be any faster."""
    known = [
        done("small", replace(SHORT, events=900), 20),
        done("large", replace(SHORT, events=10_000), 90),
    ]

    found = estimate.expected(known, "orders", replace(SHORT, events=events))

    assert found is not None
    assert found.seconds == pytest.approx(seconds)
    assert found.basis == basis


def test_batch_by_batch_it_goes_by_batches_and_appended_by_rows() -> None:
    each = replace(SHORT, way="faithful")
    appended = replace(SHORT, policy="append", way=None)
    known = [done("each", each, 50), done("appended", appended, 5)]

    by_batches = estimate.expected(known, "orders", replace(each, batches=100, events=1))
    by_rows = estimate.expected(known, "orders", replace(appended, rows=30))

    assert by_batches is not None
    assert by_rows is not None
    assert (by_batches.seconds, by_rows.seconds) == (100.0, 15.0)
