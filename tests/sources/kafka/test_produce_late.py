"""Late events at the end of a topic: what a process produced that was killed is not sent again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import Row

from savepoints.errors import LateBatchError
from savepoints.local import LocalWorld
from savepoints.sources.kafka import produce_late
from tests.e2e.desk import records_before
from tests.sources.broker import HOUR, Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def rows(names: Sequence[str]) -> list[Row]:
    headers = [
        Row(key="h", value=bytearray(b"1")),
        Row(key=produce_late.MERGE, value=bytearray(b"x")),
    ]
    return [
        Row(
            key=bytearray(name[:1].encode()),
            value=bytearray(f"value of {name}".encode()),
            headers=headers,
            timestamp_ms=1_000 + number,
            event_id=name,
        )
        for number, name in enumerate(names)
    ]


def test_only_what_is_missing_under_a_merge_is_produced(
    spark: SparkSession, world: LocalWorld
) -> None:
    broker = Broker.of(world)
    topic = broker.make(partitions=3)
    settings, names = broker.settings, ["a1", "a2", "b1", "b2", "c1"]
    produce_late.produce(settings, topic, iter(rows(["b2"])), "op-1")  # Before it was begun.
    since = produce_late.ends(settings, topic)
    broker.put(topic, 0, HOUR)  # Somebody else's.
    produce_late.produce(settings, topic, iter(rows(["c1"])), "op-0")  # Of another merge.
    assert produce_late.produce(settings, topic, iter(rows(["a1", "b1"])), "op-1") == 2
    events = spark.createDataFrame([(one,) for one in names], "event_id string")

    left = produce_late.missing(spark, settings, events, topic=topic, since=since, merge_id="op-1")

    assert sorted(row["event_id"] for row in left.collect()) == ["a2", "b2", "c1"]


def test_trap_a_record_of_1970_is_not_given_the_present_time(spark: SparkSession) -> None:
    schema = "event_id string, timestamp timestamp"
    for millis in (0, -1):
        moment = datetime.fromtimestamp(millis / 1000, UTC)
        late = spark.createDataFrame([("a1", moment)], schema)
        with pytest.raises(LateBatchError, match="record of event a1 cannot be produced"):
            produce_late.require_timestamps(late)

    first = datetime.fromtimestamp(0.001, UTC)
    produce_late.require_timestamps(spark.createDataFrame([("a1", first)], schema))


def test_records_are_as_they_were_and_say_whose_they_are(world: LocalWorld) -> None:
    """Of one key they are in one partition, in the order in which they were given."""
    broker = Broker.of(world)
    topic = broker.make(partitions=3)

    produce_late.produce(broker.settings, topic, iter(rows(["a1", "b1", "a2"])), "op-1")

    found = records_before(
        broker.settings.bootstrap_servers, produce_late.ends(broker.settings, topic)
    )
    assert {(one.key(), one.value(), one.timestamp()[1]) for one in found} == {
        (b"a", b"value of a1", 1_000),
        (b"b", b"value of b1", 1_001),
        (b"a", b"value of a2", 1_002),
    }
    of_a = [one for one in found if one.key() == b"a"]
    assert [one.value() for one in of_a] == [b"value of a1", b"value of a2"]
    assert len({one.partition() for one in of_a}) == 1
    assert of_a[0].headers() == [
        ("h", b"1"),
        (produce_late.MERGE, b"op-1"),
        (produce_late.EVENT, b"a1"),
    ]
