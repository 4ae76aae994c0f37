"""Tests of `savepoints.spark.threads`."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from savepoints.spark import threads


def test_an_error_does_not_wait_for_the_other_threads() -> None:
    """Ctrl-C would otherwise be answered only when a Spark job of many minutes has ended."""
    begun, go_on = threading.Event(), threading.Event()
    futures: list[Future[bool]] = []

    def work() -> bool:
        begun.set()
        return go_on.wait(20)

    def leave() -> None:
        with threads.pool() as pool:
            futures.append(pool.submit(work))
            begun.wait()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leave()
    assert not go_on.is_set()
    go_on.set()
    assert futures[0].result(), "it was still at work"
