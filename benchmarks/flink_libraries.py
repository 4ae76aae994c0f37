"""Flink from PyPI, in an environment of its own: downloaded once, and kept in the cache.

Only its jars are used, by Java; nothing of it is imported into this process.
"""

from __future__ import annotations

import hashlib
import logging
import subprocess
import venv
from pathlib import Path

from savepoints.errors import EnvironmentUnfitError
from savepoints.local.cache import cache_directory, filling

_LOG = logging.getLogger(__name__)
_PINNED = Path(__file__).with_name("flink.txt")

# Flink's own defaults for Java 17.
_OPENED = ("lang", "net", "io", "nio", "lang.reflect", "text", "time", "util", "util.concurrent")
_MODULES = (
    "--add-exports=java.base/sun.net.util=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED),
)
_LOGGING = """\
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
appender.console.name = console
appender.console.type = CONSOLE
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %-5p %c{1} %m%n%throwable
"""


def jars() -> Path:
    """Return the directory of Flink's jars, downloading them when the cache does not have them yet.

    The environment is called after what is pinned, and is complete when it has a file `complete`.

    Raises:
        EnvironmentUnfitError: If pip cannot install it.
    """
    digest = hashlib.sha256(_PINNED.read_bytes()).hexdigest()[:16]
    place = cache_directory() / "flink" / digest
    with filling(place.parent):
        if not (place / "complete").exists():
            _install(place)
    return next(place.glob("lib/python*/site-packages/pyflink/lib"))


def java_options(directory: Path, heap_mb: int) -> tuple[str, ...]:
    """Return the options of a JVM that runs Flink; what they name is made.

    Args:
        directory: Where it logs and leaves temporary files.
        heap_mb: Most memory of its heap.
    """
    logging_file = directory / "log4j2.properties"
    logging_file.write_text(_LOGGING)
    temporary = directory / "tmp"
    temporary.mkdir(exist_ok=True)
    return (
        f"-Xmx{heap_mb}m",
        f"-Dlog4j2.configurationFile={logging_file}",
        f"-Djava.io.tmpdir={temporary}",
        *_MODULES,
    )


def _install(place: Path) -> None:
    _LOG.info("downloading Flink (330 MB) into %s, this once", place)
    venv.create(place, with_pip=True, clear=True)
    pip = (str(place / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check")
    done = subprocess.run(
        [*pip, "--quiet", "--no-deps", "--require-hashes", "--requirement", str(_PINNED)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        message = f"pip cannot install what {_PINNED} pins: {done.stderr.strip()}"
        raise EnvironmentUnfitError(message, hint="is PyPI, or a mirror of it, reachable?")
    (place / "complete").touch()
