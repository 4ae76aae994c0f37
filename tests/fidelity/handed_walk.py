"""A walk through the verbs on a query that an App and a driver of the user's run in turns.

The driver is written as users write them: it knows the store and where things are, and no settings.
It ends in order, or is killed in the midst of what it does, as runs are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from savepoints.checkpoint import position
from savepoints.checkpoint.cut import committed_batches
from savepoints.io import Location
from savepoints.model import Generation
from savepoints.operations import unfinished
from savepoints.store.locks import journal
from tests.fidelity.driver_job import Job
from tests.fidelity.driver_process import Processes, Running
from tests.fidelity.verb_walk import Walk
from tests.fidelity.walk_model import Change, Present
from tests.spark_session import wait_until


@dataclass
class HandedWalk(Walk):
    """A walk in which a driver runs the query, too.

    Attributes:
        job: The driver's.
        config: The settings, for runs in processes of their own.
    """

    job: Job = field(kw_only=True)
    config: str = field(kw_only=True)
    processes: Processes = field(kw_only=True)

    @property
    def ways(self) -> dict[Callable[[], None], int]:
        return {**super().ways, self.drive: 24, self.kill_driver: 20, self.kill_run: 8,
                self.compare: 4, self.both: 8}  # fmt: skip

    def run_first(self) -> None:
        """Let the query begin, in the driver or as a run."""
        if self.chance.random() < 0.5:
            super().run_first()
            return
        self.note("begin with the driver")
        query, attached = self.job.start(self.desk.spark)
        first = Location.of(self.job.first_checkpoint)
        wait_until(lambda: first.exists("commits/0"), "a batch was committed")
        attached.stop()
        assert not query.isActive

    def may_be(self, name: str) -> list[Present]:
        """Return also what it is of after a batch that a killed driver has begun."""
        now = self.present(name)
        checkpoint = Location.of(self.store.generations.current(name).checkpoint)
        begun = position.newest_in(checkpoint, "offsets")
        if begun < 0 or checkpoint.exists(f"commits/{begun}"):
            return [now]
        return [now, self.after(now, checkpoint, begun)]

    def drive(self) -> None:
        """Let the driver read everything, and end."""
        if self.chance.random() < 0.8:
            self.produce()
        self.note("drive")
        query, attached = self.job.start(self.desk.spark)
        # A query with timers that go by processing time has always something to process.
        wait_until(lambda: self.present(self.name).offsets == self.ends, "it has read everything")
        attached.stop()
        assert not query.isActive

    def kill_driver(self) -> None:
        self.produce()
        self._killed(self.processes.driver(self.job), "driver")

    def kill_run(self) -> None:
        """Kill a run, and let another one finish what it has begun, as the page has it."""
        self.produce()
        words = ["run", self.name, "--until", "latest", "--config", self.config]
        if self._killed(self.processes.command(*words), "run"):
            self.note("run to the end")
            self.store.query(self.name).run(until="latest", forms=("native",))

    def _killed(self, running: Running, what: str) -> bool:
        changes = self.chance.randint(1, 120)
        killed = running.killed_after(changes)
        self.note(f"kill the {what} after {changes} changes: {killed}")
        assert killed or running.end() == 0, running.text
        return killed

    def both(self) -> None:
        """Two people at one moment: one goes on from what the other has done, or is refused."""
        mine = [one for one in self.store.catalog.all() if one.query == self.name]
        if not mine:
            return
        begun, now = self.store.generations.current(self.name), self.present(self.name)
        uri, changes = self._batch(now)
        ids = [self.chance.choice(mine).id for _ in range(3)]
        every = [
            ["rollback", ids[0]], ["rollback", ids[1]], ["undo", self.name],
            ["tag", ids[2], f"tag{self.number}"],
            ["expire", "--keep-last", "1", "--query", self.name],
        ]  # fmt: skip
        if changes:
            every += [["merge", self.name, "--batch", uri]] * 4
        one, other = self.chance.sample(every, 2)
        self.note(f"{' '.join(one)} beside {' '.join(other)} {changes}")
        running = [
            self.processes.command(*words, "--yes", "--config", self.config)
            for words in (one, other)
        ]
        if self.chance.random() < 0.4:
            ends = self.chance.randint(1, 80)
            self.note(f"  killed after {ends} changes: {running[0].killed_after(ends)}")
        for each in running:
            code = each.end()
            self.note(f"  {code}: {each.text.strip()[-600:]}" if code else "  done")
            assert "Traceback" not in each.text, each.text
            assert code not in {1, 70}, each.text
        for left in journal.all_unfinished(self.store.root):
            self.note(f"  {left.command}")
            unfinished.resume(self.store, left.id)
        self._follow_others(begun, now, changes)

    def _follow_others(self, begun: Generation, now: Present, changes: list[Change]) -> None:
        """Know what the query is in each generation that others have begun."""
        for one in reversed(self.store.generations.all(self.name)):
            if one.generation <= begun.generation:
                continue
            batch = committed_batches(Location.of(one.checkpoint).list())[-1]
            after = now.merging(changes)
            if one.begun_by != "merge":
                after = self.of(self.store.catalog.find(one.begun_from or ""))
            self.known[self.name, one.generation, batch] = after
            self.before[self.name], now = now, after
        done = [one for one in journal.all_operations(self.store.root) if one.state == "finished"]
        if done and done[0].is_undo:
            self.before.pop(self.name, None)

    def compare(self) -> None:
        """Run the query and a fork to one end, and say whether they are the same."""
        if not self.forks:
            return
        fork = self.chance.choice(self.forks)
        self.note(f"compare with {fork}")
        found = self.store.compare(self.name, fork).execute()
        one, other = self.present(self.name), self.present(fork)
        assert one.offsets == other.offsets
        same = self._is_of(one) == self._is_of(other)
        assert (found.verdict == "same") == same, found

    def _is_of(self, present: Present) -> object:
        rows = self.program.rows(present.before, present.batches)
        return rows, self.program.state(present.batches)
