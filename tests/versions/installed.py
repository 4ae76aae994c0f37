"""The Spark that is installed here, and a session of it without jars."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from tests.versions.table import Number

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAJOR, _MINOR, *_ = version("pyspark").split(".")
VERSION: Number = (int(_MAJOR), int(_MINOR))


@contextmanager
def session(jars: Sequence[Path] = ()) -> Iterator[SparkSession]:
    """Start a small session; it is stopped afterwards.

    Args:
        jars: None, or this version's, with Delta's.
    """
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("versions")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        **(_with_delta(jars) if jars else {}),
    }.items():
        builder = builder.config(key, value)
    started = builder.getOrCreate()
    yield started
    started.stop()


def _with_delta(jars: Sequence[Path]) -> dict[str, str]:
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
