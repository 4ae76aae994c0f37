"""Whether a classic Spark session can be had here: not with Spark Connect, nor an untested version.

Verbs that need Spark reach its JVM through py4j (private classes, Hadoop's file systems,
`addPyFile`). A session of Spark Connect is the client of a server elsewhere, and has none.
"""

from __future__ import annotations

import os

from savepoints.config.settings import SparkSettings
from savepoints.errors import IncompatibleError
from savepoints.spark import versions
from savepoints.spark.versions import SparkVersion

_CLIENT = "pyspark.sql.connect"
# Variables with which `SparkSession.builder` makes a Connect session, and their values; None for
# any. PySpark sets the second one itself when it has made one.
_VARIABLES = {
    "SPARK_REMOTE": None,
    "SPARK_CONNECT_MODE_ENABLED": None,
    "SPARK_API_MODE": "connect",
    "SPARK_CONNECT_MODE": "1",
}
_HINT = (
    "unset SPARK_REMOTE and set [spark] master to a master other than sc://…, or run the command "
    "through spark-submit; list, show, verify, create --format native and a native restore need no "
    "session"
)


def require(spark: object) -> None:
    """Refuse a session that was given if it is Spark Connect's, or of an untested version."""
    if type(spark).__module__.startswith(_CLIENT):
        raise _refused("the given session is a Spark Connect session")
    SparkVersion.of(str(getattr(spark, "version", ""))).require_supported()


def require_possible(spark: SparkSettings | None = None) -> None:
    """Refuse, before anything begins, where a session would be Spark Connect's or untested.

    Args:
        spark: How a session would be made.

    Raises:
        IncompatibleError: If the settings, the environment or the installed PySpark say so.
    """
    if version := SparkVersion.installed():
        version.require_supported()
    if problem := _connect(spark):
        raise _refused(problem)


def problem() -> str | None:
    """Return why this process cannot have a classic session; None if it can, or has no PySpark.

    Nothing is imported: commands that need no JVM ask.
    """
    version = SparkVersion.installed()
    return None if version is None else version.unsupported or _connect(None)


def _connect(spark: SparkSettings | None) -> str | None:
    for name, value in _VARIABLES.items():
        found = os.environ.get(name)
        if found and value in {None, found.lower()}:
            return f"{name}={found} makes PySpark use Spark Connect in this process"
    if spark is not None:
        if "spark.remote" in spark.conf or spark.conf.get("spark.api.mode") == "connect":
            return "[spark.conf] makes PySpark use Spark Connect"
        if spark.master.startswith("sc://"):
            return f"[spark] master = {spark.master} is a Spark Connect server"
    if versions.is_connect_client():
        return "the installed PySpark is only the client of Spark Connect (pyspark-client)"
    return None


def _refused(problem: str) -> IncompatibleError:
    return IncompatibleError(
        f"{problem}, but this command needs a session with a JVM of its own", hint=_HINT
    )
