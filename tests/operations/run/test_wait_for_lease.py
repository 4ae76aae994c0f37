"""Waiting for a lease: a second start under cron runs after the first, or says who runs."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from savepoints.errors import LockedError, QueryRunningError
from savepoints.handle import Store
from savepoints.operations.run import wait_for_lease
from savepoints.plan import silent
from savepoints.store.locks import lease

LONG = timedelta(minutes=2)


@pytest.mark.parametrize(("verb", "error"), [("run", QueryRunningError), ("rollback", LockedError)])
def test_without_waiting_the_holder_is_named_at_once(
    local_store: Store, verb: str, error: type[Exception]
) -> None:
    with (
        lease.hold(local_store.root, "totals", verb),
        pytest.raises(error, match=r"process \d+ on "),
        wait_for_lease.hold(local_store, "totals", None, silent),
    ):
        pytest.fail("it is held")


def test_a_run_waits_for_the_one_before_and_says_for_whom(local_store: Store) -> None:
    order: list[str] = []
    said = threading.Event()
    free = threading.Event()

    def first() -> None:
        with lease.hold(local_store.root, "totals", "run"):
            held.set()
            free.wait(LONG.total_seconds())
            order.append("first")

    def tell(line: str) -> None:
        assert "waiting: the query totals is running: process" in line
        said.set()
        free.set()

    held = threading.Event()
    other = threading.Thread(target=first)
    other.start()
    held.wait(LONG.total_seconds())
    with wait_for_lease.hold(local_store, "totals", LONG, tell) as mine:
        mine.check()
        order.append("second")
    other.join()

    assert said.is_set()
    assert order == ["first", "second"]


def test_it_does_not_wait_for_longer_than_it_was_told(local_store: Store) -> None:
    lines: list[str] = []
    with (
        lease.hold(local_store.root, "totals", "run"),
        pytest.raises(QueryRunningError),
        wait_for_lease.hold(local_store, "totals", timedelta(seconds=1), lines.append),
    ):
        pytest.fail("it is held")

    assert len(lines) == 1


def test_what_fails_while_the_lease_is_held_is_not_waited_for(local_store: Store) -> None:
    with (
        pytest.raises(LockedError, match="its own"),
        wait_for_lease.hold(local_store, "totals", LONG, silent),
    ):
        raise LockedError("its own")
    lease.refuse_held(local_store.root, "totals")
