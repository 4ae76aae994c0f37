"""What is read of this package's own files, on machines that are set up otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from savepoints.spark import executors

_READ = """
from savepoints.state.storage import bulk_load, row_files
print(ascii("".join([*row_files._sources(), bulk_load._source()])))
"""


def test_trap_a_locale_without_utf_8_cannot_read_the_java_of_an_export() -> None:
    """An export failed; in a locale that has some of the letters Java got others."""
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    texts = [
        subprocess.run(
            [sys.executable, "-c", _READ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **more},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for more in ({}, ascii_only)
    ]

    assert texts[0] == texts[1]
    assert "class" in texts[0]


def test_trap_a_package_of_1970_cannot_be_sent_to_executors(tmp_path: Path) -> None:
    """Installers that make the same bytes each time date every file so."""
    package = tmp_path / "package"
    (package / "part").mkdir(parents=True)
    for name in ("__init__.py", "part/__init__.py"):
        (package / name).write_text("ANSWER = 42\n")
        os.utime(package / name, (1, 1))

    executors.pack(package, tmp_path / "package.zip")

    with zipfile.ZipFile(tmp_path / "package.zip") as archive:
        assert archive.namelist() == ["package/__init__.py", "package/part/__init__.py"]
        assert archive.read("package/__init__.py") == b"ANSWER = 42\n"
