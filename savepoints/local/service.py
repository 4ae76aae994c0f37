"""One process of the local world, from its start to its end."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from savepoints.errors import EnvironmentUnfitError, TargetExistsError
from savepoints.local import guard

logger = logging.getLogger(__name__)

_START_SECONDS = 90.0
_POLL_SECONDS = 0.05
_LAUNCHES = 5
_LOG_LINES_SHOWN = 15


@dataclass(frozen=True)
class Launch:
    """One try to start a service, on ports that were free a moment ago.

    Attributes:
        is_ready: Whether it answers; must return soon, and `OSError` means no.
    """

    command: tuple[str, ...]
    endpoint: str
    is_ready: Callable[[], bool]


class Service:
    """A service that was launched: wait until it is ready, check on it, stop it.

    While it runs it holds a lock on `NAME.lock` in its directory. A process id alone
    could by now be that of somebody else; a lock is gone with its last holder.
    """

    def __init__(
        self, name: str, prepare: Callable[[], Launch], directory: Path, *, detach: bool
    ) -> None:
        """Launch the service, without waiting for it.

        Args:
            prepare: Makes one launch; is called again when a port was taken meanwhile.

        Raises:
            TargetExistsError: If a service of that name runs in the directory.
        """
        self.name = name
        self.log = directory / f"{name}.log"
        self._prepare = prepare
        self._directory = directory
        self._detach = detach
        self._launch()

    @property
    def endpoint(self) -> str:
        """Where clients find it, once it is ready."""
        return self._launched.endpoint

    @property
    def pid(self) -> int:
        """Its process id: of the service if it is detached, of its guard otherwise."""
        return self._process.pid

    def wait_ready(self) -> None:
        """Wait until the service answers, launching it again if its port was taken.

        Raises:
            EnvironmentUnfitError: If it ends, or does not answer in time.
        """
        started = time.monotonic()
        launches = 1
        while not self._answers():
            if self._process.poll() is not None:
                if launches == _LAUNCHES or "address already in use" not in self._tail().lower():
                    raise self._failure("ended")
                launches += 1
                self._close_pipe()
                self._launch()
            if time.monotonic() - started > _START_SECONDS:
                raise self._failure(f"did not respond within {_START_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)
        logger.info(
            "%s is up at %s after %.1f s", self.name, self.endpoint, time.monotonic() - started
        )

    def check(self) -> None:
        """Make sure that the service still runs."""
        if self._process.poll() is not None:
            raise self._failure("ended")

    def stop(self) -> None:
        """Stop the service and wait until it is gone. Does nothing the second time."""
        if self._detach:
            stop_detached(self.name, self._process.pid, self._directory)
        self._close_pipe()
        self._process.wait()

    def let_go(self) -> None:
        """Forget a detached process without the warning that it still runs."""
        self._process.returncode = 0

    def _launch(self) -> None:
        lock = _lock(self.name, self._directory)
        with ExitStack() as stack:
            stack.callback(os.close, lock)
            self._launched = self._prepare()
            log = stack.enter_context(self.log.open("wb"))
            command = self._launched.command
            if not self._detach:
                command = guard.guarded(*command)
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL if self._detach else subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[lock],
                start_new_session=True,  # out of reach of Ctrl-C and of a shell that kills its job
            )

    def _close_pipe(self) -> None:
        """Let the guard believe that its parent has ended."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _answers(self) -> bool:
        with suppress(OSError):
            return self._launched.is_ready() and self._process.poll() is None
        return False

    def _tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:])

    def _failure(self, what: str) -> EnvironmentUnfitError:
        message = f"{self.name} {what}; the last lines of {self.log}:\n{self._tail()}"
        return EnvironmentUnfitError(
            message, hint=f"read the whole log: {self.log}", service=self.name
        )


def free_ports(count: int) -> list[int]:
    """Find ports on which nothing listens now; somebody may take them before we do."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def stop_detached(name: str, pid: int, directory: Path) -> None:
    """Stop a service that was started to stay. Does nothing if it has ended."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + guard.GRACE_SECONDS
        while time.monotonic() < deadline:
            try:
                os.close(_lock(name, directory))
            except TargetExistsError:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, number)
            else:
                return
            time.sleep(_POLL_SECONDS)


def _lock(name: str, directory: Path) -> int:
    """Take the lock of a service; it is held until every copy of the descriptor is closed."""
    descriptor = os.open(directory / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        message = f"the local service {name} is already running in {directory}"
        hint = f"choose another directory, or stop it: python -m savepoints.local down {directory}"
        raise TargetExistsError(message, hint=hint, directory=str(directory)) from None
    return descriptor
