"""A walk through the verbs in the order of chance, on bronze, silver and gold.

Verbs and runs die at crash points on their way; a verb is then called again, or taken back.
After each verb all three run until they have read everything, and each table has to be what pandas
computes from the orders that count: those that arrived, but for those that merges took away, and
those that merges brought, as far as nothing was rolled back.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from savepoints.handle import Store
from savepoints.jobs import archive as archive_job
from savepoints.outputs.delta.batch_version import open_table
from spark_jobs.medallion.truth import LEVELS
from spark_jobs.orders.cdnow import Order, orders_between, read_orders
from tests.e2e.late_shop import day, ids
from tests.e2e.medallion_shop import RIGHT, MedallionShop
from tests.fidelity.mortal_commands import MortalCommands

Without = frozenset[str]


@dataclass(kw_only=True)
class PipelineWalk(MortalCommands):
    """Three queries, and what was done to them.

    Attributes:
        days: How many days of orders have arrived.
        held: Orders that did not arrive, with their day.
        without: Ids of orders of these days that do not count now.
        groups: Days and what did not count when a group was taken, by its tag.
        forks: The same by the name of a fork.
        merged: Batches that were merged into the live queries, with what came and what went.
        missing: By the tag of a group and the name of a fork, how many of these came before it.
        before: By level, the same before the last rollback of several, until another verb.
    """

    shop: MedallionShop
    days: int = 0
    held: list[tuple[int, Order]] = field(default_factory=list)
    without: Without = frozenset()
    groups: dict[str, tuple[int, Without]] = field(default_factory=dict)
    forks: dict[str, tuple[int, Without]] = field(default_factory=dict)
    merged: list[tuple[str, Without, Without]] = field(default_factory=list)
    missing: dict[str, int] = field(default_factory=dict)
    before: dict[str, tuple[int, Without]] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return self.shop.store

    def step(self) -> None:
        """Do something, which may be refused, let all run to the end, and compare."""
        (way,) = self.chance.choices([*self.ways], [*self.ways.values()])
        way()
        self.check()

    def check(self) -> None:
        for level in LEVELS:
            self.call("run", level, "--until", "latest", needed=True)
        wrong = self.shop.differing(day(self.days), without=self.without)
        assert wrong == RIGHT, wrong

    @property
    def ways(self) -> dict[Callable[[], None], int]:
        """What may be done, and how often."""
        return {
            self.sell: 20, self.create_group: 12, self.rollback: 14, self.merge: 14, self.undo: 6,
            self.rollback_one: 8, self.reset: 4, self.optimize: 5, self.expire: 4, self.archive: 4,
            self.fork: 3, self.promote: 2,
        }  # fmt: skip

    def sell(self) -> None:
        """Let a day of orders arrive, but for some, and some levels read them."""
        known = [
            *orders_between(read_orders(), from_date=day(self.days), until_date=day(self.days + 1))
        ]
        held = [one for one in known[:-1] if self.chance.random() < 0.03]
        self.shop.sell(day(self.days), day(self.days + 1), without=ids(held))
        self.held += [(self.days, one) for one in held]
        self.without |= ids(held)
        self.days += 1
        for level in LEVELS[: self.chance.randint(0, 3)]:
            self.call("run", level, "--until", "latest", needed=True)

    def create_group(self) -> None:
        if self.chance.random() < 0.5:
            self.sell()
        tag = f"group{self.number}"
        if self.call("pipeline", "create", "silver", "--tag", tag):
            self.groups[tag] = self.days, self.without
            self.missing[tag] = len(self.merged)

    def rollback(self) -> None:
        if not self.groups:
            return
        tag, query = self.chance.choice([*self.groups]), self.chance.choice(LEVELS)
        scope, before = self.chance.choice([("--all",), ()]), (self.days, self.without)
        if not self.call("pipeline", "rollback", query, tag, *scope, "--yes"):
            return
        levels = LEVELS if scope else LEVELS[LEVELS.index(query) :]
        if "bronze" in levels:
            self._go_back(*self.groups[tag])
        self.before = {**self._kept(levels), **dict.fromkeys(levels, before)}

    def _kept(self, levels: Sequence[str]) -> dict[str, tuple[int, Without]]:
        """Return what can still be undone when something else was done to some levels."""
        gone = {self.before[one] for one in levels if one in self.before}
        return {one: was for one, was in self.before.items() if was not in gone}

    def _go_back(self, days: int, without: Without) -> None:
        """Let count what counted then, and what has arrived since."""
        self.without = without | ids(one for of, one in self.held if of >= days)

    def rollback_one(self) -> None:
        """Roll back the last one alone: who reads the others would fail at the rewind."""
        nth = self.chance.randint(0, 3)
        if self.call("rollback", f"latest~{nth}", "--query", "gold", "--yes"):
            self.before = self._kept(["gold"])

    def merge(self) -> None:
        """Merge some of what was held, and take something away."""
        late = [one for _, one in self.held if one.order_id in self.without]
        late = self.chance.sample(late, min(len(late), self.chance.randint(0, 5)))
        known = [*orders_between(read_orders(), until_date=day(self.days))]
        known = [one for one in known[:-1] if one.order_id not in self.without]
        wrong = self.chance.sample(known, min(len(known), self.chance.randint(0, 2)))
        if not late and not wrong:
            return
        path = self.shop.write_late(late, wrong, f"late-{self.number}.parquet")
        self.note(f"merge {len(late)} and without {len(wrong)}")
        words = ["--downstream", "merge", "--yes"]
        if self.chance.random() < 0.8:
            words.append("--across-promotions")
        if self.call("merge", "bronze", "--batch", path, *words):
            self.before = dict.fromkeys(LEVELS, (self.days, self.without))
            self.merged.append((path, frozenset(ids(late)), frozenset(ids(wrong))))
            self.without = (self.without - ids(late)) | ids(wrong)

    def undo(self) -> None:
        level = self.chance.choice(LEVELS)
        if self.call("undo", level, "--yes") and level in self.before:
            was = self.before[level]
            if self.before.get("bronze") == was:
                self._go_back(*was)
            self.before = self._kept([level])

    def reset(self) -> None:
        if self.call("reset", "gold", "--to-earliest", "--outputs", "truncate", "--yes"):
            self.before = self._kept(["gold"])

    def optimize(self) -> None:
        level = self.chance.choice(LEVELS)
        self.note(f"optimize {level}")
        open_table(self.shop.table(level)).optimize.compact()

    def expire(self) -> None:
        self.call("expire", "--keep-last", str(self.chance.randint(2, 5)), "--yes")
        self.call("gc", "--grace", "1s", "--yes")

    def archive(self) -> None:
        words = ["bronze", "orders", "--until", "latest"]
        if self.chance.random() < 0.5:
            words.append("--compact")
        self.note(f"archive {' '.join(words)}")
        assert archive_job.main([*words, "--config", self.config], io.StringIO()) == 0

    def fork(self) -> None:
        if not self.groups:
            return
        tag, name = self.chance.choice([*self.groups]), f"try{self.number}"
        if self.call("pipeline", "fork", "bronze", tag, name, "--yes"):
            self.forks[name] = self.groups[tag]
            self.missing[name] = self.missing[tag]

    def promote(self) -> None:
        if not self.forks:
            return
        name = self.chance.choice([*self.forks])
        self._catch_up(name)
        before = self.days, self.without
        if self.call("pipeline", "promote", "bronze", name, "--yes"):
            self.before = dict.fromkeys(LEVELS, before)
            self._go_back(*self.forks.pop(name))

    def _catch_up(self, name: str) -> None:
        """Merge into a fork what was merged into the live queries since its group was taken."""
        if not self.call("run", f"bronze_{name}", "--until", "latest"):
            return
        days, without = self.forks[name]
        without |= ids(one for of, one in self.held if of >= days)
        words = ["--downstream", "merge", "--across-promotions", "--yes"]
        for path, late, wrong in self.merged[self.missing[name] :]:
            if self.call("merge", f"bronze_{name}", "--batch", path, *words):
                without = (without - late) | wrong
        self.forks[name] = self.days, without
        self.missing[name] = len(self.merged)
