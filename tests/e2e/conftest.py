"""A shop for each story."""

from __future__ import annotations

from pathlib import Path

import pytest

from savepoints.local import LocalWorld
from tests.e2e.shop import Shop


@pytest.fixture
def shop(world: LocalWorld, world_environment: dict[str, str], tmp_path: Path) -> Shop:
    """Give a shop that nobody else knows."""
    return Shop.open(world, tmp_path)


@pytest.fixture
def local_shop(world: LocalWorld, world_environment: dict[str, str], tmp_path: Path) -> Shop:
    """Give a shop whose data lie on the local file system: stories there take half the time."""
    return Shop.open(world, tmp_path, on_s3=False)
