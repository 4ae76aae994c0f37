"""Create Spark sessions: jars, Delta, S3A, and the settings that all our jobs need.

Only settings that Delta on S3 requires are set here; everything else is the user's, under Spark's
own names.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from savepoints import aws
from savepoints.config.settings import Settings
from savepoints.errors import EnvironmentUnfitError, MissingExtraError
from savepoints.spark import classic, executors, private_api
from savepoints.spark.versions import SparkVersion

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Small tables: Delta's 50 tasks for reading its own log cost seconds per commit.
    "spark.databricks.delta.snapshotPartitions": "2",
}
# From this many rows on, compiling a query and adapting its plan pays.
_MANY_ROWS = 50_000
_FOR_FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
# Of the user's settings, those that would change what our own queries read and write: rows passed
# over, replaced in part, split into more files, rounded, or read as other types.
_AS_SPARK_HAS_THEM = (
    "spark.sql.files.ignoreCorruptFiles",
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.files.maxRecordsPerFile",
    "spark.sql.sources.partitionOverwriteMode",
    "spark.sql.sources.partitionColumnTypeInference.enabled",
    "spark.sql.sources.useV1SourceList",
    "spark.sql.parquet.outputTimestampType",
    "spark.sql.execution.arrow.useLargeVarTypes",
)
_TIME_ZONE = "spark.sql.session.timeZone"
# Delta refuses to read versions older than a week (`delta.deletedFileRetentionDuration`), whether
# VACUUM has removed their files or not. Where these are gone, reading them fails.
_OLD_VERSIONS = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
# Set where spark-submit has started Python: its JVM is there already, and has a master.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
_LOG4J = Path(__file__).with_name("log4j2.properties")
_QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
# PySpark tells the JVM for each function of a column which line has called it: eight calls more, in
# a merge three quarters of all.
_WITHOUT_LINES = {"spark.python.sql.dataFrameDebugging.enabled": "false"}
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def session(settings: Settings, name: str, *, names_lines: bool = False) -> SparkSession:
    """Return the active session, or create one from the settings; executors get this package.

    Args:
        names_lines: Whether errors of Spark name the lines of the program that made a column.

    Raises:
        IncompatibleError: If the installed PySpark is not supported, or Spark Connect is asked for.
        EnvironmentUnfitError: If PySpark is not installed, or Spark does not start.
    """
    classic.require_possible(settings.spark)
    try:
        from pyspark import SparkContext, __version__
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtraError(
            "PySpark and Delta, which this command needs, are not installed",
            hint="pip install 'savepoints[spark]', or pass --format native if the command has it",
        ) from None
    if SparkContext._active_spark_context is not None:
        # A running one, maybe in another thread: options would change it for everybody.
        return executors.with_package(SparkSession.builder.getOrCreate())
    if settings.spark.master.startswith("local"):
        # Local workers use this environment, even if it was not activated.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    s3a = s3a_conf(SparkVersion.of(__version__))
    lines = {} if names_lines else _WITHOUT_LINES
    conf = {**_DELTA, **_QUIET, **lines, **s3a, **_jars(settings), **settings.spark.conf}
    own = f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"
    conf[_JAVA_OPTIONS] = f"{own} {conf.get(_JAVA_OPTIONS, '')}".strip()
    builder = SparkSession.builder.appName(name)
    if _SUBMITTED not in os.environ:
        builder = builder.master(settings.spark.master)
    for key, value in conf.items():
        builder = builder.config(key, value)
    try:
        started = builder.getOrCreate()
    except PySparkException as error:
        raise EnvironmentUnfitError(
            f"Spark did not start: {error}",
            hint="check that Java 17 is installed (for example: apt-get install "
            "openjdk-17-jre-headless) and that JAVA_HOME points to it, then run the command again",
        ) from None
    private_api.end_after_python(started)
    return executors.with_package(started)


def own_session(spark: SparkSession) -> SparkSession:
    """Return a separate session for our own queries, with the settings of the cluster.

    Those that would change what these read and write are as Spark has them by default; the time
    zone is that of the given session, which may have been set in it alone. Tables can be read at
    each version whose files are there.
    """
    own = spark.newSession()
    for key in _AS_SPARK_HAS_THEM:
        own.conf.unset(key)
    own.conf.set(_TIME_ZONE, str(spark.conf.get(_TIME_ZONE)))
    own.conf.set(_OLD_VERSIONS, "false")
    return own


def session_like(spark: SparkSession) -> SparkSession:
    """Return `own_session` with another one's plan settings."""
    own = own_session(spark)
    for key in _FOR_FEW_ROWS:
        own.conf.set(key, str(spark.conf.get(key)))
    return own


def session_for(spark: SparkSession, rows: int | None) -> SparkSession:
    """Return a separate session, tuned to a number of rows, roughly; None for very many.

    With few rows, most of the time goes into compiling generated code and into adaptive plans.
    """
    own = session_like(spark)
    # The success marker is an empty file that nothing reads.
    own.conf.set("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    if rows is not None and rows < _MANY_ROWS:
        for key, value in _FOR_FEW_ROWS.items():
            own.conf.set(key, value)
    return own


def s3a_conf(version: SparkVersion) -> dict[str, str]:
    """Return Hadoop's S3A settings that correspond to AWS' own.

    Credentials are not copied: S3A asks the AWS SDK's default chain itself (environment, profile
    files, roles), as boto3 does, so Spark's configuration has no secret.
    """
    conf = {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.s3a.aws.credentials.provider": version.aws_credentials,
    }
    endpoint, region = aws.endpoint(), aws.region()
    if endpoint:
        conf["spark.hadoop.fs.s3a.endpoint"] = endpoint
        conf["spark.hadoop.fs.s3a.path.style.access"] = "true"
        conf["spark.hadoop.fs.s3a.connection.ssl.enabled"] = str(
            endpoint.startswith("https://")
        ).lower()
    if region:
        conf["spark.hadoop.fs.s3a.endpoint.region"] = region
    return conf


def _jars(settings: Settings) -> dict[str, str]:
    if settings.jars is None:
        return {}
    jars = sorted(settings.jars.glob("*.jar"))
    if not jars:
        raise EnvironmentUnfitError(
            f"the directory {settings.jars} contains no jars",
            hint="set SAVEPOINTS_JARS to the directory that contains Delta's, Kafka's and S3A's "
            "jars",
        )
    return {"spark.jars": ",".join(str(jar) for jar in jars)}
