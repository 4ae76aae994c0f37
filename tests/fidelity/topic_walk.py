"""A walk on a driver that writes a topic and an App that reads it, which are taken back together.

Spark writes a topic at least once: what a killed driver may have written may be there twice. All
else counts once, whatever is killed, and nothing counts that was rolled back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from savepoints.handle import Store
from savepoints.model import Savepoint
from savepoints.outputs.delta.batch_version import open_table
from tests.e2e.late_desk import Event, LateDesk
from tests.fidelity.driver_job import Job
from tests.fidelity.mortal_commands import MortalCommands

KEYS = "abcdef"


@dataclass(frozen=True)
class Written:
    """What the driver has written that counts, by the ids of events.

    Attributes:
        factors: The factors with which it may have; if there is one alone, it has, and once.
        pending: What it may still have to write.
    """

    factors: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    pending: frozenset[str] = frozenset()

    def writing(self, events: Mapping[str, Event], factor: int, *, all_of_it: bool) -> Written:
        """Return it after the driver went on, to its end or not."""
        open_ = self.pending | (events.keys() - self.factors.keys())
        more = {one: (*self.factors.get(one, ()), factor) for one in open_}
        return Written({**self.factors, **more}, frozenset() if all_of_it else open_)


@dataclass(kw_only=True)
class TopicWalk(MortalCommands):
    """A driver, an App, and what was done to them.

    Attributes:
        events: What was given to the driver, by id.
        now: What it has written of that.
        late: What was merged into the App's query, by id.
        groups: What counted of the driver when a group was taken, by its tag.
        saved: What was merged before a savepoint of the App's query, by its id.
        forks: What was merged into a fork of the App's query, by its name.
        before: What counted before the last rollback of both.
        since: How many verbs have begun generations of the App's query alone since then that were
            not undone: they have to be, before that rollback can be.
        old: Savepoints of before that, of which the App's may read again what was rolled back.
    """

    desk: LateDesk
    job: Job
    merges: bool
    events: dict[str, Event] = field(default_factory=dict)
    now: Written = field(default_factory=Written)
    late: dict[str, Event] = field(default_factory=dict)
    groups: dict[str, Written] = field(default_factory=dict)
    saved: dict[str, dict[str, Event]] = field(default_factory=dict)
    forks: dict[str, dict[str, Event]] = field(default_factory=dict)
    before: Written | None = None
    since: int = 0
    old: set[str] = field(default_factory=set)

    @property
    def store(self) -> Store:
        return self.desk.desk.store

    @property
    def app(self) -> str:
        return self.desk.desk.query

    def begin(self) -> None:
        self.give()
        self.drive()
        self.check()

    def step(self) -> None:
        (way,) = self.chance.choices([*self.ways], [*self.ways.values()])
        late, generation = self.late, self.generation
        way()
        for one in self.store.catalog.all():
            if one.query == self.app:
                self.saved.setdefault(one.id, late if one.generation == generation else self.late)
        if self.chance.random() < 0.5:
            self.check()

    @property
    def generation(self) -> int:
        return self.store.generations.current(self.app).generation

    @property
    def ways(self) -> dict[Callable[[], None], int]:
        """What may be done, and how often."""
        always: dict[Callable[[], None], int] = {
            self.give: 10, self.drive: 10, self.run: 16, self.create_group: 14, self.rollback: 16,
            self.rollback_app: 8, self.undo: 8, self.bug: 6, self.expire: 4, self.archive: 3,
            self.group_beside: 8, self.fork: 6, self.run_fork: 4, self.promote: 8, self.end_fork: 2,
        }  # fmt: skip
        more = {self.merge: 14} if self.merges else {self.kill_driver: 14, self.kill_run: 8}
        return always | more

    def check(self) -> None:
        """Let both come to the end, and compare the table with what counts."""
        if self.now.pending or self.events.keys() - self.now.factors.keys():
            self.drive()
        for name, late in {self.app: self.late, **self.forks}.items():
            self.call("run", name, "--until", "latest", needed=True)
            self._compare(name, late)

    def _compare(self, name: str, late: Mapping[str, Event]) -> None:
        table = open_table(self.store.query(name).locate().outputs["out"])
        found = {one["k"]: one for one in table.to_pyarrow_table().to_pylist()}
        wanted = self._by_key(late)
        assert found.keys() == wanted.keys(), (found.keys() ^ wanted.keys(), self.now)
        for key, events in wanted.items():
            row = found[key]
            may = self._totals(events)
            assert (row["count"], row["total"]) in may, (row, may)
            assert row["newest"] == max(one.s for one in events)

    def _by_key(self, late: Mapping[str, Event]) -> dict[str, list[Event]]:
        found = defaultdict(list)
        for one in [*self.events.values(), *late.values()]:
            found[one.k].append(one)
        return found

    def _totals(self, events: list[Event]) -> set[tuple[int, int]]:
        """Return how many and how much they may come to."""
        found = {(0, 0)}
        for one in events:
            factors = self.now.factors.get(one.id, (1,))
            may = {(0, 0)}
            for factor in factors:
                may |= {(count + 1, total + one.n * factor) for count, total in may}
            found = {
                (count + more, total + n) for count, total in found for more, n in may - {(0, 0)}
            }
        return found

    # What is done.

    def give(self) -> None:
        """Give the driver a file."""
        events: list[Event] = []
        for _ in range(self.chance.randint(1, 3)):
            number = str(len(self.events) + len(events) + 1)
            key = self.chance.choice(KEYS) if self.merges else f"k{number}"
            events.append(Event(number, key, self.chance.randint(1, 9), 2.0 * int(number)))
        self.events |= {one.id: one for one in events}
        directory = Path(self.job.directory)
        written = directory / "file.json"
        written.write_text("".join(one.value.decode() + "\n" for one in events))
        written.rename(directory / "in" / f"{events[0].id:0>6}.json")

    def bug(self) -> None:
        self.job = replace(self.job, factor=self.chance.choice([1, 10, 1000]))
        self.note(f"the driver multiplies by {self.job.factor}")

    def drive(self) -> None:
        """Let the driver write all that there is, and end."""
        self.note("drive")
        query, attached = self.job.start(self.desk.spark)
        query.processAllAvailable()
        attached.stop()
        self.now = self.now.writing(self.events, self.job.factor, all_of_it=True)

    def kill_driver(self) -> None:
        self.give()
        running = self.processes.driver(self.job)
        changes = self.chance.randint(1, 120)
        assert running.killed_after(changes), running.text
        self.note(f"killed the driver after {changes} changes")
        self.now = self.now.writing(self.events, self.job.factor, all_of_it=False)

    def run(self) -> None:
        words = ["--no-final-savepoint"] if self.chance.random() < 0.3 else []
        self.call("run", self.app, "--until", "latest", *words, needed=True)

    def kill_run(self) -> None:
        self.give()
        self.drive()
        words = ("run", self.app, "--until", "latest")
        running = self.processes.command(*words, "--config", self.config)
        changes = self.chance.randint(1, 80)
        self.note(f"killed the run after {changes} changes: {running.killed_after(changes)}")

    def create_group(self) -> None:
        tag = f"group{self.number}"
        if self.call("pipeline", "create", self.app, "--tag", tag, "--yes"):
            self.groups[tag] = self.now

    def group_beside(self) -> None:
        """Take a group while the driver writes."""
        self.give()
        self.give()
        self.note("drive beside")
        query, attached = self.job.start(self.desk.spark)
        self.now = self.now.writing(self.events, self.job.factor, all_of_it=False)
        self.create_group()
        query.processAllAvailable()
        attached.stop()
        self.now = replace(self.now, pending=frozenset())

    def rollback(self) -> None:
        """Roll both back, or the App's query alone, to a group."""
        if not self.groups:
            return
        tag = self.chance.choice([*self.groups])
        query = self.chance.choice([self.job.query, self.job.query, self.app])
        mine = [one for one in self.known if tag in one.tags]
        # Alone, it would read again what was rolled back of the driver, as its plan says.
        if query == self.job.query or mine:
            self._back("pipeline", "rollback", query, tag, after=self.groups[tag])

    @property
    def known(self) -> list[Savepoint]:
        """Return the savepoints of the App's query since the driver was rolled back."""
        found = [one for one in self.store.catalog.all() if one.query == self.app]
        return [one for one in found if one.id not in self.old]

    def _back(self, *words: str, after: Written | None) -> None:
        """Let a command begin generations, of the App's query or of both."""
        generation = self.store.generations.current(self.job.query).generation
        mine, before = self.generation, self.now
        self.call(*words, "--stopped", "--yes")
        if self.generation != mine:
            begun_from = self.store.query(self.app).generation.begun_from
            self.late = self.saved.get(begun_from or "", self.late)
            self.since += -1 if words[0] == "undo" else 1
        if self.store.generations.current(self.job.query).generation != generation:
            assert after is not None
            assert self.generation != mine
            assert words[0] != "undo" or self.since == -1, "over what was done to the App alone"
            self.now, self.before, self.since = after, before, 0
            # All but the one that the rollback itself has taken behind what was rolled back.
            new = (self.app, self.generation)
            known = self.store.catalog.all()
            self.old = {one.id for one in known if (one.query, one.generation) != new}

    def rollback_app(self) -> None:
        if self.known:
            self._back("rollback", self.chance.choice(self.known).id, after=None)

    def undo(self) -> None:
        self._back("undo", self.chance.choice([self.app, self.job.query]), after=self.before)

    def fork(self) -> None:
        """Let a fork of the App's query begin, beside it: by its name, or as one of a pipeline."""
        savepoint, name = self.chance.choice([*self.known, None]), f"fork{self.number}"
        if savepoint is not None and len(self.forks) < 2:
            words = ["fork", savepoint.id, name]
            groups = [one for one in savepoint.tags if one in self.groups]
            if groups and self.chance.random() < 0.7:
                words = ["pipeline", "fork", self.app, groups[0], name]
                name = f"{self.app}_{name}"
            self.call(*words, "--yes")
            if self.store.generations.find_current(name) is not None:
                self.forks[name] = self.saved[savepoint.id]

    def run_fork(self) -> None:
        if self.forks:
            name = self.chance.choice([*self.forks])
            self.call("run", name, "--until", "latest", needed=True)

    def promote(self) -> None:
        """Let a fork take over from the App's query."""
        if self.forks:
            name, mine = self.chance.choice([*self.forks]), self.generation
            of_pipeline = name.removeprefix(f"{self.app}_")
            words = ["promote", name]
            if of_pipeline != name:
                words = ["pipeline", "promote", self.app, of_pipeline]
            self.call(*words, "--yes")
            if self.generation != mine:
                self.late = self.forks[name]
                self.since += 1

    def end_fork(self) -> None:
        if self.forks:
            name = self.chance.choice([*self.forks])
            self.call("end", name, "--yes")
            if self.store.generations.find_current(name) is None:
                del self.forks[name]

    def merge(self) -> None:
        """Merge late events, and take some away that were merged."""
        changes: list[tuple[str, Event]] = []
        for _ in range(self.chance.randint(1, 3)):
            name = f"late-{self.number}-{len(changes)}"
            at = round(self.chance.uniform(1, 2.0 * len(self.events)), 3)
            changes.append(("insert", Event(name, self.chance.choice(KEYS), 7, at)))
        if self.late and self.chance.random() < 0.3:
            changes.append(("remove", self.chance.choice([*self.late.values()])))
        path = self.desk.write_changes(changes, f"late-{self.number}.parquet")
        mine = self.generation
        done = self.call("merge", self.app, "--batch", path, "--yes")
        self.since += self.generation != mine
        if done:
            gone = {one.id for op, one in changes if op == "remove"}
            come = {one.id: one for op, one in changes if op == "insert"}
            self.late = {
                name: one for name, one in {**self.late, **come}.items() if name not in gone
            }

    def expire(self) -> None:
        self.call("expire", "--keep-last", str(self.chance.randint(3, 6)), "--yes")
        self.call("gc", "--grace", "1s", "--yes")

    def archive(self) -> None:
        self.note("archive")
        self.desk.archive()
