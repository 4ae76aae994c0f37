"""The standard streams of a command, as cron, daemons and old terminals leave them."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

_STREAMS = ("stdin", "stdout", "stderr")


def prepare() -> None:
    """Make the standard streams such that no text and no closed one ends a command.

    Of those that are closed Python has none, and the next file that is opened gets the descriptor:
    it would have what Java prints. A character that a terminal does not have is written as `\\u…`.
    """
    for descriptor, name in enumerate(_STREAMS):
        if getattr(sys, name) is None:
            _open_on_nothing(descriptor)
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: SIM115, PTH123 - for good
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _open_on_nothing(descriptor: int) -> None:
    with suppress(OSError):
        os.fstat(descriptor)
        return  # Something has it already.
    nothing = os.open(os.devnull, os.O_RDWR)
    if nothing != descriptor:
        os.dup2(nothing, descriptor)
        os.close(nothing)
