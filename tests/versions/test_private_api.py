"""What is private in Spark is reached from one module, so that a new version is looked up there."""

from __future__ import annotations

import re
from pathlib import Path

import savepoints

ROOT = Path(savepoints.__file__).parent
# How PySpark names what leads into the JVM.
_PRIVATE = re.compile(r"\._(?:j[a-z]+|gateway)\b")


def test_nothing_else_reaches_through_py4j() -> None:
    reaching = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if _PRIVATE.search(path.read_text())
    }

    assert reaching == {"spark/private_api.py"}
