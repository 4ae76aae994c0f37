"""A verb that dies at a step, in this process: what a restart finds is what it left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from savepoints import faults


class KilledError(BaseException):
    """Stands for a death of the process: nothing of the verb goes on after it."""


def killed_at(monkeypatch: pytest.MonkeyPatch, point: str, verb: Callable[[], object]) -> None:
    """Let a verb die where it reaches a point, which it must."""

    def die(name: str) -> None:
        if name == point:
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(faults, "reach", die)
        with pytest.raises(KilledError):
            verb()


@contextmanager
def dying(after: int, died: Callable[[str], None]) -> Iterator[None]:
    """Let what is done within die at its so many-th crash point, if it has as many."""
    left = after

    def die(name: str) -> None:
        nonlocal left
        # A batch runs in another thread, for whose answer Spark would wait for ever.
        if threading.current_thread() is not threading.main_thread():
            return
        left -= 1
        if not left:
            died(name)
            raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faults, "reach", die)
        yield
