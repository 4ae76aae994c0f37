"""The Spark that is installed here, and a session of it without jars."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING

from tests.versions.table import Number

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAJOR, _MINOR, *_ = version("pyspark").split(".")
VERSION: Number = (int(_MAJOR), int(_MINOR))


@contextmanager
def session() -> Iterator[SparkSession]:
    """Start a small session that needs no jar; it is stopped afterwards."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("versions")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }.items():
        builder = builder.config(key, value)
    started = builder.getOrCreate()
    yield started
    started.stop()
