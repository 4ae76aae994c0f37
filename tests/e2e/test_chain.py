"""Chains of random operations against a model: a few dictionaries that know nothing of Spark.

After each operation the output and the state equal the model's. The model keeps what every record
was, where the query stands, its state, its output, and all of that for each savepoint.
"""

from __future__ import annotations

import copy
import logging
import random
import signal
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from savepoints.checkpoint.cut import committed_batches
from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import CheckpointNotFoundError, NoCommittedBatchError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.operations import unfinished
from savepoints.operations.maintain import expire
from savepoints.operations.rollback import reset, rollback
from savepoints.operations.rollback.target import (
    AtBatch,
    BeforeLast,
    Named,
    Point,
)
from savepoints.operations.run.pause import pause, resume
from savepoints.outputs.delta.batch_version import open_table
from savepoints.sources.kafka.reset_targets import Target
from savepoints.store.locks import journal
from savepoints.store.retention_policy import RetentionPolicy
from tests import draw, spark_session
from tests.processes import killed_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(1800),
]

_LOG = logging.getLogger(__name__)

QUERY = "chain"
PARTITIONS = 2
KILL_POINTS = (
    "rollback.begun",
    "rollback.safety_savepoint",
    "rollback.checkpoint_written",
    "rollback.output_totals_rewound",
    "rollback.generation_begun",
)

# Number and sum of the sales of each customer.
Totals = dict[int, tuple[int, int]]


@dataclass
class Model:
    """What must be there."""

    position: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    state: Totals = field(default_factory=dict)
    output: Totals = field(default_factory=dict)

    def read(self, records: list[list[tuple[int, int]]], until: list[int]) -> None:
        """Work in all records up to a position."""
        for partition, end in enumerate(until):
            for customer, amount in records[partition][self.position[partition] : end]:
                count, total = self.state.get(customer, (0, 0))
                self.state[customer] = self.output[customer] = (count + 1, total + amount)
            self.position[partition] = max(self.position[partition], end)


