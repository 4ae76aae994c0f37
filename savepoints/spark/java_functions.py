"""Java that is compiled where Spark runs, and sent to its executors as a jar."""

from __future__ import annotations

import logging
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from savepoints.spark import private_api

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from savepoints.spark.private_api import JavaObject

_LOG = logging.getLogger(__name__)
# By Spark application and source.
_LOADED: dict[tuple[str, Path], JavaObject] = {}


def load(spark: SparkSession, source: Path) -> JavaObject:
    """Return the class that a file of Java has, compiled once for each Spark application."""
    key = (str(spark.sparkContext.applicationId), source)
    if key not in _LOADED:
        jar = Path(tempfile.mkdtemp(prefix="savepoints-")) / f"{source.stem}.jar"
        with zipfile.ZipFile(jar, "w") as archive:
            for name, data in private_api.compiled(spark, source.read_text()).items():
                archive.writestr(f"{name.replace('.', '/')}.class", data)
        _LOADED[key] = private_api.java_class(spark, str(jar), source.stem)
        _LOG.info("compiled %s for the executors of %s", source.name, key[0])
    return _LOADED[key]
