"""The jars of Spark's and of the broker's class path: downloaded once, checked, cached.

There is a set for each version of Spark and one for the broker. Ivy, which ships inside
PySpark, downloads exactly what a set's `ivy.xml` lists, and every jar must have the
checksum that its `SHA256SUMS` says. The cache lies outside the checkout, in a directory
named after the digest of `SHA256SUMS`, which appears under its name only when it is
complete. From then on no Java and no network is needed to find the jars.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from savepoints.errors import EnvironmentUnfitError, MissingExtraError
from savepoints.local.cache import cache_directory, filling
from savepoints.local.java import find_java
from savepoints.spark.versions import SparkVersion

logger = logging.getLogger(__name__)

LOCKS = Path(__file__).parent / "resources" / "jars"

# Given to a jar when its checksum was found right. Whoever writes to the jar later
# changes it, so that a look at the times is enough to know which to check again.
_CHECKED_AT = 1_000_000_000

_IVY_LINES_SHOWN = 15


@dataclass(frozen=True)
class Jars:
    """The jars, as they lie in the cache.

    Attributes:
        spark: What a Spark session needs beyond PySpark's own jars, all in one directory.
    """

    spark: tuple[Path, ...]
    kafka: tuple[Path, ...]

    @property
    def spark_directory(self) -> Path:
        """Where Spark's are, and nothing else."""
        return self.spark[0].parent


def resolve_jars() -> Jars:
    """Return the jars of the installed Spark and of the broker, downloaded when they are not there.

    Raises:
        EnvironmentUnfitError: If there is no set for that version of Spark, the download fails, or
            a jar is missing or damaged.
    """
    lock = spark_lock(SparkVersion.installed())
    return Jars(spark=resolve(lock), kafka=resolve(LOCKS / "broker"))


def spark_lock(version: SparkVersion | None) -> Path:
    """Return the directory of the set for a version of Spark.

    Raises:
        MissingExtraError: If there is no PySpark.
        EnvironmentUnfitError: If there is no set for it.
    """
    if version is None:
        raise _no_pyspark()
    lock = LOCKS / f"spark-{version}"
    if not lock.is_dir():
        known = sorted(one.name.removeprefix("spark-") for one in LOCKS.glob("spark-*"))
        raise EnvironmentUnfitError(
            f"there is no list of jars for the installed Spark {version}",
            hint=f"install PySpark {', '.join(known[:-1])} or {known[-1]}, or set SAVEPOINTS_JARS "
            "to a directory with the Delta, Kafka and S3A jars for your version",
        )
    return lock


def resolve(lock_directory: Path) -> tuple[Path, ...]:
    """Return the jars of one set, downloading them when the cache does not have them yet.

    Args:
        lock_directory: Where its `ivy.xml` and `SHA256SUMS` are.

    Raises:
        EnvironmentUnfitError: If the download fails, or a jar is missing or damaged.
    """
    lock = (lock_directory / "SHA256SUMS").read_bytes()
    checksums = _parse(lock.decode())
    cache = cache_directory() / "jars"
    directory = cache / hashlib.sha256(lock).hexdigest()[:16]
    if not directory.is_dir():
        with filling(cache):
            if not directory.is_dir():
                _download(lock_directory, checksums, directory)
    problems = _problems(directory, checksums)
    if problems:
        message = f"the cached jars in {directory} are damaged: {'; '.join(problems.values())}"
        hint = f"remove {directory} and run the command again"
        raise EnvironmentUnfitError(message, hint=hint, jars=sorted(problems))
    return tuple(directory / name for name in checksums)


def pyspark_directory() -> Path:
    """Find PySpark without importing it, which would take a second."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise _no_pyspark()
    return Path(spec.submodule_search_locations[0])


def _no_pyspark() -> MissingExtraError:
    return MissingExtraError("PySpark is not installed", hint="pip install 'savepoints[spark]'")


def _parse(lock: str) -> dict[str, str]:
    """Return the SHA-256 of each jar of a lock, by its path below the directory."""
    lines = (line.split(maxsplit=1) for line in lock.splitlines())
    return {name: checksum for checksum, name in lines}


def _download(lock_directory: Path, checksums: dict[str, str], directory: Path) -> None:
    """Let Ivy fetch the jars, check them, and give the directory its name."""
    part = directory.with_suffix(".part")
    ivy_cache = directory.with_suffix(".ivy")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    logger.info("downloading %d jars into %s (only once)", len(checksums), directory)
    output = _run_ivy(lock_directory, part, ivy_cache)
    problems = _problems(part, checksums)
    if problems:
        # Ivy would hand out the same bytes again from its own cache.
        shutil.rmtree(ivy_cache, ignore_errors=True)
        message = f"the downloaded jars do not match the lock file: {'; '.join(problems.values())}"
        raise EnvironmentUnfitError(
            f"{message}\n{output}",
            hint=f"compare the checksums of the jars with {lock_directory / 'SHA256SUMS'}: a "
            "mirror may have changed the jars",
            jars=sorted(problems),
        )
    part.rename(directory)
    shutil.rmtree(ivy_cache, ignore_errors=True)


def _run_ivy(lock_directory: Path, part: Path, ivy_cache: Path) -> str:
    """Run Ivy and return the last lines that it printed."""
    settings = Path(os.environ.get("SAVEPOINTS_IVY_SETTINGS") or LOCKS / "ivysettings.xml")
    if not settings.is_file():
        message = f"SAVEPOINTS_IVY_SETTINGS names {settings}, which is not a file"
        raise EnvironmentUnfitError(message, hint="set it to an ivysettings.xml, or unset it")
    ivy = next((pyspark_directory() / "jars").glob("ivy-*.jar"))
    command = [
        str(find_java().executable),
        f"-Divy.default.ivy.user.dir={ivy_cache}",
        *("-jar", str(ivy)),
        *("-settings", str(settings)),
        *("-cache", str(ivy_cache)),
        *("-ivy", str(lock_directory / "ivy.xml")),
        *("-confs", "*"),
        *("-types", "jar", "bundle"),  # four of Kafka's jars are of the type bundle
        *("-retrieve", f"{part}/[conf]/[artifact]-[revision].[ext]"),
    ]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    output = "\n".join(done.stdout.splitlines()[-_IVY_LINES_SHOWN:])
    if done.returncode != 0:
        message = f"the jars cannot be downloaded; Ivy's last lines:\n{output}"
        hint = "use a mirror of Maven Central: set SAVEPOINTS_IVY_SETTINGS=/path/ivysettings.xml"
        raise EnvironmentUnfitError(message, hint=hint)
    return output


def _problems(directory: Path, checksums: dict[str, str]) -> dict[str, str]:
    """Say what is wrong with which jar; jars unchanged since the last time are not read."""
    problems = {}
    for name, wanted in checksums.items():
        jar = directory / name
        try:
            if jar.stat().st_mtime == _CHECKED_AT:
                continue
            found = hashlib.sha256(jar.read_bytes()).hexdigest()
        except FileNotFoundError:
            problems[name] = f"{name} is missing"
            continue
        if found == wanted:
            os.utime(jar, (_CHECKED_AT, _CHECKED_AT))
        else:
            problems[name] = f"{name} has the SHA-256 {found} instead of {wanted}"
    return problems