class Chain:
    """A query, its model, and what can be done to both."""

    def __init__(self, world: LocalWorld, place: Path, chance: random.Random) -> None:
        self.random = chance
        self.topic = f"chain-{uuid.uuid4().hex[:10]}"
        self.servers = world.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result()
        self.producer = Producer({"bootstrap.servers": self.servers})
        self.records: list[list[tuple[int, int]]] = [[] for _ in range(PARTITIONS)]
        bound = QuerySettings(
            app="tests.e2e.chain_app:app",
            checkpoints=str(place / "checkpoints"),
            outputs={"totals": str(place / "totals")},
            topics={"sales": self.topic},
            max_offsets_per_trigger=40,
        )
        self.settings: Settings = spark_session.settings(
            store=str(place / "store"),
            kafka={"bootstrap_servers": self.servers},
            queries={QUERY: bound},
        )
        (place / "store").mkdir()
        self.file = place / "savepoints.toml"
        self.file.write_text(
            f'store = "{self.settings.store}"\n'
            f'[kafka]\nbootstrap_servers = "{self.servers}"\n'
            f'[queries.{QUERY}]\napp = "{bound.app}"\ncheckpoints = "{bound.checkpoints}"\n'
            f'[queries.{QUERY}.outputs]\ntotals = "{bound.outputs["totals"]}"\n'
            f'[queries.{QUERY}.topics]\nsales = "{self.topic}"\n'
        )
        self.table = bound.outputs["totals"]
        self.store = Store.at(self.settings.store, settings=self.settings).make()
        self.model = Model()
        # Where each savepoint was, and where each batch of the generation that runs ended.
        self.saved: dict[str, Model] = {}
        self.batches: dict[int, Model] = {}
        self.undoes: Model | None = None

    # What can be done.

    def sell(self) -> None:
        for _ in range(self.random.randint(5, 60)):
            sale = (self.random.randint(0, 9), self.random.randint(1, 100))
            partition = self.random.randrange(PARTITIONS)
            self.producer.produce(self.topic, f"{sale[0]},{sale[1]}".encode(), partition=partition)
            self.records[partition].append(sale)
        assert self.producer.flush(30) == 0

    def run(self) -> None:
        self.sell()
        left = sum(len(r) for r in self.records) - sum(self.model.position)
        some = self.random.choice([None, self.random.randint(1, max(1, left))])
        ran, last = self.store.query(QUERY).run(until="latest", max_records=some, forms=("native",))
        reached = [ran.offsets[self.topic][number] for number in range(PARTITIONS)]
        if some is None:
            assert reached == [len(one) for one in self.records]
        else:
            assert sum(reached) == sum(self.model.position) + min(some, left)
        self.model.read(self.records, reached)
        assert last is not None
        self.remember(last.id, last.cut.batch_id)

    def savepoint(self) -> None:
        if not committed_batches(self.checkpoint.list()):
            # It has not run since a reset to an empty state.
            with pytest.raises((CheckpointNotFoundError, NoCommittedBatchError)):
                self.store.create(query=QUERY, forms=("native",))
            return
        taken = self.store.create(query=QUERY, forms=("native",)).execute()
        self.remember(taken.id, taken.cut.batch_id)

    def rollback(self) -> None:
        self.go(Named(self.random.choice(self.known())))

    def undo(self) -> None:
        if self.undoes is not None:
            self.go(BeforeLast())

    def to_a_batch(self) -> None:
        retained = committed_batches(self.checkpoint.list())
        fitting = [one for one in retained if one in self.batches]
        if fitting:
            self.go(AtBatch(self.random.choice(fitting)))

    def reset(self) -> None:
        keeps = self.random.random() < 0.5 and bool(committed_batches(self.checkpoint.list()))
        truncates = self.random.random() < 0.5
        to = [self.random.randint(0, len(one)) for one in self.records]
        plan = reset.plan(
            self.store,
            QUERY,
            Target("file", offsets={self.topic: dict(enumerate(to))}),
            state="keep" if keeps else "empty",
            outputs="truncate" if truncates else "keep",
        )
        before = copy.deepcopy(self.model)
        done = reset.execute(plan, self.store)
        self.moved(before, done.safety_id)
        self.model.position = to
        self.model.state = self.model.state if keeps else {}
        self.model.output = {} if truncates else self.model.output

    def kill(self) -> None:
        """A rollback dies, and is finished or taken back."""
        name, point = self.random.choice(self.known()), self.random.choice(KILL_POINTS)
        words = ("rollback", name, "--yes", "--config", str(self.file))
        if killed_at(point, *words) != -signal.SIGKILL:
            raise AssertionError(f"{words} was not killed at {point}")
        begun = journal.unfinished(self.store.root, QUERY)
        assert begun is not None
        before = copy.deepcopy(self.model)
        safety = begun.plan["safety_id"]
        if point != "rollback.generation_begun" and self.random.random() < 0.5:
            unfinished.undo(self.store, begun.id)
        else:
            unfinished.resume(self.store, begun.id)
            self.moved(before, safety)
            self.model = copy.deepcopy(self.saved[name])

    def rescale(self) -> None:
        """Into a directory of its own, with the state of the savepoint in it."""
        name = self.random.choice(self.known())
        self.store.savepoint(name).export().execute()
        target = f"{self.file.parent}/rescaled-{uuid.uuid4().hex[:6]}"
        partitions = self.random.choice([1, 2, 5])
        self.store.savepoint(name).restore(target, partitions=partitions).execute()
        query = f"rescaled-{uuid.uuid4().hex[:6]}"
        other = self.store.create(query=query, checkpoint=target, forms=("native",)).execute()
        assert other.operators[0].partitions == partitions
        assert self.state_of(other.id) == self.saved[name].state

    def pause(self) -> None:
        """A run under cron finds the query paused and does nothing."""
        pause(self.store, QUERY)
        self.sell()
        ran, _ = self.store.query(QUERY).run(until="latest", forms=("native",))
        assert (ran.ended, ran.batches) == ("paused", 0)
        resume(self.store, QUERY)

    def expire(self) -> None:
        plan = expire.plan(self.store, RetentionPolicy(keep_last=3), query=QUERY)
        expire.execute(plan, self.store)

    # What that means for the model, and whether it holds.

    def go(self, where: Point) -> None:
        before = copy.deepcopy(self.model)
        plan = rollback.plan(self.store, where, query=QUERY)
        rollback.execute(plan, self.store)
        if isinstance(where, BeforeLast):
            assert self.undoes is not None
            self.model, undone = copy.deepcopy(self.undoes), True
        elif isinstance(where, AtBatch):
            self.model, undone = copy.deepcopy(self.batches[where.batch_id]), False
        else:
            assert isinstance(where, Named)
            self.model, undone = copy.deepcopy(self.saved[where.name]), False
        self.moved(before, plan.safety_id)
        if undone:
            self.undoes = None

    def moved(self, before: Model, safety: str | None) -> None:
        """A generation has begun: what was before can be brought back, if it was saved."""
        self.undoes = before if safety else None
        if safety:
            self.saved[safety] = before
        self.batches = {}

    def remember(self, savepoint: str, batch: int) -> None:
        self.saved[savepoint] = copy.deepcopy(self.model)
        self.batches[batch] = copy.deepcopy(self.model)

    def known(self) -> list[str]:
        """Return the savepoints that still exist."""
        there = [one.id for one in self.store.catalog.all() if one.query == QUERY]
        return [one for one in there if one in self.saved]

    @property
    def checkpoint(self) -> Location:
        return Location.of(self.store.generations.current(QUERY).checkpoint)

    def state_of(self, savepoint: str) -> Totals:
        with self.store.savepoint(savepoint).read_state() as rows:
            return {row["key"][0]: (row["value"][0], row["value"][1]) for row in rows.collect()}

    def check(self) -> None:
        """The table is the model's, and so is the state, if there is any."""
        rows = open_table(self.table).to_pyarrow_table().to_pylist()
        found = {row["customer"]: (row["sales"], row["amount"]) for row in rows}
        assert len(found) == len(rows), "a customer twice"
        assert found == self.model.output
        if committed_batches(self.checkpoint.list()):
            taken = self.store.create(query=QUERY, forms=("native",)).execute()
            self.remember(taken.id, taken.cut.batch_id)
            assert self.state_of(taken.id) == self.model.state
        else:
            assert self.model.state == {}

    def play(self, length: int) -> None:
        self.run()
        operations: list[Callable[[], None]] = [
            self.run, self.run, self.run, self.savepoint, self.rollback, self.undo,
            self.to_a_batch, self.reset, self.kill, self.rescale, self.pause, self.expire,
        ]  # fmt: skip
        for _ in range(length):
            operation = self.random.choice(operations)
            _LOG.info("%s", operation.__name__)
            operation()
            self.check()


def play(world: LocalWorld, place: Path, number: int, length: int) -> None:
    Chain(world, place, draw.chance("chain", number)).play(length)


def test_a_short_chain(
    spark: SparkSession, world: LocalWorld, world_environment: dict[str, str], tmp_path: Path
) -> None:
    play(world, tmp_path, number=-1, length=6)


@pytest.mark.parametrize("number", range(50))
def test_twenty_random_operations(
    spark: SparkSession,
    world: LocalWorld,
    world_environment: dict[str, str],
    tmp_path: Path,
    number: int,
) -> None:
    play(world, tmp_path, number, length=20)
