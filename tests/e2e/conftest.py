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
