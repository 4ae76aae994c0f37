"""A Python as executors have it: what Spark's own pandas functions need, and nothing else."""

from __future__ import annotations

import sysconfig
import venv
from pathlib import Path

# With the data and the libraries that some of them keep beside their package.
_KEPT = ("numpy", "pandas", "pyarrow", "pyspark", "py4j", "dateutil", "pytz", "tzdata", "six")


def make(directory: Path) -> Path:
    """Make an environment of these packages alone, by links to this one's; return its python."""
    venv.create(directory, with_pip=False)
    (there,) = directory.glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        name = entry.name.removesuffix(".py").removesuffix(".libs")
        if name in _KEPT:
            (there / entry.name).symlink_to(entry)
    return directory / "bin" / "python"
