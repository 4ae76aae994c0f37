"""Spark's classes, loaded and verified once: an archive that later JVMs map into their memory.

Spark loads some 15,000 classes before its first batch, which is a third of what a short program
costs. Java keeps them in an archive (JEP 350, `-XX:ArchiveClassesAtExit`), which it uses only where
Java and the class path are the same, and passes over without a word otherwise.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from savepoints.errors import EnvironmentUnfitError
from savepoints.local.cache import cache_directory, filling
from savepoints.local.jars import Jars, pyspark_directory
from savepoints.local.java import Java

logger = logging.getLogger(__name__)

_SCRIPT = Path(__file__).parent / "resources" / "local" / "load_classes.py"
# Of an archive that does not fit, Java warns on stdout, where a command may print JSON.
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_SECONDS = 180
# Archives: each environment has its own, also one that is gone.
_KEPT = 10


def java_option(java: Java, jars: Jars) -> str:
    """Return the options of Java that make Spark start faster on this machine.

    The archive is made when it is first asked for, which takes a quarter of a minute, and lies in
    the cache (200 MB).

    Returns:
        The options; empty where no archive can be made.
    """
    spark = pyspark_directory()
    # Java compares the times of the jars, too, and uses no archive of others.
    installed = (spark / "jars").stat().st_mtime_ns
    parts = (java.version, str(java.home), metadata.version("pyspark"), str(spark), str(installed))
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    archive = cache_directory() / "classes" / f"{name}.jsa"
    if not archive.is_file():
        try:
            with filling(archive.parent):
                if not archive.is_file():
                    _make(archive, java, jars)
        except (EnvironmentUnfitError, subprocess.SubprocessError, OSError) as error:
            _warn(error)
            return ""
    return f"-XX:SharedArchiveFile={archive} {_SILENT}"


def _make(archive: Path, java: Java, jars: Jars) -> None:
    """Run a small query and keep the classes that it loaded."""
    base = java.home / "lib" / "server" / "classes.jsa"
    if not base.is_file():
        raise EnvironmentUnfitError(
            f"{java.home} lacks Java's own archive, {base}, which it is made on top of",
            hint=f"make it: {java.executable} -Xshare:dump",
        )
    part = archive.with_suffix(".part")
    for left in archive.parent.glob("*.part"):  # of a process that was killed: only one makes any
        left.unlink()
    logger.info("archiving classes so that Spark starts faster from now on (takes about a minute)")
    command = [sys.executable, str(_SCRIPT), str(part), ",".join(map(str, jars.spark))]
    # Otherwise the script's workers are the `python3` of the path, which may be of another version.
    own = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True, env=own)
    part.rename(archive)
    used = sorted(archive.parent.glob("*.jsa"), key=lambda one: -one.stat().st_atime)
    for other in used[_KEPT:]:
        other.unlink()


def _warn(error: Exception) -> None:
    """Say why there is no archive: only time is lost."""
    # Errors of the script would say its command, which has the paths of all jars.
    why = str(error)
    if isinstance(error, subprocess.TimeoutExpired):
        why = f"it took more than {_SECONDS} s; the next start tries again"
    elif isinstance(error, EnvironmentUnfitError):
        why = f"{error.message} ({error.hint})"
    elif isinstance(error, subprocess.CalledProcessError):
        why = " ".join((f"exit code {error.returncode}", *error.stderr.splitlines()[-1:]))
    logger.warning(
        "could not archive Spark's classes (%s): Spark works as always, but starts more slowly",
        why,
    )
