"""Errors of Spark whose cause is this process: the texts of Spark 4.2, and Spark itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from savepoints.errors import EnvironmentUnfitError, UsageError
from savepoints.spark import causes

TEXTS = {
    "Delta": (
        "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta. Make sure the provider",
        (
            "org.apache.spark.SparkException: Cannot find catalog plugin class for catalog "
            "'spark_catalog': org.apache.spark.sql.delta.catalog.DeltaCatalog.\n\tat org.apache"
        ),
        "Caused by: java.lang.NoClassDefFoundError: io/delta/storage/LogStore\n\tat java.base",
    ),
    "Kafka": (
        "Failed to find data source: kafka. Please deploy the application as per the deployment",
        "java.lang.NoClassDefFoundError: org/apache/kafka/common/serialization/Serializer",
    ),
    "S3A": (
        "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found",
        "java.lang.NoClassDefFoundError: software/amazon/awssdk/core/exception/SdkException",
    ),
}
# Prints the owner that is named for each error of a session without jars.
PROGRAM = """\
from pyspark.sql import SparkSession
from savepoints.spark import causes

plain = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
with_delta = plain.newSession()
catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
with_delta.conf.set("spark.sql.catalog.spark_catalog", catalog)
for owner, read in (
    ("Delta", lambda: plain.read.format("delta").load("/nowhere")),
    ("Delta", lambda: with_delta.sql("SELECT count(1) AS n").collect()),
    ("Kafka", lambda: plain.readStream.format("kafka").option("subscribe", "t").load()),
    ("S3A", lambda: plain.read.parquet("s3a://bucket/x")),
    (None, lambda: plain.read.parquet("/nowhere")),
):
    try:
        read()
    except Exception as error:
        found = causes.of(error)
        print("named", owner, found and found.details["jars"])
"""


@pytest.mark.parametrize("owner", list(TEXTS))
def test_the_owner_of_missing_jars_is_named_with_the_setting(owner: str) -> None:
    for text in TEXTS[owner]:
        with (
            pytest.raises(EnvironmentUnfitError, match=f"cannot find the {owner} jars") as found,
            causes.named(),
        ):
            raise RuntimeError(text)
        assert "SAVEPOINTS_JARS" in found.value.hint
        assert "spark.jars.packages" in found.value.hint


# What a task says that writes rows to a full disk, and one that may open no more files.
LACKS = {
    "spark.local.dir": (
        "Job aborted due to stage failure: Task 1 in stage 6.0 failed 1 times, most recent "
        "failure: Lost task 1.0 in stage 6.0 (TID 15) (192.0.2.2 executor driver): "
        "org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n\tat org"
    ),
    "ulimit -n": "java.io.FileNotFoundException: /lake/part-0.parquet (Too many open files)",
}


@pytest.mark.parametrize("way_out", list(LACKS))
def test_trap_a_full_disk_is_a_hundred_lines_of_java(way_out: str) -> None:
    with (
        pytest.raises(EnvironmentUnfitError, match="a task of Spark failed: ") as found,
        causes.named(),
    ):
        raise RuntimeError(LACKS[way_out])

    assert "\n" not in found.value.message
    assert way_out in found.value.hint
    assert causes.of(OSError(28, "No space left on device")) is None, "it is not Spark's"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("java.lang.ClassNotFoundException: com.shop.delta.Prices"),
        RuntimeError("Failed to find data source: deltastreamer. Please find packages"),
        RuntimeError("the column kafka was not found"),
        UsageError("the application a:b cannot be imported: Failed to find data source: kafka."),
    ],
)
def test_what_has_another_cause_stays_as_it_is(error: Exception) -> None:
    assert causes.of(error) is None


@pytest.mark.spark
@pytest.mark.nightly
def test_trap_spark_says_in_a_hundred_lines_that_a_jar_is_missing(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip

    named = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("named")]
    assert [owner for owner, _ in named] == ["Delta", "Delta", "Kafka", "S3A", "None"], done.stderr
    assert all(owner == found for owner, found in named), named
