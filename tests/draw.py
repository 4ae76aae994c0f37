"""What a run of the tests draws: by one seed, which is printed, so that it can be drawn again."""

from __future__ import annotations

import os
import random
from datetime import datetime, timezone

VARIABLE = "SAVEPOINTS_TEST_SEED"


def seed() -> int:
    """Return the number in the variable; else the day, so that a change is tested with others."""
    given = os.environ.get(VARIABLE)
    return int(given) if given else int(datetime.now(timezone.utc).strftime("%Y%m%d"))


def chance(purpose: str) -> random.Random:
    """Give a generator for one purpose, which what others draw does not disturb."""
    return random.Random(f"{seed()} {purpose}")
