"""The one Spark session of the test run, and what tests do with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from savepoints.checkpoint.state.operators import ROCKSDB_PROVIDER
from savepoints.config.settings import Settings, SparkSettings
from savepoints.local.jars import resolve_jars
from savepoints.spark.session import session
from tests import draw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# No step of a test takes longer unless it hangs.
DEADLINE_SECONDS = 120.0
PARTITIONS = 3
# Compiling expressions and adapting plans takes longer than a few rows do. At night both are done.
_FOR_FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


def settings(**more: object) -> Settings:
    """Return settings for a small local session with all jars."""
    conf = {
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB_PROVIDER,
        # Short programs on two cores: the second compiler costs more than it brings.
        "spark.driver.extraJavaOptions": (
            "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
        ),
        "spark.driver.memory": "2g",
        "spark.sql.session.timeZone": "UTC",
        # Spark waits for maintenance to end, for 300 s otherwise, with the lock that this needs.
        "spark.sql.streaming.stateStore.maintenanceShutdownTimeout": "1s",
        # A busy machine takes longer than the usual 15 s to answer a Python worker that begins.
        "spark.python.authenticate.socketTimeout": "120s",
        **({} if draw.NIGHTLY else _FOR_FEW_ROWS),
    }
    return Settings(
        jars=resolve_jars().spark_directory,
        spark=SparkSettings(master="local[2]", conf=conf),
        **more,  # type: ignore[arg-type]
    )


def start() -> SparkSession:
    """Start the session."""
    return session(settings(), "savepoints tests")


def wait_until(condition: Callable[[], bool], what: str, seconds: float = DEADLINE_SECONDS) -> None:
    """Wait for a condition by looking, with a deadline."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s in vain until {what}"
        time.sleep(0.02)
