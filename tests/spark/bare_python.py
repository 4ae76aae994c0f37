"""A Python as executors have it: what this package needs on them, and nothing else."""

from __future__ import annotations

import sysconfig
import venv
from pathlib import Path

# With the data and the libraries that some of them keep beside their package.
_KEPT = ("numpy", "pyarrow", "pyspark", "py4j")
_OF_PANDAS = ("pandas", "dateutil", "pytz", "tzdata", "six")


def make(directory: Path, *, with_pandas: bool = False) -> Path:
    """Make an environment of these packages alone, by links to this one's; return its python.

    Args:
        with_pandas: For programs whose own functions use it.
    """
    kept = (*_KEPT, *(_OF_PANDAS if with_pandas else ()))
    venv.create(directory, with_pip=False)
    (there,) = directory.glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        name = entry.name.removesuffix(".py").removesuffix(".libs")
        if name in kept:
            (there / entry.name).symlink_to(entry)
    return directory / "bin" / "python"
