"""Named crash points, so that tests can kill a verb at every one of its steps.

Each step of a multi-step verb calls `reach` when its effect is done but not yet recorded: the worst
moment to die. Setting `SAVEPOINTS_CRASH_AT` to a name kills the process there with SIGKILL.
"""

from __future__ import annotations

import os
import signal


def reach(point: str) -> None:
    """Die here if `SAVEPOINTS_CRASH_AT` names this point, otherwise do nothing."""
    if os.environ.get("SAVEPOINTS_CRASH_AT") == point:
        os.kill(os.getpid(), signal.SIGKILL)
