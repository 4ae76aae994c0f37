"""This package on executors: sent by Spark where their Python is not the driver's.

Tasks in Python decode and encode state of Spark's default provider, and call functions of a
program, whose module imports this package for its `App`. They need it as pure Python, and PyArrow
and numpy, which Spark's own pandas functions need as well; nothing else.
"""

from __future__ import annotations

import logging
import sys
import zipfile
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

from savepoints import temporary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_PACKAGE = Path(__file__).parents[1]
# Applications of Spark whose executors have it.
_SENT: set[str] = set()


def with_package(spark: SparkSession) -> SparkSession:
    """Send this package to the executors of a session, once for each Spark application.

    Nothing is sent to local workers that run the driver's Python, nor if the driver itself has the
    package from a zip file, which was then given to the executors as well (`--py-files`).
    """
    context = spark.sparkContext
    is_own = str(context.master).startswith("local") and which(context.pythonExec) == sys.executable
    if is_own or not _PACKAGE.is_dir():
        return spark
    application = str(context.applicationId)
    if application in _SENT:
        return spark
    file = temporary.directory("package") / "savepoints.zip"
    pack(_PACKAGE, file)
    context.addPyFile(str(file))
    _SENT.add(application)
    _LOG.info("sent this package to the executors of %s", application)
    return spark


def pack(package: Path, file: Path) -> None:
    """Write the Python of a package into a zip file.

    Installers that make the same bytes each time date files 1970, which a zip file cannot.
    """
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for source in sorted(package.rglob("*.py")):
            archive.write(source, source.relative_to(package.parent))
