"""What differs between the versions of Spark, outside of its public API, and what we do about it.

Each line was seen in the version's source and by running it. Which verbs are exact with which
version is in docs/reference/versions.md.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from typing import Any, TypeAlias

from savepoints.errors import IncompatibleError

Number: TypeAlias = "tuple[int, int]"

# What is tested.
FIRST: Number = (3, 5)
LAST: Number = (4, 2)

_STREAMING = "org.apache.spark.sql.execution.streaming"
_FILE_MANAGER = "FileSystemBasedCheckpointFileManager"


@dataclass(frozen=True)
class SparkVersion:
    """A version of Spark, by what it has of what this library uses.

    Attributes:
        number: Its major and minor number.
    """

    number: Number

    @classmethod
    def of(cls, text: str) -> SparkVersion:
        """Read one such as `4.1.4`, or a vendor's `3.5.1-amzn-0`."""
        major, minor, *_ = text.split(".")
        return cls((int(major), int(minor)))

    @classmethod
    def installed(cls) -> SparkVersion | None:
        """Return that of the PySpark that would be imported, without importing it; None for none.

        Clusters have it on `PYTHONPATH`, often in a zip file, rather than as an installed package.
        """
        text = _file_of_pyspark("version.py")
        found = re.search(r"^__version__[^=]*= *[\"'](\d+\.\d+[^\"']*)", text or "", re.MULTILINE)
        return cls.of(found[1]) if found else None

    def __str__(self) -> str:
        return ".".join(map(str, self.number))

    @property
    def unsupported(self) -> str | None:
        """Why nothing is done with this version; None for one that is tested."""
        if FIRST <= self.number <= LAST:
            return None
        return (
            f"PySpark {self} is not supported: versions {SparkVersion(FIRST)} to "
            f"{SparkVersion(LAST)} are"
        )

    def require_supported(self) -> None:
        """Refuse a version that is not tested."""
        if problem := self.unsupported:
            raise IncompatibleError(
                problem,
                hint="install a supported version here and where the query runs: pip install "
                "'pyspark>=3.5,<4.3'",
                version=str(self),
            )

    @property
    def file_manager(self) -> str:
        """Class that keeps checkpoint files by Hadoop's cached file systems."""
        package = f"{_STREAMING}.checkpointing" if self.number >= (4, 1) else _STREAMING
        return f"{package}.{_FILE_MANAGER}"

    @property
    def dataset(self) -> str:
        """Class in the JVM that makes a frame of a plan; before Spark Connect there was one."""
        return f"org.apache.spark.sql.{'classic.' if self.number >= (4, 0) else ''}Dataset"

    @property
    def reads_rows(self) -> bool:
        """Whether state rows can be read at all, and checkpoints have metadata of what there is."""
        return self.number >= (4, 0)

    @property
    def reads_raw_rows(self) -> bool:
        """Whether the source `statestore` has raw rows of RocksDB: `_readAllColumnFamilies`."""
        return self.number >= (4, 2)

    @property
    def writes_rows(self) -> bool:
        """Whether state rows can be written to RocksDB: `StateRewriter`."""
        return self.number >= (4, 2)

    @property
    def aws_credentials(self) -> str:
        """Class of the AWS SDK's default chain of credentials; Spark 3.5 has its version 1."""
        if self.number < (4, 0):
            return "com.amazonaws.auth.DefaultAWSCredentialsProviderChain"
        return "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"

    @property
    def has_arrow_functions(self) -> bool:
        """Whether functions of Python can get and return arrays of Arrow."""
        return self.number >= (4, 1)

    @property
    def repartitions_by_id(self) -> bool:
        """Whether `DataFrame.repartitionById` exists."""
        return self.number >= (4, 1)

    @property
    def normalizes_deduplicated_floats(self) -> bool:
        """Whether a deduplication takes -0.0 for 0.0, and each NaN for the same (SPARK-56280)."""
        return self.number >= (4, 2)


def is_connect_client() -> bool:
    """Whether the installed PySpark is `pyspark-client`, which has Spark Connect's sessions alone.

    Like PySpark itself, by whether `pyspark.core` is there, which came with Spark 4.0.
    """
    version = SparkVersion.installed()
    return (
        version is not None
        and version.number >= (4, 0)
        and _file_of_pyspark("core/__init__.py") is None
    )


def _file_of_pyspark(path: str) -> str | None:
    """Return a file of the PySpark that would be imported, without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        return None
    loader: Any = spec.loader
    try:
        return str(loader.get_data(f"{spec.submodule_search_locations[0]}/{path}").decode())
    except OSError:
        return None
