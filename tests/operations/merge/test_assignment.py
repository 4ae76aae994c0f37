"""Which savepoints are known to be older than a late event."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from savepoints.operations.merge import assignment
from savepoints.sources.archive.progress import ArchiveProgress, Arrival

AT_9 = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=9)
ORDERS = "orders", ArchiveProgress("x", (Arrival("orders", 0, 0, 10, 10, 9_000_000),))
NOTHING = ArchiveProgress("", ())


def test_trap_an_input_without_an_event_keeps_no_savepoint_from_being_a_base() -> None:
    """Nothing was read of it, so nothing before the savepoint can be later."""
    empty = ArchiveProgress("y", (Arrival("views", 0, 0, 0, 0, None),))

    for views in (empty, NOTHING):
        offsets = {"orders": {0: 10}, "views": {0: 0}}
        assert assignment._clock((ORDERS, ("views", views)), offsets, {}) == AT_9
    begun = {"orders": {0: 0}, "views": {0: 70}}
    offsets = {"orders": {0: 10}, "views": {0: 70}}
    assert assignment._clock((ORDERS, ("views", NOTHING)), offsets, begun) == AT_9


def test_of_an_input_that_was_read_and_is_not_archived_the_times_are_unknown() -> None:
    begun = {"orders": {0: 0}, "views": {0: 70}}

    for views in ({0: 71}, {0: 70, 1: 1}):
        offsets = {"orders": {0: 10}, "views": views}
        assert assignment._clock((ORDERS, ("views", NOTHING)), offsets, begun) is None
    short = {"orders": {0: 11}, "views": {0: 70}}
    assert assignment._clock((ORDERS, ("views", NOTHING)), short, begun) is None


def test_a_savepoint_before_the_first_event_is_no_base() -> None:
    offsets = {"orders": {0: 0}, "views": {0: 0}}

    assert assignment._clock((ORDERS, ("views", NOTHING)), offsets, {}) is None
