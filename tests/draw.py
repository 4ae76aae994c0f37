"""What a run of the tests draws: by one seed, which is printed, so that it can be drawn again.

And which tier it is of: at night more is drawn, and Spark runs as it does for users.
"""

from __future__ import annotations

import os
import random
from datetime import datetime, timezone

VARIABLE = "TESTS_SEED"
TIER = "TESTS_TIER"


def seed() -> int:
    """Return the number in the variable; else the day, so that a change is tested with others."""
    given = os.environ.get(VARIABLE)
    return int(given) if given else int(datetime.now(timezone.utc).strftime("%Y%m%d"))


def chance(purpose: str) -> random.Random:
    """Give a generator for one purpose, which what others draw does not disturb."""
    return random.Random(f"{seed()} {purpose}")


def is_nightly() -> bool:
    """Say whether this is a run of the nightly tier."""
    return os.environ.get(TIER) == "nightly"
