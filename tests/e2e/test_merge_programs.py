"""Merges through the verb into programs with two inputs, with Python functions, and with timers.

The events are families of `merge_families`, which arrive in Kafka in several runs; the truth is
pandas over all of them at once.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from savepoints.checkpoint.cut import read_cut
from savepoints.operations.merge import merge as merging
from savepoints.operations.merge.prepare import MergeRequest, Prepared
from savepoints.runtime.app import load
from savepoints.sources.combined import archiving_query
from savepoints.sources.combined.archiving_query import Archiving
from savepoints.sources.events.events import Decoding
from tests.e2e.desk import Desk
from tests.fidelity import merge_families
from tests.fidelity.merge_events import RAW, Event
from tests.fidelity.merge_families import FILES, ONCE
from tests.spark_jobs import truths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from savepoints.local import LocalWorld

pytestmark = [
    *(pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka, pytest.mark.nightly),
    pytest.mark.timeout(1800),
]

# The files of each run; a merge comes after the third one.
RUNS = (range(2), range(2, 4), range(4, 5), range(5, FILES))
NEAR = pd.Timedelta(seconds=15)


@dataclass(frozen=True)
class Counter:
    """A desk whose events arrive from files, and what has arrived so far.

    Attributes:
        spark: Archives.
        desk: The query.
        events: All of them, those that come late too.
    """

    spark: SparkSession
    desk: Desk
    events: Sequence[Event]

    @classmethod
    def open(
        cls, spark: SparkSession, world: LocalWorld, place: Path, app: str, scale: int = 1
    ) -> Counter:
        desk = Desk.open(world, place, app, archived=True)
        sources = len(desk.topics)
        families = merge_families.drawn(12, ONCE, sources, seed=7)
        return cls(spark, desk, merge_families.placed(families, sources, scale))

    def arrive(self, files: Sequence[int]) -> None:
        """Let the events of some files arrive, archive them, and run the query."""
        from confluent_kafka import Producer

        servers = self.desk.settings.kafka.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers})
        for one in self.events:
            if not one.merge and one.batch in files:
                record = one.record()
                topic = list(self.desk.topics.values())[one.source]
                producer.produce(topic, record["value"], record["key"])
        producer.flush()
        bound = self.desk.settings.queries[self.desk.query]
        for name, each in load(bound.app).inputs.items():
            what = Archiving(
                bound.archives[name],
                bound.topics[name],
                Decoding(each.decode, each.entity_key, each.event_time, each.event_id),
                self.desk.settings.kafka,
            )
            archiving_query.start(self.spark, what).awaitTermination()
        self.desk.run(until="latest")

    def merge(self, source: int) -> set[str | None]:
        """Merge the late events of an input; return the savepoints they began from."""
        name = list(self.desk.topics)[source]
        mine = [one for one in self.events if one.merge and one.source == source]
        file = self.desk.directory / f"late-{name}.parquet"
        table = pa.Table.from_pylist([one.record() for one in mine], RAW)
        ops = pa.array(["remove" if one.gone else "insert" for one in mine])
        given = table.select(["key", "value", "timestamp"]).append_column("op", ops)
        pq.write_table(given, file)
        prepared = merging.prepare(self.desk.store, MergeRequest(self.desk.query, str(file), name))
        assert isinstance(prepared, Prepared)
        merging.execute(prepared, self.desk.store)
        return {one.savepoint_id for one in prepared.plan.bases}

    @property
    def once(self) -> list[Event]:
        """Every event once that none takes away."""
        gone = {one.id for one in self.events if one.gone}
        return [one for one in {one.id: one for one in self.events}.values() if one.id not in gone]

    def all(self) -> pd.DataFrame:
        """Return them as they happened."""
        rows = [
            {"id": one.id, "k": one.k, "v": one.v, "t": one.time, "source": one.source}
            for one in self.once
        ]
        return pd.DataFrame(rows)


def test_both_inputs_of_a_join(
    spark: SparkSession, world: LocalWorld, world_environment: dict[str, str], tmp_path: Path
) -> None:
    """Late events of the one input are merged, and then those of the other one."""
    it = Counter.open(spark, world, tmp_path, "tests.fidelity.merge_cases:join")
    for files in RUNS[:3]:
        it.arrive(files)

    assert None in it.merge(0)
    it.merge(1)
    it.arrive(RUNS[3])

    events = it.all()
    left, right = (events[events["source"] == source] for source in (0, 1))
    pairs = left.merge(right, on=["k", "v"], suffixes=("", "2"))
    after = pairs["t2"] - pairs["t"]
    near = pairs[(after >= pd.Timedelta(0)) & (after <= NEAR)]
    truth = sorted(near[["k", "v", "t", "t2"]].itertuples(index=False, name=None), key=str)
    rows = [(row["k"], row["v"], row["t"], row["t2"]) for row in it.desk.rows()]
    assert truth
    assert sorted(rows, key=str) == truth


@pytest.mark.parametrize("app", ["app", "app_transform"])
def test_orders_count_in_the_sessions_in_which_they_fell(
    spark: SparkSession,
    world: LocalWorld,
    world_environment: dict[str, str],
    tmp_path: Path,
    app: str,
) -> None:
    """Late orders and page views join sessions, and begin others."""
    it = Counter.open(spark, world, tmp_path, f"spark_jobs.order_sessions:{app}", scale=300)
    for files in RUNS[:3]:
        it.arrive(files)

    found = it.merge(0)

    assert None in found
    assert len(found) > 1
    it.arrive(RUNS[3])
    seen = read_cut(it.desk.checkpoint).cut.watermark_ms
    watermark = pd.Timestamp(seen, unit="ms", tz="UTC")
    events = pd.DataFrame([_as_pandas(one) for one in it.once])
    truth = truths.order_sessions(events, watermark)
    times = ("client_id", "began_at", "ended_at")
    names = (*times, "landing_page", "views", "orders", "revenue_cents", "order_ids")
    rows = [tuple(row[name] for name in names) for row in it.desk.rows("sessions")]
    assert truth
    assert sorted(map(_plain, rows)) == sorted(map(_plain, truth))


def _as_pandas(one: Event) -> dict[str, Any]:
    import json

    value = json.loads(one.record()["value"])
    names = ("event_id", "client_id", "kind", "page", "amount_cents")
    return {**{name: value[name] for name in names}, "at": pd.Timestamp(one.time)}


def _plain(row: tuple[Any, ...]) -> str:
    """Return a row as text, whatever its times are made of."""
    return str([str(pd.Timestamp(one)) if isinstance(one, dt.datetime) else one for one in row])
