"""What a run of the tests draws: by one seed, which is printed, so that it can be drawn again.

The seed is `TESTS_SEED`, or the day's date: what is too much for each change is gone through in the
course of the days, and as a whole in the nightly tier, for which `TESTS_TIER` is `nightly`. (What
begins with `SAVEPOINTS_` is the product's, which refuses variables that it does not know.)
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

Test = TypeVar("Test", bound=Callable[..., object])

SEED, TIER = "TESTS_SEED", "TESTS_TIER"
# Workers of pytest-xdist, and tests after midnight, draw the same.
_SEED = int(os.environ.setdefault(SEED, f"{datetime.now(UTC):%Y%m%d}"))
NIGHTLY = os.environ.get(TIER) == "nightly"


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
        pytest.param(*one, marks=[] if number in taken else pytest.mark.nightly)
        for number, one in enumerate(given)
    ]


def taking_turns(name: str, *others: str) -> Callable[[Test], Test]:
    """Mark a test for the night alone, unless it is drawn from among those that take turns.

    Args:
        name: What it is called here.
        others: The others, each of which names all of them likewise.
    """
    peers = sorted((name, *others))
    if chance(*peers).choice(peers) == name:
        return lambda test: test
    return pytest.mark.nightly
