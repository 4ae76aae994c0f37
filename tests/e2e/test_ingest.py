"""A feed over HTTP that repeats itself and fails, through Kafka, each event once.

Loader and query are killed and the query is rolled back in between. The model (`feed_model`) reads
the topic with Kafka's own client and knows nothing of batches; what the server gave tells what may
not be lost.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.sources.kafka import live_ranges, offsets
from spark_jobs.ingest.load import load
from tests.e2e import seeds
from tests.e2e.desk import Desk, records_before
from tests.e2e.marks import NIGHTLY
from tests.e2e.seeds import History
from tests.e2e.shop import environment
from tests.spark_jobs import account_tables, feed_model
from tests.spark_jobs.feed_model import BEGIN_MS, DAY_MS, Expected, Row
from tests.spark_jobs.feed_server import Feed, serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = NIGHTLY

APP = "spark_jobs.ingest.events_once:app"
POINTS = ("run.written_events", "run.written_refused", "run.outputs_written")
LOADS = ("ingest.sent", "ingest.noted")
ROUNDS, DAYS = 3, 30
# Ids with amounts; reasons with places in the topic.
Content = tuple[list[tuple[str, int]], list[tuple[str, int, int]]]


class Ingest:
    """A feed, the topic that it is loaded into, and the tables."""

    def __init__(self, desk: Desk, feed: Feed) -> None:
        self.desk, self.feed = desk, feed
        self.servers = desk.settings.kafka.bootstrap_servers
        (self.topic,) = desk.topics.values()

    @property
    def position(self) -> Path:
        return self.desk.directory / "position"

    def load(self) -> None:
        load(
            self.feed.url,
            bootstrap_servers=self.servers,
            topic=self.topic,
            position=Location.of(str(self.position)),
        )

    def load_and_die(self, point: str) -> None:
        """Load in a process of its own, which is killed behind its first page."""
        words = ["--url", self.feed.url, "--topic", self.topic, "--position", str(self.position)]
        died = subprocess.run(
            [sys.executable, "-m", "spark_jobs.ingest", *words],
            env={**environment(point), "SAVEPOINTS_KAFKA__BOOTSTRAP_SERVERS": self.servers},
            capture_output=True,
            check=False,
            timeout=120,
        )
        assert died.returncode == -9, died.stderr

    def expected(self) -> Expected:
        """Return what the model makes of the topic."""
        ends = offsets.ends(live_ranges.ranges([self.topic], self.desk.settings.kafka))
        rows = [
            Row(one.partition(), one.offset(), one.key().decode(), one.value().decode())
            for one in records_before(self.servers, ends)
        ]
        return feed_model.expected(rows)

    def content(self) -> Content:
        """Return what the tables have."""
        events = [
            (row["event_id"], json.loads(row["payload"])["amount"]) for row in self._rows("events")
        ]
        refused = [
            (row["reason"], row["partition"], row["offset"]) for row in self._rows("refused")
        ]
        return sorted(events), sorted(refused)

    def _rows(self, output: str) -> list[dict[str, Any]]:
        return account_tables.read(str(self.desk.directory / output))


def first_of_each(feed: Feed) -> dict[str, set[int]]:
    """Return what was given under each id, whatever became of it."""
    found: dict[str, set[int]] = {}
    for page in feed.pages:
        for one in page:
            if isinstance(one, dict) and isinstance(one.get("event_id"), str):
                found.setdefault(one["event_id"], set()).add(one.get("amount", -2))
    return found


@pytest.mark.parametrize("seed", seeds.seeds("ingest"))
def test_killed_and_rolled_back_each_event_is_there_once_or_refused_with_the_reason(
    seed: int,
    spark: SparkSession,
    world: LocalWorld,
    world_environment: dict[str, str],
    tmp_path: Path,
) -> None:
    chance = random.Random(seed)
    pages = feed_model.drawn(chance, DAYS, 8)
    # Of its own: how often it is asked must not decide what comes next.
    feed = Feed(random.Random(f"feed {seed}"), answered_ms=BEGIN_MS + (DAYS + 10) * DAY_MS)
    desk = Desk.open(world, tmp_path, APP, most=chance.randrange(40, 200))
    with serving(feed):
        ingest = Ingest(desk, feed)
        history = History(desk, chance, POINTS, ingest.content)
        for number in range(ROUNDS):
            size = len(pages) // ROUNDS
            last = number == ROUNDS - 1
            feed.pages += pages[number * size :] if last else pages[number * size :][:size]
            for _ in range(chance.randrange(3)):
                ingest.load_and_die(chance.choice(LOADS))
            ingest.load()
            if chance.random() < 0.4 or (last and not history.deaths):
                history.die()
            events, refused = history.run()
            truth = ingest.expected()
            assert (events, refused) == truth[:2]
        history.back()
        assert history.run() == truth[:2]

    given = first_of_each(feed)
    assert len({name for name, _ in events}) == len(events), "none is doubled"
    assert all(amount in given[name] for name, amount in events), "and none made up"
    told = {
        json.loads(row["value"])["event"]["event_id"]
        for row in account_tables.read(str(tmp_path / "refused"))
        if row["event_id"] is not None
    }
    assert {name for name, _ in events} | told == given.keys(), "none is lost"
    # Each seed draws these; `unreadable` is not drawn by seed 3.
    assert {"expired", "changed", "ahead"} <= {reason for reason, _, _ in refused}


def test_trap_what_somebody_else_writes_into_the_topic_is_refused_and_stops_nothing(
    spark: SparkSession, world: LocalWorld, tmp_path: Path
) -> None:
    """Arrow cannot give Python text that is not UTF-8: the query would end at each start."""
    desk = Desk.open(world, tmp_path, APP)
    feed = Feed(pages=[[{"event_id": "a", "at_ms": BEGIN_MS, "amount": 1}]], answered_ms=BEGIN_MS)
    with serving(feed):
        ingest = Ingest(desk, feed)
        desk.produce("records", [b"\xff\xfe", b"", b"text"])
        producer = Producer({"bootstrap.servers": ingest.servers})
        for key in (b"\xff", b"100", b"xx", None):
            producer.produce(ingest.topic, None, key)
        assert producer.flush(30) == 0
        ingest.load()

        desk.run(until="latest")

    events, refused = ingest.content()
    assert events == [("a", 1)]
    assert [reason for reason, _, _ in refused] == ["unreadable"] * 7
    assert len(set(refused)) == 7
