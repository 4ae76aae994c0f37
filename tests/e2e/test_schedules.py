"""Random schedules on a driver of a user's own: two actors at once, deaths between steps.

What the table must have is computed by pandas, from the factor with which the living line has read
each input file; nothing of what the verbs say about themselves goes into it but which savepoint a
generation began from.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from deltalake import DeltaTable

from savepoints.checkpoint.cut import committed_batches
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.store.locks import journal
from tests import draw
from tests.e2e.plain_driver import Driver
from tests.processes import killed_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(900),
]

QUERY = "numbers"
RUNNING, STALE = 12, 13
# Steps at which a verb is killed: between two entries of the journal, and in the midst of one.
DEATHS = {
    "rollback": (
        "rollback.begun", "rollback.safety_savepoint", "rollback.checkpoint_written",
        "rollback.output_numbers_rewound", "rollback.generation_begun", "rollback.finished",
        "restore.claimed", "restore.files", "restore.metadata", "create.pinned", "create.catalog",
    ),
    "create": ("create.pinned", "create.manifest", "create.catalog"),
    "expire": ("expire.marked", "expire.manifest", "expire.files", "expire.row"),
    "operations": (
        "rollback.checkpoint_written", "rollback.generation_begun", "rollback.undo_outputs",
        "rollback.undo_checkpoint", "rollback.finished",
    ),
}  # fmt: skip

# The factor with which each input file was read, in order: a batch is a file.
Line = tuple[int, ...]


class Schedule:
    """A driver, what must come of it, and what can be done to it."""

    def __init__(self, driver: Driver, seed: int) -> None:
        self.driver, self.random = driver, random.Random(seed)
        self.inputs: list[list[int]] = []
        # What each generation has read, and what was read when a savepoint was taken.
        self.lines: dict[int, Line] = {1: ()}
        self.saved: dict[str, Line] = {}
        self.seen: Counter[str] = Counter()

    @property
    def generation(self) -> int:
        current = self.driver.store.generations.find_current(QUERY)
        return current.generation if current else 1

    @property
    def line(self) -> Line:
        return self.lines[self.generation]

    # What is done.

    def add(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            numbers = [self.random.randint(0, 30) for _ in range(self.random.randint(1, 5))]
            self.driver.add(*numbers)
            self.inputs.append(numbers)

    def run(self) -> None:
        """All that is there, to the end."""
        self.add()
        factor = self.random.choice([1, 1, -1])
        self.driver.run(factor)
        self._read(len(self.inputs), factor)

    def run_while_somebody_acts(self) -> None:
        """Whoever wants to take the query away is told that it runs."""
        self.add()
        query = self.driver.start()
        attached = self.driver.attach(query, every="200ms")
        code = self.act(("rollback", self.random.choice(list(self.saved))), "")
        assert code == RUNNING, code
        query.processAllAvailable()
        attached.stop()
        self._read(len(self.inputs), 1)

    def run_and_die(self) -> None:
        """The driver is killed while it writes batches and takes savepoints."""
        self.add()
        factor = self.random.choice([1, -1])
        self.driver.run_and_die(factor, self.random.random() * 2)
        self.seen["drivers killed"] += 1
        # The batch that runs may be in the table and not in the commit log: it counts, as Delta
        # does not take it a second time.
        committed = committed_batches(Location.of(self.driver.checkpoint).list())
        batches = [-1 if not committed else committed[-1]]
        if Path(self.driver.table).exists():
            written = DeltaTable(self.driver.table).transaction_version(self._query_id())
            batches.append(-1 if written is None else written)
        self._read(max(batches) + 1, factor)

    def roll_back(self) -> None:
        self.do("rollback", self.random.choice(list(self.saved)))

    def undo(self) -> None:
        self.do("rollback", "--undo")

    def save(self) -> None:
        self.do("create")

    def expire(self) -> None:
        self.do("expire")

    def two_at_once(self) -> None:
        """Both have planned before either acts, or not: one of them may be refused."""
        verbs = [self._words(self.random.choice(["rollback", "create", "expire"])) for _ in "ab"]
        with ThreadPoolExecutor(2) as pool:
            codes = list(pool.map(lambda words: self.act(words, self._death(words[0])), verbs))
        self.seen["two at once"] += 1
        assert set(codes) <= {0, -signal.SIGKILL, 3, 10, 11, RUNNING, STALE, 15}, (verbs, codes)

    # How it is done.

    def do(self, verb: str, *words: str) -> None:
        given = (verb, *words) if words else self._words(verb)
        death = self._death(verb)
        code = self.act(given, death)
        if code == RUNNING:
            # Nobody has the query, and whether it runs cannot be told by its batches: the driver
            # is stopped, as the hint wants to hear.
            self.seen["said to be stopped"] += 1
            code = self.act((*given, "--stopped"), death)
        # There is nothing to undo: nothing was done, or it was undone already.
        nothing = {10, 2} if "--undo" in given else set()
        assert code in {0, -signal.SIGKILL, *nothing}, (given, code, self._said())

    def act(self, words: tuple[str, ...], death: str) -> int:
        """Call the command line in a process of its own, which may die at a step."""
        verb, *rest = words
        options = {
            "rollback": ["--query", QUERY, "--to", self._next_checkpoint(), "--yes"],
            "create": [QUERY, "--format", "native"],
            "expire": ["--query", QUERY, "--keep-last", "4", "--yes"],
            "operations": ["--yes"],
        }[verb]
        code = killed_at(death, verb, *rest, *options, "--store", str(self.driver.store.root))
        self.seen["killed"] += code == -signal.SIGKILL
        return code

    def settle(self) -> None:
        """Finish or take back what was interrupted, maybe dying once more; then look."""
        while (begun := journal.unfinished(self.driver.store.root, QUERY)) is not None:
            self.seen["killed between steps"] += 1
            how = self.random.choice(["resume", "undo"])
            self.act(("operations", how, begun.id), self._death("operations"))
            if journal.unfinished(self.driver.store.root, QUERY) is not None:
                # Resuming what was being taken back, and the other way round, is refused.
                for other in ("undo", "resume"):
                    if self.act(("operations", other, begun.id), "") == 0:
                        break
            left = journal.unfinished(self.driver.store.root, QUERY)
            assert left is None or left.id != begun.id, f"{begun.id} cannot be ended"
        self._learn()
        self.driver.checkpoint = self.driver.store.generations.current(QUERY).checkpoint

    def check(self, what: str) -> None:
        """Compare the table with what pandas computes."""
        found = self.driver.rows() if Path(self.driver.table).exists() else []
        wanted = self.truth(self.line)
        assert found == wanted, f"after {what}: {found} instead of {wanted}"

    def truth(self, line: Line) -> list[tuple[int, int]]:
        rows = pd.DataFrame(
            [
                (n, factor)
                for numbers, factor in zip(self.inputs, line, strict=False)
                for n in numbers
            ],
            columns=["n", "factor"],
        )
        if rows.empty:
            return []
        if self.driver.program == "append":
            first = rows.groupby("n")["factor"].first()
            return [(int(n), int(n * factor)) for n, factor in first.items()]
        sums = rows["n"].groupby(rows["n"] % 10).sum() * line[-1]
        return [(int(n), int(v)) for n, v in sums.items()]

    def play(self, length: int) -> None:
        self.run()
        self.settle()
        operations: list[Callable[[], None]] = [
            self.run, self.run, self.run_while_somebody_acts, self.roll_back, self.roll_back,
            self.undo, self.save, self.expire, self.two_at_once, self.two_at_once,
        ]  # fmt: skip
        chosen = [self.random.choice(operations) for _ in range(length)]
        chosen.insert(self.random.randrange(length), self.run_and_die)
        for operation in [*chosen, self.run]:
            operation()
            self.settle()
            self.check(operation.__name__)

    def _said(self) -> list[str]:
        """What the last verbs that failed said."""
        failed = [one for one in self.driver.store.events.all() if one.result != "done"]
        return [f"{one.verb}: {one.error}: {one.message}" for one in failed[:3]]

    def _words(self, verb: str) -> tuple[str, ...]:
        return (verb, self.random.choice(list(self.saved))) if verb == "rollback" else (verb,)

    def _death(self, verb: str) -> str:
        return self.random.choice(DEATHS[verb]) if self.random.random() < 0.6 else ""

    def _next_checkpoint(self) -> str:
        return f"{self.driver.directory}/checkpoint-{self.random.randrange(10**9)}"

    def _query_id(self) -> str:
        return str(self.driver.store.catalog.all()[0].query_id)

    def _read(self, files: int, factor: int) -> None:
        now = self.line
        self.lines[self.generation] = now + (factor,) * (files - len(now))
        self._learn()

    def _learn(self) -> None:
        """Note what each new savepoint and each new generation has read."""
        store = self.driver.store
        there: dict[str, Savepoint] = {
            one.id: one for one in store.catalog.all() if one.state != "expired"
        }
        generations = sorted(store.generations.all(QUERY), key=lambda one: one.generation)
        for generation in generations:
            if generation.generation not in self.lines:
                assert generation.begun_from is not None
                self.lines[generation.generation] = self.saved[generation.begun_from]
            for one in there.values():
                if one.generation == generation.generation and one.id not in self.saved:
                    line = self.lines[one.generation]
                    self.saved[one.id] = line[: one.cut.batch_id + 1]
        self.saved = {name: line for name, line in self.saved.items() if name in there}


@pytest.mark.parametrize("program", ["append", "complete"])
@pytest.mark.parametrize("number", range(15))
def test_whatever_happens_the_table_is_what_pandas_computes(
    spark: SparkSession, tmp_path: Path, number: int, program: str
) -> None:
    seed = draw.chance("schedule", number, program).randrange(10**9)
    schedule = Schedule(Driver(spark, tmp_path, program), seed)
    try:
        schedule.play(length=7)
    finally:
        for query in schedule.driver.started:
            query.stop()
    print(f"seed {seed}: {dict(schedule.seen)}")
