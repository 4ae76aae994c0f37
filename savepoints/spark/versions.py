"""What differs between the versions of Spark, outside of its public API, and what we do about it.

Each line was seen in the version's source and by running it. Which verbs are exact with which
version is in docs/reference/versions.md.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from savepoints.errors import EnvironmentUnfitError

Number: TypeAlias = "tuple[int, int]"

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
        """Read one such as `4.1.4`, or a vendor's `3.5.1-amzn-0`.

        Raises:
            EnvironmentUnfitError: If this library does not run on it.
        """
        major, minor, *_ = text.split(".")
        number = int(major), int(minor)
        if number < FIRST:
            raise EnvironmentUnfitError(
                f"Spark {text} is older than {_text(FIRST)}, the oldest that savepoints runs on",
                hint="use a newer Spark; commands that need no JVM work with its checkpoints",
                spark_version=text,
            )
        return cls(number)

    @classmethod
    def installed(cls) -> SparkVersion | None:
        """Return that of the PySpark that would be imported, without importing it; None for none.

        Clusters have it on `PYTHONPATH` rather than as an installed package.
        """
        spec = importlib.util.find_spec("pyspark")
        if spec is None or not spec.submodule_search_locations:
            return None
        text = Path(spec.submodule_search_locations[0], "version.py").read_text()
        found = re.search(r"^__version__[^=]*= *[\"'](\d+\.\d+[^\"']*)", text, re.MULTILINE)
        return cls.of(found[1]) if found else None

    def __str__(self) -> str:
        return _text(self.number)

    @property
    def file_manager(self) -> str:
        """Class that keeps checkpoint files by Hadoop's cached file systems."""
        package = f"{_STREAMING}.checkpointing" if self.number >= (4, 1) else _STREAMING
        return f"{package}.{_FILE_MANAGER}"

    @property
    def describes_operators(self) -> bool:
        """Whether it writes metadata of operators, and reads state with the source `statestore`."""
        return self.number >= (4, 0)

    @property
    def reads_raw_rows(self) -> bool:
        """Whether the source `statestore` has raw rows of RocksDB: `_readAllColumnFamilies`."""
        return self.number >= (4, 2)

    @property
    def repartitions_by_id(self) -> bool:
        """Whether `DataFrame.repartitionById` exists."""
        return self.number >= (4, 1)


def _text(number: Number) -> str:
    return ".".join(map(str, number))
