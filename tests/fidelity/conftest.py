"""What walks start: processes that are killed, or end with the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from savepoints.io import Location
from savepoints.local.jars import resolve_jars
from tests.fidelity.driver_process import Processes


@pytest.fixture
def walk_place(tmp_path: Path) -> str:
    """Give a place for store, checkpoints and tables."""
    return str(tmp_path / "walk")


@pytest.fixture
def processes(
    tmp_path: Path,
    walk_place: str,
    world_environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Processes]:
    """Give what starts processes that work at a place; input is in `walk/in` of the directory."""
    monkeypatch.setenv("SAVEPOINTS_JARS", str(resolve_jars().spark_directory))
    (tmp_path / "walk" / "in").mkdir(parents=True)
    made = Processes(tmp_path, Location.of(walk_place))
    yield made
    made.end_all()
