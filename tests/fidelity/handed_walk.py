"""A walk through the verbs on a query that an App and a driver of the user's run in turns.

The driver is written as users write them: it knows the store and where things are, and no settings.
It ends in order, or is killed in the midst of what it does, as runs are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from savepoints.checkpoint import position
from savepoints.io import Location
from tests.fidelity.driver_job import Job
from tests.fidelity.driver_process import Processes, Running
from tests.fidelity.verb_walk import Walk
from tests.fidelity.walk_model import Present
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
                self.compare: 4}  # fmt: skip

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
