"""Sessions of our own, beside what users set for theirs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.outputs.compare.by_key import comparing_session
from savepoints.spark import private_api
from savepoints.spark.session import session_for
from savepoints.state.storage.read import reading_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# What users set, each to what would change the rows that are read or written.
THEIRS = {
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.files.maxRecordsPerFile": "10",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.sources.useV1SourceList": "csv",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
}


@contextmanager
def set_for_all(spark: SparkSession) -> Iterator[None]:
    """Set what users set, as `spark-defaults.conf` does, for sessions that begin from now on."""
    conf = spark.sparkContext._jsc.sc().conf()
    for key, value in THEIRS.items():
        conf.set(key, value)
    try:
        yield
    finally:
        for key in THEIRS:
            conf.remove(key)


def test_trap_settings_of_the_cluster_do_not_change_what_our_queries_read_and_write(
    spark: SparkSession,
) -> None:
    as_spark_has_it = {key: spark.newSession().conf.get(key) for key in THEIRS}

    with set_for_all(spark):
        assert {key: spark.newSession().conf.get(key) for key in THEIRS} == THEIRS
        ours = [session_for(spark, 1), reading_session(spark, 1), comparing_session(spark)]

    for own in ours:
        assert {key: own.conf.get(key) for key in THEIRS} == as_spark_has_it


def test_trap_a_time_zone_that_was_set_in_a_session_is_that_of_ours(spark: SparkSession) -> None:
    theirs = spark.newSession()
    theirs.conf.set("spark.sql.session.timeZone", "America/New_York")

    for own in (session_for(theirs, None), reading_session(theirs, 2)):
        assert own.conf.get("spark.sql.session.timeZone") == "America/New_York"


def test_trap_delta_reads_no_version_that_is_older_than_a_week(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Every merge from a base of the week before was refused, though all files were there."""
    table = str(tmp_path / "table")
    for number in range(3):
        spark.range(number, number + 1).write.format("delta").mode("append").save(table)
    for file in (tmp_path / "table" / "_delta_log").glob("*0[01].json"):
        os.utime(file, (0, 0))

    for own in (session_for(spark, 1), comparing_session(spark)):
        read = own.read.format("delta").option("versionAsOf", 1).load(table)
        assert sorted(row.id for row in read.collect()) == [0, 1]


@pytest.mark.skipif(not Path("/proc").exists(), reason="only Linux says what a process ignores")
def test_trap_a_signal_to_the_whole_group_ends_the_jvm_first(spark: SparkSession) -> None:
    """Python needs it to save what it has, and ends it then."""
    jvm = private_api.gateway(spark).proc.pid
    status = Path(f"/proc/{jvm}/status").read_text()
    (ignored,) = (
        int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn")
    )
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        assert ignored >> (number - 1) & 1, number
