"""Seeds of histories that are killed and rolled back: some each night, all when asked for."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tests import draw
from tests.e2e.desk import Desk
from tests.processes import killed_at

# Set to anything, it makes a test with `seeds` go through all of them.
ALL = "TESTS_ALL_SEEDS"
_COUNT, _EACH_NIGHT = 20, 3

Content = TypeVar("Content")


def seeds(name: str) -> Sequence[int]:
    """Return which histories are tried: all, or some that are drawn by the day."""
    if os.environ.get(ALL):
        return range(_COUNT)
    return sorted(draw.chance(name, "seeds").sample(range(_COUNT), _EACH_NIGHT))


@dataclass
class History(Generic[Content]):
    """A query that is run to its end, killed, and rolled back, as a seed has it.

    Attributes:
        desk: Its place.
        chance: What draws.
        points: Where it may be killed.
        content: What its tables have.
        saved: By savepoint of the line that lives, what the tables had then.
        deaths: How often it was killed.
    """

    desk: Desk
    chance: random.Random
    points: Sequence[str]
    content: Callable[[], Content]
    saved: dict[str, Content] = field(default_factory=dict)
    deaths: int = 0

    def run(self) -> Content:
        """Run to the end, and take a savepoint there; returns what the tables have."""
        _, taken = self.desk.run(until="latest")
        found = self.content()
        if taken is not None:
            self.saved[taken.id] = found
        return found

    def die(self) -> None:
        """Run in a process of its own, which is killed as it writes."""
        code = killed_at(
            self.chance.choice(self.points),
            *("run", self.desk.query, "--until", "latest"),
            *("--config", str(self.desk.write_settings())),
        )
        assert code == -9, code
        self.deaths += 1

    def back(self) -> None:
        """Roll back to some savepoint, and see that the tables are as they were."""
        name = self.chance.choice([*self.saved])
        self.desk.store.savepoint(name).rollback().execute()
        assert self.content() == self.saved[name]
        # Later ones are on a line that is given up.
        kept = [*self.saved][: [*self.saved].index(name) + 1]
        self.saved = {one: self.saved[one] for one in kept}
