"""A query over a few events a batch, and late ones: how they are produced, run and merged."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from savepoints.config.settings import Settings
from savepoints.local import LocalWorld
from savepoints.operations.merge import merge
from savepoints.operations.merge.merge import Merged
from savepoints.operations.merge.prepare import MergeRequest, Prepared
from savepoints.plan import Progress, silent
from savepoints.runtime.app import load
from savepoints.runtime.inputs import Inputs
from savepoints.sources.combined import archiving_query
from savepoints.sources.combined.archiving_query import Archiving
from savepoints.store import batch_log
from savepoints.store.batch_log import Batch
from tests.e2e.desk import PARTITIONS, Desk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def archive(spark: SparkSession, settings: Settings, query: str, name: str) -> None:
    """Archive what has arrived at an input of a query, in one batch."""
    bound = settings.queries[query]
    inputs = Inputs(load(bound.app), bound, settings.kafka)
    what = Archiving(
        inputs.archive(name), inputs.topic(name), inputs.decoding(name), settings.kafka
    )
    assert archiving_query.start(spark, what).awaitTermination(120)


class Event(NamedTuple):
    """An event; `s` is when it happened, in seconds since 1970."""

    id: str
    k: str
    n: int
    s: float

    @property
    def place(self) -> tuple[str, str]:
        """By what it is recognised: its entity and its id."""
        return self.k, self.id

    @property
    def value(self) -> bytes:
        return json.dumps(
            {"id": self.id, "k": self.k, "n": self.n, "at_ms": round(self.s * 1000)}
        ).encode()


@dataclass
class LateDesk:
    """A query, and what it was given.

    Attributes:
        desk: Its place.
        spark: The session of the tests.
        chunks: The events that arrived, one after the other, each run as one batch.
    """

    desk: Desk
    spark: SparkSession
    chunks: list[list[Event]] = field(default_factory=list)

    @classmethod
    def open(cls, world: LocalWorld, spark: SparkSession, directory: Path, app: str) -> LateDesk:
        desk = cls(Desk.open(world, directory, f"tests.e2e.late_apps:{app}"), spark)
        desk.bind(archives={"events": str(directory / "archive")})
        return desk

    def bind(self, **changed: object) -> None:
        """Bind the query otherwise from now on, by fields of `QuerySettings`."""
        settings = self.desk.settings
        bound = settings.queries[self.desk.query].model_copy(update=changed)
        settings = settings.model_copy(update={"queries": {self.desk.query: bound}})
        self.desk = dataclasses.replace(self.desk, settings=settings)

    def with_store_on_s3(self, world: LocalWorld) -> LateDesk:
        """Return this desk with its store in a bucket of its own; nothing was done in it yet."""
        bucket = f"desk-{uuid.uuid4().hex[:10]}"
        world.create_bucket(bucket)
        settings = self.desk.settings.model_copy(update={"store": f"s3://{bucket}/store"})
        return dataclasses.replace(self, desk=dataclasses.replace(self.desk, settings=settings))

    def produce(self, events: Sequence[Event]) -> None:
        """Let events arrive, and nobody read them yet."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.desk.settings.kafka.bootstrap_servers})
        for number, one in enumerate(events):
            topic = self.desk.topics["events"]
            producer.produce(topic, one.value, one.k.encode(), partition=number % PARTITIONS)
        producer.flush()

    def arrive(self, events: Sequence[Event]) -> None:
        """Let events arrive, and the query read them."""
        self.produce(events)
        self.chunks.append(list(events))
        self.desk.run(until="latest")

    def archive(self) -> None:
        """Archive what has arrived, in one batch."""
        archive(self.spark, self.desk.settings, self.desk.query, "events")

    def write(self, events: Sequence[Event], name: str = "late.parquet", op: str = "insert") -> str:
        """Write events as a batch of records; returns where."""
        return self.write_changes([(op, one) for one in events], name)

    def write_changes(self, changes: Sequence[tuple[str, Event]], name: str) -> str:
        """Write events with what is to be done with each; returns where."""
        columns: list[pa.Field[Any]] = [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("op", pa.string()),
        ]
        rows = [{"key": one.k.encode(), "value": one.value, "op": op} for op, one in changes]
        path = self.desk.directory / name
        pq.write_table(pa.Table.from_pylist(rows, pa.schema(columns)), path)
        return str(path)

    def prepare(self, batch: str | None, **options: Any) -> Prepared:
        found = merge.prepare(self.desk.store, MergeRequest(self.desk.query, batch, **options))
        assert isinstance(found, Prepared)
        return found

    def merge(self, prepared: Prepared, progress: Progress = silent) -> Merged:
        return merge.execute(prepared, self.desk.store, progress=progress)

    @property
    def batches(self) -> list[Batch]:
        """What the query ran, as its batch log has it, over all generations."""
        store, query = self.desk.store, self.desk.query
        found: dict[int, Batch] = {}
        for one in store.generations.all(query):
            found |= batch_log.read(store.root, query, one.generation)
        assert sorted(found) == list(range(len(found)))
        return [found[number] for number in sorted(found)]

    def by_batch(self, late: Sequence[Event]) -> list[list[Event]]:
        """Return the events of each batch, late ones in the first that has seen something newer."""
        arrived = iter(self.chunks)
        found, read = [], 0
        for one in self.batches:
            (position,) = one.offsets
            total = sum(json.loads(position or "{}")[self.desk.topics["events"]].values())
            found.append(list(next(arrived)) if total > read else [])
            read = total
        clock, waiting = 0.0, sorted(late, key=lambda one: one.s)
        for mine in found:
            clock = max([clock, *(one.s for one in mine)])
            while waiting and waiting[0].s <= clock:
                mine.append(waiting.pop(0))
        assert not waiting
        return found
