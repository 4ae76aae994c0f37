"""`show`, `list --check-sources` and `estimate`: what they say of Kafka, as text and as JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from savepoints.checkpoint.logs.kafka_position import kafka_position
from savepoints.handle import Store
from savepoints.local import LocalWorld
from savepoints.moments import rfc3339
from savepoints.sources.kafka import topics
from savepoints.store.tables.events import Event
from tests.samples import savepoint
from tests.sources.broker import HOUR, WEEK, WEEK_MS, Broker
from tests.sources.reading import checkpoint_at

# From conftest.py: the function that calls the command line.
Call = Any

SERVERS = "SAVEPOINTS_KAFKA__BOOTSTRAP_SERVERS"


@pytest.mark.kafka
def test_what_kafka_has_is_shown_listed_and_estimated(
    call: Call, local_store: Store, world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SERVERS, world.bootstrap_servers)
    broker = Broker.of(world)
    topic = broker.make(partitions=1, config=WEEK_MS)
    broker.put(topic, 0, *[2 * HOUR] * 9)
    broker.forget(topic, 0, 4)
    ids = topics.ids([topic], broker.settings)
    gone, there = (
        dataclasses.replace(
            savepoint(number, query="q", offsets=(kafka_position({topic: {0: offset}}),)),
            topics=ids,
        )
        for number, offset in ((1, 3), (2, 5))
    )
    local_store.catalog.put([gone, there])
    local_store.generations.begin(
        "q", 1, checkpoint_at({topic: {0: 5}}, local_store.root / "checkpoint"), by="run"
    )
    local_store.events.append(
        Event(
            "op-1", broker.now, "run", "me", "done", "q", message="caught_up", rows=50, seconds=10.0
        )
    )
    at = ("--store", str(local_store.root))

    shown = call("show", there.id, *at)
    document = call("show", there.id, *at, "-o", "json").document["availability"]
    assert (document["restorable"], document["savepoint_id"]) == ("yes", there.id)
    assert document["until"] == rfc3339(broker.now - 2 * HOUR + WEEK)
    assert document["partitions"][0]["wanted"] == 5
    for said in ("Restorable", "yes: Kafka has every record", ids[topic], "retention.ms 604800000"):
        assert said in shown.out
    skipped = call("show", there.id, *at, "--no-source-check", "-o", "json").document
    assert skipped["availability"] is None
    assert skipped["savepoint"]["topics"] == ids

    listed = call("list", *at, "--check-sources")
    found = call("list", *at, "--check-sources", "-o", "json").document
    assert [one["restorable"] for one in found["availability"]] == ["yes", "no"]
    assert [one["savepoint_id"] for one in found["availability"]] == [there.id, gone.id]
    assert "restorable" in listed.out
    assert f"{gone.id}: no: {topic} partition 0: wanted offset 3, available 4 to 9" in listed.out
    assert "restorable" not in call("list", *at).out

    text = call("estimate", "q", *at)
    estimated = call("estimate", "q", *at, "-o", "json").document["estimate"]
    assert (text.code, estimated["backlog_records"], estimated["catches_up"]) == (0, 4, "yes")
    assert estimated["throughput"]["lowest_records_per_second"] == 5
    for said in (
        "4 records, about",
        "5.0 records per second",
        "that read to the end: 1",
        "yes, in less than a second: ",
    ):
        assert said in text.out
    lost = call("estimate", "q", "--from", gone.id, *at, "-o", "json")
    assert (lost.code, lost.error["name"]) == (14, "SourceDataGoneError")


def test_kafka_that_does_not_answer_is_no_error_of_show_or_list(
    call: Call, local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "LOOK_SECONDS", 0.5)
    monkeypatch.setenv(SERVERS, "localhost:1")
    one = savepoint(1)
    local_store.catalog.add(one)
    at = ("--store", str(local_store.root))

    shown, listed = call("show", one.id, *at), call("list", "--check-sources", *at)

    assert (shown.code, listed.code) == (0, 0)
    for called in (shown, listed):
        assert "unknown: a request to Kafka at localhost:1 failed" in " ".join(called.out.split())
    assert "Restorable" not in call("show", one.id, "--no-source-check", *at).out


def test_without_a_broker_show_says_nothing_and_list_says_why(
    call: Call, local_store: Store
) -> None:
    one = savepoint(1)
    local_store.catalog.add(one)
    at = ("--store", str(local_store.root), "-o", "json")

    assert call("show", one.id, *at).document["availability"] is None
    (found,) = call("list", "--check-sources", *at).document["availability"]
    assert found["restorable"] == "unknown"
    assert "no broker is configured" in found["reason"]
    assert call("estimate", "nobody", *at).error["name"] == "QueryNotFoundError"
