"""Run a command and stop it when the process that wanted it is gone, however that ended.

    python -m savepoints.local.guard -- COMMAND ARGUMENT...

The parent keeps the write end of the guard's standard input open and never writes.
When the parent ends, even by SIGKILL, the system closes that end, the guard reads
the end of the file and stops the command. This works on every POSIX system; only
the standard library is used, and the file can be run by its path.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress

GRACE_SECONDS = 5.0


def guarded(*command: str) -> tuple[str, ...]:
    """Return the command with the guard in front; start it with a pipe as standard input."""
    # By its path and isolated, so that it starts in a few hundredths of a second.
    return (sys.executable, "-I", "-S", __file__, "--", *command)


def main(arguments: list[str]) -> int:
    """Run the command until it ends, the parent is gone, or SIGTERM arrives.

    Returns:
        The exit code of the command, 128 and the number when a signal ended it.
    """
    if arguments[:1] != ["--"] or len(arguments) == 1:
        sys.stderr.write("usage: guard -- COMMAND ARGUMENT...\n")
        return 2
    # Signals arrive as bytes in a pipe, so that one select waits for them and for the parent.
    wake_up, signalled = os.pipe()
    os.set_blocking(signalled, False)
    signal.set_wakeup_fd(signalled)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda _number, _frame: None)
    # Ctrl-C goes to the whole terminal; what it means is for the parent to decide.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    command = subprocess.Popen(
        arguments[1:],
        stdin=subprocess.DEVNULL,
        close_fds=False,  # what the parent passed on is meant for the command
        start_new_session=True,
    )
    parent = sys.stdin.fileno()
    while command.poll() is None:
        ready, _, _ = select.select([parent, wake_up], [], [])
        if wake_up in ready and signal.SIGTERM in os.read(wake_up, 512):
            break
        if parent in ready and not os.read(parent, 512):
            break
    code = stop(command, GRACE_SECONDS)
    return code if code >= 0 else 128 - code


def stop(command: subprocess.Popen[bytes], grace_seconds: float) -> int:
    """Stop the command and everything in its process group.

    Returns:
        The return code of the command.
    """
    _signal_group(command.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        command.wait(grace_seconds)
    # Also when the command itself has ended: it may have left children behind.
    _signal_group(command.pid, signal.SIGKILL)
    return command.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    # macOS says "not permitted" of a group that has only zombies left.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
