"""Which signals end a run in order, and where none can."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from savepoints.operations.run.pause_for_verb import ended_by_signals
from savepoints.runtime.stop_signals import stopped_by_signals


@pytest.fixture(params=[signal.SIG_DFL, signal.SIG_IGN], ids=["terminal", "nohup"])
def hang_up(request: pytest.FixtureRequest) -> Iterator[signal.Handlers]:
    """Be a process of a terminal, or of `nohup`, which ignores that its terminal is closed."""
    before = signal.signal(signal.SIGHUP, request.param)
    yield request.param
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_the_run_to_end_and_the_next_is_as_before(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    asked: list[str] = []

    with stopped_by_signals(lambda: asked.append("stop")):
        os.kill(os.getpid(), number)
        assert signal.getsignal(number) == before

    assert asked == ["stop"]


def test_trap_a_hang_up_kills_a_run_before_its_last_savepoint(
    hang_up: signal.Handlers,
) -> None:
    """Unless it is one of `nohup`."""
    asked: list[str] = []

    with stopped_by_signals(lambda: asked.append("stop")):
        is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        if not is_ignored:
            os.kill(os.getpid(), signal.SIGHUP)

    assert is_ignored == (hang_up is signal.SIG_IGN)
    assert asked == ([] if is_ignored else ["stop"])
    assert signal.getsignal(signal.SIGHUP) is hang_up


def test_trap_nohup_does_not_keep_a_terminal_from_ending_a_rollback(
    hang_up: signal.Handlers,
) -> None:
    """That of a query that is paused for it."""
    with ended_by_signals():
        is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN

    assert is_ignored == (hang_up is signal.SIG_IGN)


def test_trap_a_program_that_runs_queries_in_threads_gets_a_value_error() -> None:
    """Python lets only the main thread handle signals."""
    before = signal.getsignal(signal.SIGTERM)

    def run() -> object:
        with stopped_by_signals(lambda: None):
            return signal.getsignal(signal.SIGTERM)

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(run).result() == before
