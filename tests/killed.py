"""A verb that dies at a step, in this process: what a restart finds is what it left behind."""

from __future__ import annotations

from collections.abc import Callable

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
