"""A walk through kills and verbs in the order of chance, on a driver that a user wrote.

The driver is a process of its own, and so are the commands; both are killed in the midst of what
they do. The walk knows what arrived, and reads from Spark's logs how far each batch went.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from savepoints.checkpoint import position
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.store.locks import journal, lease
from tests.e2e.shop import called
from tests.fidelity.driver_model import Present
from tests.fidelity.driver_process import Processes, Running
from tests.fidelity.driver_queries import DriverQueries, Life
from tests.killed import KilledError, dying
from tests.leftovers import left_over
from tests.spark_session import wait_until

if TYPE_CHECKING:
    pass

# Exit codes: done, killed by us, usage, not aligned.
DONE, KILLED, USAGE, NOT_ALIGNED = 0, -9, 2, 13
# Beside others: some of it is left to them, there is no such savepoint any more, they are at work.
BESIDE_OTHERS = {3, 10, 11}


@dataclass(kw_only=True)
class DriverWalk(DriverQueries):
    """Queries, and what is done to them.

    Attributes:
        before: What a query was before the last verb that changed it, for `undo`.
        killed: Whether the last driver was killed.
    """

    processes: Processes
    before: dict[str, Present] = field(default_factory=dict)
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

    def check_left_over(self) -> None:
        """Nothing stays behind that `gc` would not find, once nothing runs."""
        self.end_driver()
        self.store.gc(grace=timedelta(0)).execute()
        # Hadoop's checksums lie beside the rows of a savepoint, and go with it.
        left = {one for one in left_over(self.store) if not one.endswith(".crc")}
        assert left == set()
        began = {Location.of(one.checkpoint) for one in self.store.generations.all()}
        began |= {Location.of(one.first_checkpoint) for one in self.jobs.values()}
        checkpoints = Location.of(f"{self.job.place}/checkpoints")
        there = {"/".join(one.path.split("/")[:2]) for one in checkpoints.list()}
        assert {str(checkpoints / one) for one in there} <= set(map(str, began))

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
            self.together: 10, self.both: 10,
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
        if code == 10:  # After a reset to an empty state there is nothing yet.
            assert position.newest_in(self.current(self.job.query).checkpoint, "commits") < 0
        else:
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
        savepoint, to = self.any_savepoint(), f"{self.job.place}/copies"
        assert self.call_until_done("copy", savepoint.id, to, "--yes") == DONE
        report = Store.open(to).savepoint(savepoint.id).verify(depth="checksums")
        assert report.grade == "ok", report

    def refused(self) -> None:
        """What needs an `App` says so, and changes nothing."""
        savepoint, before = self.any_savepoint(self.job.query), len(self.store.generations.all())
        late = f"{self.job.place}/late"
        assert self.call("fork", savepoint.id, "other", "--yes", kill=False) == USAGE
        assert self.call("merge", self.job.query, "--batch", late, "--yes", kill=False) == USAGE
        assert len(self.store.generations.all()) == before

    def together(self) -> None:
        """Several at one moment: some find the savepoint gone, or another at work."""
        savepoint, name = self.any_savepoint(), self.job.query
        every = [
            ["create", name, "--format", "native"],
            ["copy", savepoint.id, f"{self.job.place}/copies", "--yes"],
            ["expire", "--keep-last", str(self.chance.randint(1, 4)), "--query", name, "--yes"],
            ["gc", "--grace", "1s", "--yes"],
            ["tag", savepoint.id, f"tag{self.number}", "--yes"],
            ["verify", "--all"],
            ["check", "--rebuild-catalog", "--yes"],
        ]
        chosen = self.chance.sample(every, 3)
        self.note("; ".join(map(" ".join, chosen)))
        running = [self.processes.command(*words) for words in chosen]
        # A tag that dies leaves the catalog behind its labels, of which verify warns.
        if chosen[0][0] != "tag" and self.chance.random() < 0.4:
            running[0].killed_after(self.chance.randint(1, 30))
        codes = [one.end() for one in running]
        self.note(f"  {codes}")
        for code, one in zip(codes, running, strict=True):
            assert "Traceback" not in one.text, one.text
            assert code in {DONE, KILLED, *BESIDE_OTHERS}, one.text

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

    def both(self) -> None:
        """Two people at one moment: one goes on from what the other has done, or is refused."""
        self.end_driver()
        self._await_jvms()
        name = self.job.query
        begun, now = self.current(name), self.present(name)
        ids = [self.any_savepoint(name).id for _ in range(3)]
        every = [
            ["rollback", ids[0], "--stopped"], ["rollback", ids[1], "--stopped"],
            ["undo", name, "--stopped"], ["tag", ids[0], f"tag{self.number}"],
            ["expire", "--keep-last", "1", "--query", name], ["gc", "--grace", "1s"],
            ["copy", ids[2], f"{self.job.place}/copies"],
        ]  # fmt: skip
        verbs = every[:3] if self.job.topic == "" else [*every[:3], self._any_reset()]
        first = self.chance.choice(verbs)
        other = self.chance.choice([one for one in [*every, *verbs] if one is not first])
        self.note(f"{' '.join(first)} beside {' '.join(other)}")
        running = [self.processes.command(*one, "--yes") for one in (first, other)]
        if self.chance.random() < 0.4:
            changes = self.chance.randint(1, 40)
            self.note(f"  killed after {changes} changes: {running[0].killed_after(changes)}")
        codes = [one.end() for one in running]
        self.note(f"  {codes}")
        for code, one in zip(codes, running, strict=True):
            self.note(f"  {one.text.strip()[-500:]}" if code else "  done")
            assert "Traceback" not in one.text, one.text
            assert code in {DONE, KILLED, USAGE, NOT_ALIGNED, 12, *BESIDE_OTHERS}, one.text
        if journal.unfinished(self.store.root, name) is not None and self.chance.random() < 0.3:
            self.call("undo", name, "--yes", kill=False)
        if journal.unfinished(self.store.root, name) is not None:
            assert self.call(*first, "--yes", kill=False) == DONE
        assert journal.unfinished(self.store.root, name) is None
        self._follow_others(name, begun, now)

    def _any_reset(self) -> list[str]:
        return ["reset", self.job.query, "--to-earliest", "--outputs", "truncate", "--stopped"]

    def _follow_others(self, name: str, begun: Life, now: Present) -> None:
        """Know what the query is in each generation that others have begun."""
        for one in reversed(self.store.generations.all(name)):
            if one.generation <= begun.generation:
                continue
            came = one.origin
            after, batch = Present((0, 0), {}, Counter()), -1
            if came is not None:
                batch = came.batch_id
                after = self.known[came.query, came.generation, batch]
                after = self.edited.get(one.begun_from or "", after)
            self.known[name, one.generation, batch] = after
            self.before[name], now = now, after
        done = [one for one in journal.all_operations(self.store.root) if one.state == "finished"]
        if done and done[0].is_undo:
            self.before.pop(name, None)

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
        now = self.known[name, begun.generation, self.newest(name, begun)]
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
        # Spark cannot begin a directory of files in the midst of a query.
        if len(self.forks) > 1 or self.job.program == "once":
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
