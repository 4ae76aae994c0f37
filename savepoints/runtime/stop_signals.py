"""Ending in order when somebody asks this process to end."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOG = logging.getLogger(__name__)


def ending() -> list[signal.Signals]:
    """Return the signals by which a machine asks a process to end.

    A SIGHUP that is ignored stays so: that is what `nohup` is for.
    """
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGTERM] if is_ignored else [signal.SIGTERM, signal.SIGHUP]


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Let those of `ending` and SIGINT call `stop`, as `Runner.stop`; a second is obeyed at once.

    In another thread than the main one nothing changes: Python gives signals to that one only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, _frame: object) -> None:
        _LOG.info("signal %s: ending after the current batch", number)
        for one, before in previous.items():
            signal.signal(one, before)
        stop()

    previous = {one: signal.signal(one, handle) for one in (signal.SIGINT, *ending())}
    try:
        yield
    finally:
        for one, before in previous.items():
            signal.signal(one, before)
