"""A walk through the verbs in the order of chance, on a query and its forks.

It is told what a verb is to do, and reads from Spark's own log only how far each batch went.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from savepoints.checkpoint.cut import committed_batches
from savepoints.errors import SavepointsError, UsageError
from savepoints.handle import SavepointHandle, Store
from savepoints.io import Location
from savepoints.model import Generation, Savepoint
from savepoints.moments import utc_now
from savepoints.operations import unfinished
from savepoints.operations.rollback.next_outputs import Outputs
from savepoints.operations.rollback.reset import State as Kept
from savepoints.operations.rollback.target import AtBatch, AtTime, BeforeLast
from savepoints.outputs.delta.batch_version import open_table
from savepoints.sources.archive import compact
from savepoints.sources.kafka.reset_targets import Target
from savepoints.state.change.edit import StateEdit
from savepoints.store.locks import journal
from savepoints.store.retention_policy import RetentionPolicy
from savepoints.store.tables.merge_ledger import MergePolicy
from tests.e2e.desk import PARTITIONS
from tests.e2e.late_desk import Event, LateDesk
from tests.fidelity.walk_model import Change, Present, Program, State, Table
from tests.killed import KilledError, dying
from tests.sources.broker import Broker

if TYPE_CHECKING:
    from savepoints.local import LocalWorld

KEYS = "abcdef"
T = TypeVar("T")


@dataclass
class Walk:
    """One query and its forks, and what was done to them.

    Attributes:
        log: What the topic has, by partition.
        known: What each query is after each batch of each generation.
        edited: What an edited savepoint is, by its id.
        before: What a query was before the last verb that changed it, for `undo`.
        moments: Times between arrivals, with how much had arrived by then.
        said: What was done, for whoever looks for the reason of a difference.
        late_input: Where late events are merged into; None where there is one input only.
        late_numbers: What late events have.
    """

    world: LocalWorld
    desk: LateDesk
    program: Program
    chance: random.Random
    log: list[list[Event]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    known: dict[tuple[str, int, int], Present] = field(default_factory=dict)
    before: dict[str, Present | None] = field(default_factory=dict)
    edited: dict[str, Present] = field(default_factory=dict)
    forks: list[str] = field(default_factory=list)
    merged: list[tuple[str, list[Change]]] = field(default_factory=list)
    moments: list[tuple[datetime, tuple[int, ...]]] = field(default_factory=list)
    archived: tuple[int, ...] = (0,) * PARTITIONS
    said: list[str] = field(default_factory=list)
    late_input: str | None = None
    late_numbers: tuple[int, ...] = (10, 11)
    number: int = 0

    @classmethod
    def begin(
        cls,
        world: LocalWorld,
        desk: LateDesk,
        program: Program,
        chance: random.Random,
        **more: Any,
    ) -> Self:
        """Let the query read some events."""
        walk = cls(world, desk, program, chance, **more)
        walk.produce()
        walk.run_first()
        walk.known[walk.name, 1, -1] = Present((0,) * len(walk.log))
        walk.check()
        return walk

    def run_first(self) -> None:
        """Let the query begin."""
        self.desk.desk.run(until="latest")

    @property
    def store(self) -> Store:
        return self.desk.desk.store

    @property
    def name(self) -> str:
        return self.desk.desk.query

    @property
    def names(self) -> list[str]:
        """The query, twice, for more is to be done to it, and its forks."""
        return [self.name, self.name, *self.forks]

    @property
    def ends(self) -> tuple[int, ...]:
        return tuple(map(len, self.log))

    # What it is.

    def present(self, name: str) -> Present:
        """Return what a query is now."""
        return self.follow(self.store.generations.current(name))

    def may_be(self, name: str) -> list[Present]:
        """Return what a query's table may be of."""
        return [self.present(name)]

    def follow(self, one: Generation) -> Present:
        """Return what a query is in a generation, after each batch since we looked last."""
        name, batch = one.query, self.newest(one.query, one.generation)
        present = self.known[name, one.generation, batch]
        checkpoint = Location.of(one.checkpoint)
        committed = {one.path for one in checkpoint.list("commits")}
        while f"commits/{batch + 1}" in committed:
            batch += 1
            present = self.after(present, checkpoint, batch)
            self.known[name, one.generation, batch] = present
        return present

    def after(self, present: Present, checkpoint: Location, batch: int) -> Present:
        """Return what a query is after a batch that is in Spark's log."""
        lines = checkpoint.get(f"offsets/{batch}").decode().splitlines()
        ends = json.loads(lines[2])[self.desk.desk.topics["events"]]
        offsets = tuple(ends.get(str(one), 0) for one in range(PARTITIONS))
        return present.reading(self.log, offsets, json.loads(lines[1])["batchWatermarkMs"])

    def newest(self, name: str, generation: int) -> int:
        """Return the newest batch of a generation that we know."""
        return max(batch for of, number, batch in self.known if (of, number) == (name, generation))

    def of(self, savepoint: Savepoint) -> Present:
        """Return what a query was at a savepoint."""
        if savepoint.id in self.edited:
            return self.edited[savepoint.id]
        return self.known[savepoint.query, savepoint.generation, savepoint.cut.batch_id]

    def any_savepoint(self) -> Savepoint | None:
        found = sorted(self.store.catalog.all(), key=lambda one: one.id)
        return self.chance.choice(found) if found else None

    def rows(self, name: str) -> Table:
        """Return the rows of a query's table, read by deltalake."""
        uri = self.store.query(name).locate().outputs["out"]
        rows = open_table(uri).to_pyarrow_table().to_pylist()
        return Counter(tuple(row[one] for one in self.program.columns) for row in rows)

    def state(self, handle: SavepointHandle) -> State:
        """Return the rows of a savepoint's state, by variable."""
        found = {}
        for variable, columns in self.program.read.items():
            with handle.read_state(variable=variable or None) as frame:
                rows = frame.selectExpr(*columns).collect()
            found[variable] = Counter(map(tuple, rows))
        return found

    def check(self) -> None:
        """Compare the tables, and the state of a savepoint, with what they have to be."""
        for name in {*self.names}:
            found = self.rows(name)
            may = [self.program.rows(one.before, one.batches) for one in self.may_be(name)]
            assert found in may, (name, "too many", found - may[0], "missing", may[0] - found)
        savepoint = self.any_savepoint()
        if savepoint is not None:
            handle = self.store.savepoint(savepoint.id)
            assert self.state(handle) == self.program.state(self.of(savepoint).batches), savepoint
            report = handle.verify(depth="checksums")
            assert report.grade == "ok", report

    def step(self) -> None:
        """Do something, which may be refused, and compare."""
        (way,) = self.chance.choices([*self.ways], [*self.ways.values()])
        before = {one: self.present(one) for one in self.names}
        try:
            way()
        except SavepointsError as error:
            self.note(f"  refused: {type(error).__name__}: {error}")
            # These two run queries before they may find that they cannot end.
            if way not in (self.run, self.promote):
                assert {one: self.present(one) for one in self.names} == before
        self.check()

    @property
    def ways(self) -> dict[Callable[[], None], int]:
        """What may be done, and how often."""
        return {
            self.run: 30, self.produce: 3, self.create: 6, self.rollback: 14, self.undo: 8,
            self.rollback_to_batch: 5, self.rollback_to_time: 5, self.merge: 18, self.reset: 5,
            self.fork: 4, self.promote: 4, self.expire: 4, self.archive: 5, self.forget: 3,
            self.optimize: 3, self.rebuild: 2, self.export: 3, self.drill: 2, self.edit: 6,
            self.copy: 2,
        }  # fmt: skip

    def note(self, text: str) -> None:
        self.said.append(text)
        print(f"{len(self.said):3} {text}", flush=True)

    def changed(self, name: str, before: Present, after: Present, batch: int | None = None) -> None:
        """Say what a query is in the generation that has just begun."""
        current = self.store.generations.current(name)
        if batch is None:
            batch = committed_batches(Location.of(current.checkpoint).list())[-1]
        self.known[name, current.generation, batch] = after
        self.before[name] = before

    def do(self, verb: Callable[[], T]) -> T | None:
        """Carry out a verb, which may die on the way: then it is repeated, or taken back.

        Returns:
            What it gives; None when it was taken back.
        """
        if self.chance.random() > 0.25:
            return verb()
        died = dying(self.chance.randint(1, 12), lambda name: self.note(f"  killed at {name}"))
        with suppress(KilledError), died:
            return verb()
        begun = journal.all_unfinished(self.store.root)
        if begun and self.chance.random() < 0.3:
            self.note(f"  taken back: {begun[0].verb} of {begun[0].query}, {begun[0].done_text}")
            # Whose generation has begun has to be finished first.
            with suppress(UsageError):
                unfinished.undo(self.store, begun[0].id)
                return None
        return verb()

    # What is done.

    def produce(self) -> None:
        count = self.chance.randint(1, 6)
        events = [self._event() for _ in range(count)]
        self.send(events)
        # Kafka's times are in milliseconds, and what arrives in the same one is after it.
        time.sleep(0.01)
        self.moments.append((utc_now(), self.ends))
        time.sleep(0.01)

    def send(self, events: list[Event]) -> None:
        self.desk.produce(events)
        for number, one in enumerate(events):
            self.log[number % PARTITIONS].append(one)

    def _event(self) -> Event:
        self.number += 1
        behind = self.chance.random() ** 4 * self.program.jitter
        at = round(max(1.0, 2 * self.number - behind), 3)
        return Event(str(self.number), self.chance.choice(KEYS), self.chance.randint(1, 9), at)

    def run(self) -> None:
        name, options = self.chance.choice(self.names), {"forms": self._forms()}
        if self.chance.random() < 0.8:
            self.produce()
        if self.chance.random() < 0.2:
            options["max_records"] = self.chance.randint(1, 4)
        if self.chance.random() < 0.3:
            options["final_savepoint"] = False
        self.note(f"run {name} {options}")
        self.store.query(name).run(until="latest", **options)

    def create(self) -> None:
        name, forms = self.chance.choice(self.names), self._forms()
        self.note(f"create {name} {forms}")
        self.do(lambda: self.store.query(name).create(forms=forms).execute())

    def _forms(self) -> Any:
        return self.chance.choice([("native",), ("canonical",), ("native", "canonical")])

    def rollback(self) -> None:
        savepoint = self.any_savepoint()
        if savepoint is None:
            return
        self.note(f"rollback {named(savepoint)}")
        name, before = savepoint.query, self.present(savepoint.query)
        if self.do(lambda: self.store.savepoint(savepoint.id).rollback().execute()):
            self.changed(name, before, self.of(savepoint))

    def rollback_to_batch(self) -> None:
        before, generation = self.present(self.name), self.store.query(self.name).generation
        newest = self.newest(self.name, generation.generation)
        batch = self.chance.randint(max(0, newest - 4), max(0, newest))
        self.note(f"rollback {self.name} to batch {batch}")
        if self.do(lambda: self.store.query(self.name).rollback(AtBatch(batch)).execute()):
            self.changed(self.name, before, self.known[self.name, generation.generation, batch])

    def rollback_to_time(self) -> None:
        (moment, offsets), before = self.chance.choice(self.moments), self.present(self.name)
        self.note(f"rollback {self.name} to {moment}, when {offsets} had arrived")
        if not self.do(lambda: self.store.query(self.name).rollback(AtTime(moment)).execute()):
            return
        begun_from = self.store.query(self.name).generation.begun_from
        savepoint = self.store.catalog.find(begun_from or "")
        self.changed(self.name, before, self.of(savepoint), savepoint.cut.batch_id)
        assert self.present(self.name).offsets == offsets

    def undo(self) -> None:
        name = self.chance.choice(self.names)
        self.note(f"undo {name}")
        if not self.do(lambda: self.store.query(name).rollback(BeforeLast()).execute()):
            return
        before = self.before.pop(name)
        assert before is not None, "there is nothing to undo"
        self.changed(name, before, before)
        self.before.pop(name)

    def merge(self) -> None:
        name = self.chance.choice(self.names)
        now = self.present(name)
        uri, changes = self._batch(now)
        if not changes:
            return
        generation = self.store.query(name).generation.generation
        merge = partial(self.store.query(name).merge, input_name=self.late_input)
        policy = self._policy(changes)
        across = policy != "merge-function" and self.chance.random() < 0.8
        self.note(f"merge {name} {policy} {uri} {changes}")
        done = self.do(lambda: merge(uri, policy=policy, across_promotions=across).execute())
        after = now.merging(changes)
        if policy == "replay-all":
            after = after.replayed(self.log)
        if done is None:
            return
        if done.generation == generation:
            assert done.merged_by is not None or not done.rows, done
            assert self.program.state(after.batches) == self.program.state(now.batches)
        else:
            self.changed(name, now, after)

    def _policy(self, changes: list[Change]) -> MergePolicy:
        """Return a policy by which it comes to the same."""
        only_adds = all(op == "insert" for op, _ in changes)
        policy = self.program.policy
        if self.chance.random() < 0.7 or (policy == "merge-function" and not only_adds):
            return "exact"
        return policy

    def _batch(self, now: Present) -> tuple[str, list[Change]]:
        """Return a batch of late events, some of which were merged before, and where it is."""
        if self.merged and not now.waiting and self.chance.random() < 0.2:
            return self.chance.choice(self.merged)
        changes = {}
        for _ in range(self.chance.randint(1, 3) if now.events else 0):
            self.number += 1
            known = self.chance.choice(now.events)
            at = round(self.chance.uniform(1, max(one.clock for one in now.batches)), 3)
            new = Event(
                f"late-{self.number}",
                self.chance.choice(KEYS + "g"),
                self.chance.choice(self.late_numbers),
                at,
            )
            op, one = self.chance.choices(
                [("insert", new), ("replace", known._replace(n=known.n + 100)), ("remove", known)],
                (6, 2, 2),
            )[0]
            changes[one.id] = op, one
        found = [*changes.values()]
        uri = self.desk.write_changes(found, f"late-{self.number}-{len(self.said)}.parquet")
        # A removal of what is gone is refused.
        if all(op != "remove" for op, _ in found):
            self.merged.append((uri, found))
        return uri, found

    def reset(self) -> None:
        before = self.present(self.name)
        choices: list[tuple[Kept, Outputs]] = [
            ("empty", "truncate"), ("empty", "keep"), ("keep", "keep")
        ]  # fmt: skip
        state, outputs = self.chance.choice(choices)
        by = self.chance.choice([-1, -2, 1])
        target = Target("earliest") if state == "empty" else Target("shift", by)
        self.note(f"reset {target}, state {state}, outputs {outputs}")
        reset = self.store.query(self.name).reset
        if not self.do(lambda: reset(target, state=state, outputs=outputs).execute()):
            return
        if state == "empty":
            rows = self.program.rows(before.before, before.batches)
            kept = Counter() if outputs == "truncate" else rows
            self.changed(self.name, before, before.from_the_beginning(kept), -1)
        else:
            offsets = tuple(one + by for one in before.offsets)
            assert all(0 <= one <= end for one, end in zip(offsets, self.ends, strict=True))
            self.changed(self.name, before, before.at(offsets, self.log))

    def fork(self) -> None:
        savepoint, name = self.any_savepoint(), f"fork{len(self.forks)}"
        if savepoint is None or len(self.forks) > 2 or savepoint.query != self.name:
            return
        self.note(f"fork {name} from {named(savepoint)}")
        if not self.do(lambda: self.store.savepoint(savepoint.id).fork(name).execute()):
            return
        self.forks.append(name)
        self.known[name, 1, savepoint.cut.batch_id] = self.of(savepoint)

    def promote(self) -> None:
        if not self.forks:
            return
        fork, left = self.chance.choice(self.forks), self.store.generations.current(self.name)
        self.note(f"promote {fork}")
        if not self.do(lambda: self.store.query(fork).promote().execute()):
            return
        # Both were run to one end before.
        before, after = self.follow(left), self.present(fork)
        assert after.offsets >= before.offsets
        self.changed(self.name, before, after)

    def edit(self) -> None:
        """Add something to the sum of a key, in a savepoint that the query may go back to."""
        savepoint = self.any_savepoint()
        if savepoint is None or self.program.app != "running":
            return
        was = self.of(savepoint)
        keys = sorted(row[0] for row in self.program.state(was.batches)[""])
        if not keys:
            return
        key = self.chance.choice(keys)
        self.note(f"edit {named(savepoint)}, {key}")
        change = StateEdit(f"k = '{key}'", assignments=("sum = sum + 1000",))
        plan = self.store.savepoint(savepoint.id).edit(change, reason="a walk")
        made = self.do(plan.execute)
        if made is not None:
            last = replace(was.batches[-1], events=(), edit=(key, 1000))
            self.edited[made.id] = replace(was, batches=(*was.batches, last))

    def copy(self) -> None:
        """Copy a savepoint to another store, which has to be whole without this one."""
        savepoint = self.any_savepoint()
        if savepoint is None:
            return
        self.note(f"copy {named(savepoint)}")
        to = str(self.desk.desk.directory / "copies")
        self.do(lambda: self.store.savepoint(savepoint.id).copy(to).execute())
        copied = Store.open(to).savepoint(savepoint.id)
        assert copied.verify(depth="checksums").grade == "ok"
        assert self.state(copied) == self.program.state(self.of(savepoint).batches)

    def expire(self) -> None:
        keep = self.chance.randint(2, 5)
        self.note(f"expire all but {keep}, and gc")
        policy = RetentionPolicy(keep_last=keep)
        self.do(lambda: self.store.query(self.name).expire(policy).execute())
        self.do(lambda: self.store.gc(grace=timedelta(0)).execute())

    def archive(self) -> None:
        self.note("archive")
        self.desk.archive()
        self.archived = self.ends
        if self.chance.random() < 0.5:
            uri = self.desk.desk.settings.queries[self.name].archives["events"]
            compact.compact(self.desk.spark, uri)

    def forget(self) -> None:
        self.note(f"Kafka forgets what is before {self.archived}")
        for partition, to in enumerate(self.archived):
            if to:
                Broker.of(self.world).forget(self.desk.desk.topics["events"], partition, to)

    def optimize(self) -> None:
        self.note("optimize the table")
        open_table(self.store.query(self.name).locate().outputs["out"]).optimize.compact()

    def rebuild(self) -> None:
        self.note("rebuild the catalog")
        self.do(lambda: self.store.rebuild_catalog().execute())

    def export(self) -> None:
        savepoint = self.any_savepoint()
        if savepoint is not None:
            self.note(f"export {savepoint.id}")
            self.do(lambda: self.store.savepoint(savepoint.id).export().execute())

    def drill(self) -> None:
        savepoint = self.any_savepoint()
        if savepoint is not None:
            self.note(f"drill {savepoint.id}")
            self.store.savepoint(savepoint.id).drill()


def named(savepoint: Savepoint) -> str:
    """Return a savepoint's place and forms."""
    place = f"{savepoint.query}/{savepoint.generation} batch {savepoint.cut.batch_id}"
    return f"{savepoint.id} ({place}, {' and '.join(savepoint.forms)})"
