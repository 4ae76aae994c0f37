"""Java that is compiled where Spark runs, and sent to its executors as a jar."""

from __future__ import annotations

import logging
import threading
import zipfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

from savepoints import temporary
from savepoints.spark import private_api

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from savepoints.spark.java_trees import JavaObject

_LOG = logging.getLogger(__name__)
# By Spark application and name.
_LOADED: dict[tuple[str, str], JavaObject] = {}
# A driver may have several queries, and Spark takes no second jar of the same name.
_LOADING = threading.Lock()


def load(spark: SparkSession, name: str, sources: Sequence[str]) -> JavaObject:
    """Return the class of this name, which is compiled once for each Spark application.

    Args:
        sources: Java, of which each may use the ones before it.
    """
    key = (str(spark.sparkContext.applicationId), name)
    with _LOADING:
        if key not in _LOADED:
            jar = temporary.directory("java") / f"{name}.jar"
            with zipfile.ZipFile(jar, "w") as archive:
                for one, data in private_api.compiled(spark, sources).items():
                    archive.writestr(f"{one.replace('.', '/')}.class", data)
            _LOADED[key] = private_api.java_class(spark, str(jar), name)
            _LOG.info("compiled %s.java for the executors of %s", name, key[0])
        return _LOADED[key]
