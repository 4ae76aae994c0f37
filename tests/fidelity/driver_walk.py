"""A walk through kills and verbs in the order of chance, on a driver that a user wrote.

The driver is a process of its own, and so are the commands; both are killed in the midst of what
they do. The walk knows what arrived, and reads from Spark's logs how far each batch went.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from deltalake import DeltaTable

from savepoints.checkpoint import position
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.store.locks import journal, lease
from tests.e2e.shop import called
from tests.fidelity.driver_input import DriverInput
from tests.fidelity.driver_job import Job
from tests.fidelity.driver_model import MODELS, Model, Present, Rows
from tests.fidelity.driver_process import Processes, Running
from tests.killed import KilledError, dying
from tests.leftovers import all_are_whole, left_over
from tests.spark_session import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Exit codes: done, killed by us, usage, not aligned.
DONE, KILLED, USAGE, NOT_ALIGNED = 0, -9, 2, 13


class Life(NamedTuple):
    """A generation: its number and its checkpoint."""

    generation: int
    checkpoint: Location


@dataclass
class DriverWalk:
    """One query and what was begun from it, and what was done to them.

    Attributes:
        spark: A session of this process, which looks at states and runs the forks.
        known: What each query is after each batch of each generation.
        edited: What an edited savepoint is, by its id.
        before: What a query was before the last verb that changed it, for `undo`.
        forks: Queries that began from a savepoint of the first, by their names.
        driver: The driver that runs, if one does.
        killed: Whether the last one was killed.
    """

    spark: SparkSession
    job: Job
    input: DriverInput
    chance: random.Random
    processes: Processes
    known: dict[tuple[str, int, int], Present] = field(default_factory=dict)
    edited: dict[str, Present] = field(default_factory=dict)
    before: dict[str, Present] = field(default_factory=dict)
    forks: dict[str, Job] = field(default_factory=dict)
    driver: Running | None = None
    killed: bool = False
    number: int = 0

    def begin(self) -> None:
        """Let the driver read some events and take a first savepoint."""
        self.input.add(self.chance, everywhere=True)
        self.known[self.job.query, 1, -1] = Present((0, 0))
        self.start()
        self._until(lambda: bool(self.store.catalog.all()), "it has a savepoint")
        self.settle()
        self.check()

    @property
    def store(self) -> Store:
        return Store.at(f"{self.job.directory}/store").make()

    @property
    def model(self) -> Model:
        return MODELS[self.job.program]

    @property
    def jobs(self) -> dict[str, Job]:
        return {self.job.query: self.job, **self.forks}

    # What it is.

    def current(self, name: str) -> Life:
        """Return the generation of a query, also before its first savepoint."""
        found = self.store.generations.find_current(name)
        if found is None:
            return Life(1, Location.of(self.jobs[name].first_checkpoint))
        return Life(found.generation, Location.of(found.checkpoint))

    def present(self, name: str) -> Present:
        """Return what a query is now, after each batch that was committed since we looked last."""
        generation, checkpoint = self.current(name)
        batch = self._newest(name, Life(generation, checkpoint))
        present = self.known[name, generation, batch]
        while checkpoint.exists(f"commits/{batch + 1}"):
            batch += 1
            present = self._after(present, checkpoint, batch)
            self.known[name, generation, batch] = present
        return present

    def _after(self, present: Present, checkpoint: Location, batch: int) -> Present:
        return self.model.next(present, self.input.log, self.model.read(checkpoint, batch))

    def begun(self, name: str) -> Present:
        """Return what a query is after the batch that has begun, which may be the committed one."""
        present, checkpoint = self.present(name), self.current(name).checkpoint
        batch = position.newest_in(checkpoint, "offsets")
        if batch < 0 or checkpoint.exists(f"commits/{batch}"):
            return present
        return self._after(present, checkpoint, batch)

    def of(self, savepoint: Savepoint) -> Present:
        """Return what a query was at a savepoint."""
        if savepoint.id in self.edited:
            return self.edited[savepoint.id]
        self.present(savepoint.query)
        return self.known[savepoint.query, savepoint.generation, savepoint.cut.batch_id]

    def any_savepoint(self, query: str | None = None) -> Savepoint:
        found = [one for one in self.store.catalog.all() if query in {None, one.query}]
        found = [one for one in found if one.state != "expired"]
        return self.chance.choice(sorted(found, key=lambda one: one.id))

    def rows(self, name: str) -> Rows:
        """Return the rows of a query's table, read by deltalake, or of its files, read by Spark."""
        uri, columns = self.jobs[name].table, self.model.columns
        if DeltaTable.is_deltatable(uri):
            rows = DeltaTable(uri).to_pyarrow_table().to_pylist()
            return Counter(tuple(row[one] for one in columns) for row in rows)
        if not Path(uri, "_spark_metadata").exists():
            return Counter()
        return Counter(map(tuple, self.spark.read.parquet(uri).select(*columns).collect()))

    def check(self) -> None:
        """Compare the tables, and the state of a savepoint, with what they have to be."""
        for name in self.jobs:
            if name == self.job.query and self.driver is not None:
                continue
            found, now, begun = self.rows(name), self.present(name), self.begun(name)
            assert found in (now.table, begun.table), (
                name, "too many", found - now.table, "missing", now.table - found,
            )  # fmt: skip
        all_are_whole(self.store)
        savepoint = self.any_savepoint()
        for variable, columns in self.model.state.items():
            found = self._state(savepoint, variable, columns)
            assert found == self.of(savepoint).state.get(variable, Counter()), savepoint.id

    def _state(self, savepoint: Savepoint, variable: str, columns: tuple[str, ...]) -> Rows:
        with self.store.savepoint(savepoint.id).read_state(variable=variable or None) as frame:
            return Counter(map(tuple, frame.selectExpr(*columns).collect()))

    def check_left_over(self) -> None:
        """Nothing stays behind that `gc` would not find, once nothing runs."""
        self.end_driver()
        self.store.gc(grace=timedelta(0)).execute()
        # Hadoop's checksums lie beside the rows of a savepoint, and go with it.
        left = {one for one in left_over(self.store) if not one.endswith(".crc")}
        assert left == set()
        began = {Location.of(one.checkpoint) for one in self.store.generations.all()}
        began |= {Location.of(one.first_checkpoint) for one in self.jobs.values()}
        there = Path(self.job.directory, "checkpoints").glob("*/*")
        assert {str(one) for one in there} <= set(map(str, began))

    # What is done.

    def step(self) -> None:
        """Do something, and compare."""
        (way,) = self.chance.choices([*self.ways], [*self.ways.values()])
        way()
        self.check()

    @property
    def ways(self) -> dict[Callable[[], None], int]:
        """What may be done, and how often."""
        always: dict[Callable[[], None], int] = {
            self.settle: 16, self.kill: 14, self.end_driver: 6, self.create: 8, self.tag: 4,
            self.expire: 5, self.gc: 5, self.look: 2, self.rollback: 16, self.rollback_to_batch: 5,
            self.undo: 8, self.fork: 4, self.run_fork: 5, self.copy: 3, self.refused: 3,
        }  # fmt: skip
        return {**always, self.edit: 4, self.reset: 6} if self.job.topic else always

    def note(self, text: str) -> None:
        self.number += 1
        print(f"{self.number:3} {text}", flush=True)

    def call(self, *words: str, kill: bool = True) -> int:
        """Call a command, which may be killed on its way, and return its exit code."""
        self.note(" ".join(words))
        running = self.processes.command(*words)
        if kill and self.chance.random() < 0.4:
            changes = self.chance.randint(1, 30)
            if running.killed_after(changes):
                self.note(f"  killed after {changes} changes")
                return KILLED
        code = running.end()
        if code:
            self.note(f"  {code}: {running.text.strip()[-900:]}")
        assert "Traceback" not in running.text, running.text
        assert code not in {1, 70}, running.text
        return code

    def call_until_done(self, *words: str) -> int:
        """Call a command, and once more if it was killed."""
        code = self.call(*words)
        return self.call(*words, kill=False) if code == KILLED else code

    # The driver.

    def start(self) -> None:
        """Start the driver, and wait until it holds its query."""
        if self.driver is not None:
            return
        self.note("start the driver")
        self.driver = self.processes.driver(self.job)
        self._until(self._holds, "the driver is attached")

    def _holds(self) -> bool:
        held = lease.holder(self.store.root, self.job.query)
        return held is not None and held.holder.pid == self._running.process.pid

    @property
    def _running(self) -> Running:
        assert self.driver is not None
        return self.driver

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something while the driver runs, which must not end."""

        def there() -> bool:
            assert self._running.runs, self._running.text
            return condition()

        wait_until(there, what)

    def settle(self) -> None:
        """Let the driver read everything, and compare its table."""
        for _ in range(self.chance.randint(1, 3)):
            self.input.add(self.chance)
        self.start()
        name, ends = self.job.query, self.input.ends
        self._until(lambda: self.present(name).ends == ends, f"{name} has read up to {ends}")
        assert self.rows(name) == self.present(name).table
        self.note(f"read up to {ends}")

    def kill(self) -> None:
        """Kill the driver while it does something, or while it starts."""
        if self.driver is None:
            self.driver = self.processes.driver(self.job)
        else:
            self.input.add(self.chance)
        changes, alone = self.chance.randint(1, 60), self.chance.random() < 0.3
        # Those of an idle one are its savepoints' events.
        killed = self._running.killed_after(changes, python_alone=alone)
        assert killed, self._running.text
        self.note(f"killed the driver{', Python alone,' if alone else ''} after {changes} changes")
        if not alone or self.chance.random() < 0.5:
            self._running.await_jvm()
        self.driver, self.killed = None, True

    def end_driver(self) -> None:
        """End the driver as a service is ended."""
        if self.driver is None:
            return
        self.note("end the driver")
        self.driver.process.terminate()
        assert self.driver.end() == 0, self.driver.text
        self.driver, self.killed = None, False

    # Verbs that change nothing of the query.

    def create(self) -> None:
        words = [] if self.chance.random() < 0.2 else ["--format", "native"]
        words += ["--tag", f"tag{self.number}"] if self.chance.random() < 0.4 else []
        code = self.call_until_done("create", self.job.query, *words)
        assert code in {DONE, 11}

    def tag(self) -> None:
        savepoint = self.any_savepoint()
        words = ["--remove", savepoint.tags[0]] if savepoint.tags else [f"tag{self.number}"]
        assert self.call_until_done("tag", savepoint.id, *words, "--yes") == DONE

    def expire(self) -> None:
        keep = str(self.chance.randint(2, 5))
        words = ["expire", "--keep-last", keep, "--query", self.job.query, "--yes"]
        assert self.call_until_done(*words) in {DONE, 11}

    def gc(self) -> None:
        assert self.call_until_done("gc", "--grace", "1s", "--yes") in {DONE, 3, 11}

    def look(self) -> None:
        assert self.call("list", "--check-sources", kill=False) == DONE
        assert self.call("verify", self.any_savepoint().id, kill=False) == DONE
        assert self.call("lineage", "--query", self.job.query, kill=False) == DONE

    def copy(self) -> None:
        savepoint, to = self.any_savepoint(), f"{self.job.directory}/copies"
        assert self.call_until_done("copy", savepoint.id, to, "--yes") == DONE
        report = Store.open(to).savepoint(savepoint.id).verify(depth="checksums")
        assert report.grade == "ok", report

    def refused(self) -> None:
        """What needs an `App` says so, and changes nothing."""
        savepoint, before = self.any_savepoint(self.job.query), len(self.store.generations.all())
        late = f"{self.job.directory}/late"
        assert self.call("fork", savepoint.id, "other", "--yes", kill=False) == USAGE
        assert self.call("merge", self.job.query, "--batch", late, "--yes", kill=False) == USAGE
        assert len(self.store.generations.all()) == before

    def edit(self) -> None:
        """Give a key of a savepoint another sum."""
        savepoint = self.any_savepoint()
        sums = self.of(savepoint).state.get("total", Counter())
        if not sums:
            return
        key, before = self.chance.choice(sorted(sums))
        words = ["edit", savepoint.id, "--variable", "total", "--where", f"k = '{key}'"]
        words += ["--set", "s = s + 1000", "--reason", "a walk", "--yes"]
        words += ["--store", str(self.store.root)]
        self.note(" ".join(words))
        known = {one.id for one in self.store.catalog.all()}
        with suppress(KilledError), dying(self.chance.randint(1, 8), self.note):
            called(*words)
        # What died before its last step has left a savepoint that gc adopts, or nothing.
        made = [one for one in self.store.catalog.all() if one.id not in known and one.edit]
        for one in made:
            total = Counter({**sums, (key, before + 1000): 1})
            del total[key, before]
            self.edited[one.id] = replace(self.of(savepoint), state={"total": total})

    # Verbs that begin a generation.

    def rollback(self) -> None:
        savepoint = self.any_savepoint()
        self.transition(savepoint.query, ["rollback", savepoint.id], self.of(savepoint))

    def rollback_to_batch(self) -> None:
        name = self.job.query
        self.present(name)
        generation = self.current(name).generation
        batches = [batch for query, of, batch in self.known if (query, of) == (name, generation)]
        batch = max(min(batches), max(batches) - self.chance.randint(0, 3))
        if batch >= 0:
            words = ["rollback", "--at-batch", str(batch), "--query", name]
            self.transition(name, words, self.known[name, generation, batch])

    def undo(self) -> None:
        name = self.chance.choice([*self.jobs])
        before = self.before.get(name)
        if self.transition(name, ["undo", name], before):
            self.before.pop(name)

    def reset(self) -> None:
        name = self.job.query
        now = self.present(name)
        if self.chance.random() < 0.5:
            outputs = self.chance.choice(["keep", "truncate"])
            words = ["reset", name, "--to-earliest", "--outputs", outputs]
            after = Present((0, 0), {}, now.table if outputs == "keep" else Counter())
        else:
            words = ["reset", name, "--shift-by", "-1", "--state", "keep"]
            after = replace(now, ends=tuple(one - 1 for one in now.ends))
        self.transition(name, words, after)

    def transition(self, name: str, words: list[str], after: Present | None) -> bool:
        """Begin a generation by a command, which may die or be refused; says whether it did."""
        if self.driver is not None and name == self.job.query and self.chance.random() < 0.7:
            self.chance.choice([self.kill, self.end_driver])()
        begun, now = self.current(name), self.present(name)
        words = [*words, "--yes"]
        if self.killed and name == self.job.query and self.chance.random() < 0.8:
            self._await_jvms()
            words.append("--stopped")
        code = self.call(*words)
        if code == KILLED:
            code, now = self._again(name, begun, words)
        current = self.current(name)
        if current == begun:
            if self.driver is None or name != self.job.query:
                assert self.present(name) == now
            return False
        assert after is not None, "there is nothing to undo"
        assert name != self.job.query or self.driver is None, "below a driver that runs"
        assert code == DONE
        origin = self.store.generations.current(name).origin
        batch = -1 if origin is None else origin.batch_id
        self.known[name, current.generation, batch] = after
        self.before[name] = now
        if name == self.job.query:
            self.killed = False
        return True

    def _again(self, name: str, begun: Life, words: list[str]) -> tuple[int, Present]:
        """Finish what was killed, or take it back; says what the query was before."""
        unfinished = journal.unfinished(self.store.root, name)
        now = self.known[name, begun.generation, self._newest(name, begun)]
        if unfinished is None and self.current(name) != begun:
            return DONE, now
        if unfinished is not None and name == self.job.query and self.chance.random() < 0.3:
            self._start_below()
        if unfinished is not None and self.chance.random() < 0.3:
            self._take_back(name)
            if journal.unfinished(self.store.root, name) is None:
                return DONE, self.present(name)
        code = self.call(*words, kill=False)
        if code == NOT_ALIGNED and journal.unfinished(self.store.root, name) is not None:
            self._take_back(name)
            assert journal.unfinished(self.store.root, name) is None
            return DONE, self.present(name)
        return code, now

    def _newest(self, name: str, of: Life) -> int:
        return max(batch for query, life, batch in self.known if (query, life) == (name, of[0]))

    def _start_below(self) -> None:
        """Start a driver below a verb that lies unfinished, which it does not survive."""
        self.input.add(self.chance)
        self.note("start a driver below what is unfinished")
        driver = self.processes.driver(self.job)
        assert driver.end() != 0
        assert "UnfinishedOperationError" in driver.text, driver.text

    def _take_back(self, name: str) -> None:
        """Undo what is unfinished, as the refusals say where a driver has written since."""
        for _ in range(3):
            if self.call("undo", name, "--yes", kill=False) != NOT_ALIGNED:
                return
            said, (generation, checkpoint) = self.processes.started[-1].text, self.current(name)
            if batch := re.search(r"delete the files of batch (\d+) and later", said):
                self._forget_from(name, generation, checkpoint, int(batch[1]))
            elif entries := re.search(r"does not know: ([\w., ]+)$", said, re.MULTILINE):
                log = Location.of(self.jobs[name].table) / "_spark_metadata"
                log.delete(entries[1].split(", "))
            self.note("did what the hint says")

    def _forget_from(self, name: str, generation: int, checkpoint: Location, batch: int) -> None:
        for log in ("offsets", "commits"):
            paths = [info.path for info in checkpoint.list(log)]
            found = [one for one in paths if one.rpartition("/")[2].strip(".").isdigit()]
            checkpoint.delete(one for one in found if int(one.rpartition("/")[2]) >= batch)
        for key in [one for one in self.known if one[:2] == (name, generation)]:
            if key[2] >= batch:
                del self.known[key]

    def _await_jvms(self) -> None:
        for one in self.processes.started:
            if not one.runs:
                one.await_jvm()

    # Forks: a query of its own that begins with the state of a savepoint.

    def fork(self) -> None:
        savepoint = self.any_savepoint(self.job.query)
        if len(self.forks) > 1:
            return
        job = replace(self.job, query=f"fork{len(self.forks)}")
        to = job.first_checkpoint
        code = self.call_until_done("restore", savepoint.id, "--to", to, "--new-query-id", "--yes")
        if code != DONE:
            return
        self.forks[job.query] = job
        present = replace(self.of(savepoint), table=Counter())
        self.known[job.query, 1, savepoint.cut.batch_id] = present

    def run_fork(self) -> None:
        """Let a fork read everything, in this process."""
        if not self.forks:
            return
        job = self.chance.choice([*self.forks.values()])
        self.note(f"run {job.query}")
        query, attached = job.start(self.spark)
        query.processAllAvailable()
        attached.stop()
        assert self.present(job.query).ends == self.input.ends
