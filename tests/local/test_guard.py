"""The guard, with small shell commands in its care."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from savepoints.local import guard

DEADLINE_SECONDS = 30.0


@contextmanager
def guarded(script: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a guard over a shell script whose output goes to a file."""
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, "--", "/bin/sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=output,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()


def wait_for(text: str, log: Path) -> None:
    """Wait until the file has the text."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while text not in log.read_text():
        assert time.monotonic() < deadline, f"no {text!r} in {log.read_text()!r}"
        time.sleep(0.02)


def group_exists(group: int) -> bool:
    """Say whether anyone is left in the process group."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def wait_until_gone(group: int) -> None:
    """Wait until nobody is left in the process group."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while group_exists(group):
        assert time.monotonic() < deadline, f"process group {group} is still there"
        time.sleep(0.02)


def test_the_exit_code_of_the_command_is_passed_on(tmp_path: Path) -> None:
    with guarded("exit 7", tmp_path / "log") as process:
        assert process.wait(DEADLINE_SECONDS) == 7


def test_the_end_of_the_parent_stops_the_whole_group(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with guarded("sleep 600 & echo group $$.; wait", log) as process:
        wait_for(".", log)
        group = int(log.read_text().split()[1].rstrip("."))
        assert group_exists(group)

        assert process.stdin is not None
        process.stdin.close()

        assert process.wait(DEADLINE_SECONDS) == 128 + signal.SIGTERM
        wait_until_gone(group)


def test_ctrl_c_is_left_to_the_parent_and_sigterm_is_obeyed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with guarded(
        "trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.1; done", log
    ) as process:
        wait_for("ready", log)
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)

        process.send_signal(signal.SIGTERM)

        assert process.wait(DEADLINE_SECONDS) == 3
        wait_for("asked", log)


def test_what_the_command_leaves_behind_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with guarded("(trap '' TERM; sleep 600) & echo group $$.", log) as process:
        process.wait(DEADLINE_SECONDS)
        wait_until_gone(int(log.read_text().split()[1].rstrip(".")))


def test_a_command_that_ignores_sigterm_is_killed() -> None:
    script = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    with subprocess.Popen(
        ["/bin/sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True
    ) as command:
        assert command.stdout is not None
        command.stdout.readline()

        assert guard.stop(command, grace_seconds=0.3) == -signal.SIGKILL
