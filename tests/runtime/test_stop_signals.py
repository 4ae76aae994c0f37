"""Which signals end a run in order, and where none can."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

from savepoints.runtime.stop_signals import stopped_by_signals


def test_a_signal_asks_the_run_to_end_and_the_next_is_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    asked: list[str] = []

    with stopped_by_signals(lambda: asked.append("stop")):
        os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) == before

    assert asked == ["stop"]


def test_trap_a_program_that_runs_queries_in_threads_gets_a_value_error() -> None:
    """Python lets only the main thread handle signals."""
    before = signal.getsignal(signal.SIGTERM)

    def run() -> object:
        with stopped_by_signals(lambda: None):
            return signal.getsignal(signal.SIGTERM)

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(run).result() == before
