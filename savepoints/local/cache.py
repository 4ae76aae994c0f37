"""The directory for what is downloaded or made once, and later processes of this machine use."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from savepoints.errors import EnvironmentUnfitError

_HINT = "set SAVEPOINTS_CACHE to a directory that this user can write to"


def cache_directory() -> Path:
    """Return it: `$SAVEPOINTS_CACHE`, or XDG's.

    Raises:
        EnvironmentUnfitError: If that is in the home directory of a user who has none.
    """
    chosen = os.environ.get("SAVEPOINTS_CACHE")
    if chosen:
        return Path(chosen).absolute()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "savepoints"
    try:
        return Path.home() / ".cache" / "savepoints"
    except RuntimeError:
        raise EnvironmentUnfitError(
            "there is no place for what is downloaded once: this user has no home directory",
            hint=_HINT,
        ) from None


@contextmanager
def filling(directory: Path) -> Iterator[None]:
    """Let one process fill a directory of the cache, and the others wait.

    Raises:
        EnvironmentUnfitError: If it cannot be written to.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / "lock").open("w")
    except OSError as error:
        raise EnvironmentUnfitError(
            f"cannot write to {directory}, for what is downloaded once: {error.strerror}",
            hint=_HINT,
            directory=str(directory),
        ) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
