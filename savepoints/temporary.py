"""Directories for temporary files that nobody has to remove after a process that was killed.

Beside each lies a file that its process keeps locked, and whoever makes a directory removes those
whose lock is free. Process numbers would not do: containers that share a disk count their own. The
file has an ending that nobody else uses, for what lies beside it is removed unseen.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

_PREFIX, _LOCK = "savepoints-", ".savepoints-lock"
# Open locks of this process, by directory.
_HELD: dict[Path, IO[str]] = {}


def directory(name: str, parent: str | Path | None = None) -> Path:
    """Make an empty directory, which goes when this process ends, or when a later one makes one.

    Only its user may read it.

    Args:
        name: What is in it; a part of its own name.
        parent: Where to make it; the system's directory for temporary files by default.

    Raises:
        OSError: If that cannot be written.
    """
    above = Path(parent or tempfile.gettempdir())
    _remove_abandoned(above)
    descriptor, text = tempfile.mkstemp(prefix=f"{_PREFIX}{name}-", suffix=_LOCK, dir=above)
    lock, path = os.fdopen(descriptor, "w"), Path(text)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not path.exists():  # Another process took it for abandoned before it was locked.
        lock.close()
        return directory(name, parent)
    made = path.with_suffix("")
    made.mkdir(mode=0o700)
    _HELD[made] = lock
    atexit.register(remove, made)
    return made


def remove(made: Path) -> None:
    """Remove a directory that `directory` made; removed before, nothing happens."""
    if (lock := _HELD.pop(made, None)) is not None:
        _remove(Path(f"{made}{_LOCK}"))
        lock.close()


def _remove_abandoned(above: Path) -> None:
    for path in above.glob(f"{_PREFIX}*{_LOCK}"):
        # Of another user, or gone.
        with suppress(OSError), path.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)


def _remove(path: Path) -> None:
    """Remove a directory and its lock file, the latter last: without it nobody would look again."""
    shutil.rmtree(path.with_suffix(""), ignore_errors=True)
    path.unlink(missing_ok=True)
