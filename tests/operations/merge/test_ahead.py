"""Tests of `savepoints.operations.merge.ahead`."""

from __future__ import annotations

import threading

import pytest

from savepoints.operations.merge import ahead
from savepoints.operations.merge.ahead import Ahead


def test_an_error_does_not_wait_for_the_other_threads() -> None:
    """Ctrl-C would otherwise be answered only when a Spark job of many minutes has ended."""
    begun, go_on = threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return go_on.wait(20)

    def leave() -> None:
        with ahead.threads() as pool:
            late = Ahead(pool, work)
            late.start()
            begun.wait()
            futures.append(late)
            raise KeyboardInterrupt

    futures: list[Ahead[bool]] = []
    with pytest.raises(KeyboardInterrupt):
        leave()
    assert not go_on.is_set()
    go_on.set()
    assert futures[0].result(), "it was still at work"


def test_work_is_done_once_and_its_error_comes_where_the_result_is_wanted() -> None:
    done: list[int] = []

    def work() -> None:
        done.append(1)
        raise ValueError("no")

    with ahead.threads() as pool:
        one = Ahead(pool, work)
        one.start()
        for _ in range(2):
            with pytest.raises(ValueError, match="no"):
                one.result()
    assert done == [1]
