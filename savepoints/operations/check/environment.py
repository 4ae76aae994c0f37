"""Is this machine fit: Java, Python, packages, jars, and Spark's settings. No JVM is started."""

from __future__ import annotations

import re
import sys
from collections import Counter
from importlib import metadata

from savepoints.config.settings import Settings
from savepoints.errors import EnvironmentUnfitError
from savepoints.local.java import find_java
from savepoints.operations.inspect.findings import Seen
from savepoints.uri import Uri

_PACKAGES = ("pyspark", "delta-spark", "deltalake")
_LOG_STORE = "spark.delta.logStore."
_MANY_DRIVERS = "DynamoDB"
_SPECIFIER = re.compile(r"(==|>=|<)([\d.]+)")
_PYTHON = (3, 11)


def check_environment(settings: Settings) -> list[Seen]:
    """Look at this machine and at the settings."""
    runs = any(query.app for query in settings.queries.values())
    return [
        _java(),
        _python(),
        *(_package(name, wanted=runs or name == "deltalake") for name in _PACKAGES),
        _jars(settings),
        _log_store(settings),
    ]


def _java() -> Seen:
    try:
        java = find_java()
    except EnvironmentUnfitError as error:
        return Seen(
            "Java", "warning", f"{error.message}: commands that need a JVM will fail", error.hint
        )
    return Seen("Java", "ok", f"{java.version} ({java.executable})")


def _python() -> Seen:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _PYTHON:  # pragma: no cover  (it would not get here)
        return Seen("Python", "broken", version, "use Python 3.11 or newer")
    return Seen("Python", "ok", version)


def _package(name: str, *, wanted: bool) -> Seen:
    """Compare what is installed with what this package was tested with."""
    bounds = _bounds(name)
    text = ",".join(f"{operator}{version}" for operator, version in bounds)
    install = f"pip install '{name}{text}'"
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        grade = "warning" if wanted else "ok"
        what = "is not installed: commands that need a JVM will fail"
        return Seen(name, grade, what, install if wanted else "")  # type: ignore[arg-type]
    if all(_fits(found, *bound) for bound in bounds):
        return Seen(name, "ok", f"{found}, a tested version ({text})")
    what = f"{found} is installed; tested versions: {text}"
    return Seen(name, "warning", what, f"{install}; test a restore before you rely on it")


def _bounds(name: str) -> list[tuple[str, str]]:
    """Return what this package's own metadata asks of another, such as `[("==", "4.2.0")]`."""
    for line in metadata.requires("savepoints") or ():
        requirement = line.partition(";")[0].strip()
        if re.split(r"[\s<>=!~\[]", requirement)[0] == name:
            return _SPECIFIER.findall(requirement)
    return []


def _fits(found: str, operator: str, version: str) -> bool:
    left, right = _numbers(found), _numbers(version)
    return {"==": left == right, ">=": left >= right, "<": left < right}[operator]


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def _jars(settings: Settings) -> Seen:
    if settings.jars is None:
        packages = settings.spark.conf.get("spark.jars.packages")
        what = (
            f"spark.jars.packages: {packages}" if packages else "not set: Spark uses its own jars"
        )
        return Seen("jars", "ok", what)
    count = len(list(settings.jars.glob("*.jar")))
    if count == 0:
        advice = "set `jars` to the directory with the jars of Delta, Kafka and S3A"
        return Seen("jars", "broken", f"there are no jars in {settings.jars}", advice)
    return Seen("jars", "ok", f"{count} in {settings.jars}")


def _log_store(settings: Settings) -> Seen:
    """Spark's own way of committing to Delta on S3 is safe for one driver at a time only."""
    stores = {k: v for k, v in settings.spark.conf.items() if k.startswith(_LOG_STORE)}
    uris = [
        uri
        for query in settings.queries.values()
        for uri in {str(Uri.parse(uri)) for uri in query.outputs.values()}
        if Uri.parse(uri).scheme == "s3"
    ]
    shared = [uri for uri, count in Counter(uris).items() if count > 1]
    text = ", ".join(f"{key}={value}" for key, value in stores.items()) or "Delta's default"
    if any(_MANY_DRIVERS in value for value in stores.values()):
        return Seen(
            "log store", "ok", f"{text}: several Spark drivers may write to one table on S3"
        )
    alone = "only one Spark driver at a time may write to a table on S3"
    if shared:
        return Seen(
            "log store",
            "broken",
            f"{text}: {alone}, but {shared[0]} is an output of several queries",
            "one driver's commits can overwrite another's: give each query its own tables, or "
            f"set {_LOG_STORE}s3a.impl to io.delta.storage.S3DynamoDBLogStore in every driver",
        )
    what = f"{text}: {alone}; the lease guarantees that for tables that `run` writes"
    return Seen("log store", "ok", what)
