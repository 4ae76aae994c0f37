"""What a test draws: by one seed, which is printed and can be set, so that it can be repeated.

The seed is `SAVEPOINTS_TEST_SEED`, or the day's date: what is too much for each change is gone
through in the course of the days, and as a whole in the nightly tier, for which
`SAVEPOINTS_TEST_TIER` is `nightly`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

SEED, TIER = "SAVEPOINTS_TEST_SEED", "SAVEPOINTS_TEST_TIER"


def _given(name: str, otherwise: str) -> str:
    """Return a variable, and hand it on to the workers of pytest-xdist by another name.

    Commands refuse variables that begin with `SAVEPOINTS_` and that they do not know.
    """
    inherited = f"PYTEST_{name}"
    value = os.environ.pop(name, None) or os.environ.get(inherited) or otherwise
    os.environ[inherited] = value
    return value


# Workers, and tests after midnight, draw the same.
_SEED = int(_given(SEED, f"{datetime.now(timezone.utc):%Y%m%d}"))
NIGHTLY = _given(TIER, "change") == "nightly"


def seed() -> int:
    """Return the seed of this run."""
    return _SEED


def chance(*names: object) -> random.Random:
    """Return what draws for a test, independently of the order in which tests run."""
    return random.Random(" ".join(str(one) for one in (_SEED, *names)))


def examples(change: int, nightly: int) -> int:
    """Return how many examples hypothesis is to try where each costs much."""
    return nightly if NIGHTLY else change


def some(count: int, cases: Iterable[object], *names: object) -> list[ParameterSet]:
    """Return all cases of a test, of which so many, drawn by the seed, run on each change.

    Args:
        count: How many.
        cases: The arguments of the test: one, or several in a tuple.
        names: What is drawn, so that not all tests draw the same places in their lists.
    """
    given = [one if isinstance(one, tuple) else (one,) for one in cases]
    taken = chance(*names, "some").sample(range(len(given)), count)
    return [
        pytest.param(*one, marks=[] if number in taken else pytest.mark.slow)
        for number, one in enumerate(given)
    ]
