"""What the queries of a driver are, by our own count and by what is stored: do they agree?"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from savepoints.checkpoint import position
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.outputs.delta.batch_version import open_table
from tests.fidelity.driver_input import DriverInput
from tests.fidelity.driver_job import Job
from tests.fidelity.driver_model import MODELS, Model, Present, Rows
from tests.fidelity.driver_process import Running
from tests.leftovers import all_are_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Life(NamedTuple):
    """A generation: its number and its checkpoint."""

    generation: int
    checkpoint: Location


@dataclass(kw_only=True)
class DriverQueries:
    """One query and what was begun from it.

    Attributes:
        spark: A session of this process, which looks at states and files, and runs the forks.
        known: What each query is after each batch of each generation.
        edited: What an edited savepoint is, by its id.
        forks: Queries that began from a savepoint of the first, by their names.
        driver: The driver that runs, if one does.
    """

    spark: SparkSession
    job: Job
    input: DriverInput
    chance: random.Random
    known: dict[tuple[str, int, int], Present] = field(default_factory=dict)
    edited: dict[str, Present] = field(default_factory=dict)
    forks: dict[str, Job] = field(default_factory=dict)
    driver: Running | None = None

    @property
    def store(self) -> Store:
        return Store.at(f"{self.job.place}/store").make()

    @property
    def model(self) -> Model:
        return MODELS[self.job.program]

    @property
    def jobs(self) -> dict[str, Job]:
        return {self.job.query: self.job, **self.forks}

    def current(self, name: str) -> Life:
        """Return the generation of a query, also before its first savepoint."""
        found = self.store.generations.find_current(name)
        if found is None:
            return Life(1, Location.of(self.jobs[name].first_checkpoint))
        return Life(found.generation, Location.of(found.checkpoint))

    def present(self, name: str) -> Present:
        """Return what a query is now, after each batch that was committed since we looked last."""
        generation, checkpoint = self.current(name)
        batch = self.newest(name, Life(generation, checkpoint))
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
        table, columns = Location.of(self.jobs[name].table), self.model.columns
        if table.list("_delta_log"):
            rows = open_table(str(table)).to_pyarrow_table().to_pylist()
            return Counter(tuple(row[one] for one in columns) for row in rows)
        if not table.list("_spark_metadata"):
            return Counter()
        files = self.spark.read.parquet(table.uri.hadoop)
        return Counter(map(tuple, files.select(*columns).collect()))

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

    def newest(self, name: str, of: Life) -> int:
        return max(batch for query, life, batch in self.known if (query, life) == (name, of[0]))
