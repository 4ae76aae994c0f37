"""The figures of Kafka, against topics whose every record is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from savepoints.checkpoint.logs.kafka_position import kafka_position
from savepoints.config.settings import KafkaSettings, QuerySettings, Settings
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.moments import utc_now
from savepoints.observe import kafka_figures, metrics
from savepoints.observe.kafka_figures import LAG, RESTORABLE_UNTIL
from savepoints.sources.kafka.offsets import Range
from savepoints.sources.kafka.topics import Topic
from tests.samples import savepoint
from tests.sources.broker import HOUR, WEEK, WEEK_MS, Broker
from tests.sources.reading import checkpoint_at

NOWHERE = KafkaSettings(bootstrap_servers="127.0.0.1:1")


def topic(name: str, *ranges: tuple[int, int], topic_id: str | None = "one") -> Topic:
    parts = {nr: Range(name, nr, *span) for nr, span in enumerate(ranges)}
    return Topic(name, topic_id, parts, None, "not asked")


def test_lag_is_counted_by_topic_and_a_new_partition_counts_from_its_beginning() -> None:
    known = {"a": topic("a", (0, 10), (5, 8)), "b": topic("b", (0, 3))}

    assert kafka_figures.lag({"a": {0: 4}, "b": {0: 3}}, known, {}) == {"a": 6 + 3, "b": 0}


@pytest.mark.parametrize(
    ("at", "ids"), [({0: 11}, {}), ({0: 4, 1: 0}, {}), ({0: 4}, {"a": "another", "b": "one"})]
)
def test_trap_a_recreated_topic_has_no_lag_rather_than_a_wrong_one(
    at: dict[int, int], ids: dict[str, str]
) -> None:
    known = {"a": topic("a", (0, 10)), "b": topic("b", (0, 3))}

    assert kafka_figures.lag({"a": at, "b": {0: 1}, "gone": {0: 5}}, known, ids) == {"b": 2}


@pytest.mark.parametrize(
    ("known", "why"),
    [
        ({}, "no topic"),
        ({"a": topic("a", (3, 10))}, "removed by retention"),
        ({"a": topic("a", (0, 1))}, "ends before the position"),
        ({"a": topic("a", (0, 10), topic_id="two")}, "recreated"),
        ({"a": topic("a", (0, 10), (5, 8))}, "removed from a partition that was added since"),
    ],
)
def test_a_savepoint_whose_next_records_are_gone_was_restorable_until_0(
    known: dict[str, Topic], why: str
) -> None:
    one = replace(savepoint(1, offsets=(kafka_position({"a": {0: 2}}),)), topics={"a": "one"})

    assert kafka_figures.restorable_until(one, known, NOWHERE, utc_now()) == 0, why


def test_trap_a_broker_that_does_not_report_ids_has_all_that_it_has() -> None:
    """It took the topic for another one, as `list --check-sources` never did."""
    one = replace(savepoint(1, offsets=(kafka_position({"a": {0: 10}}),)), topics={"a": "one"})
    known = {"a": topic("a", (0, 10), topic_id=None)}

    assert kafka_figures.restorable_until(one, known, NOWHERE, utc_now()) is None


def test_without_kafka_nothing_is_said_of_it(local_store: Store, on_local: Location) -> None:
    checkpoint = checkpoint_at({"a": {0: 1}}, on_local / "checkpoint")
    local_store.generations.begin("q", 1, checkpoint, by="run")

    assert kafka_figures.of_store(local_store) == {}


@pytest.mark.nightly
def test_trap_a_scrape_ends_and_has_the_rest_when_kafka_does_not_answer(
    local_store: Store, on_local: Location
) -> None:
    checkpoint = checkpoint_at({"a": {0: 1}}, on_local / "checkpoint")
    local_store.generations.begin("q", 1, checkpoint, by="run")
    local_store.catalog.add(savepoint(1, query="q"))

    text = metrics.text(local_store.with_settings(Settings(kafka=NOWHERE)))

    assert 'savepoints_catalog_size{query="q",state="complete"} 1.0' in text
    assert f"{LAG}{{" not in text


@pytest.mark.kafka
def test_a_scrape_says_how_far_behind_a_query_is_and_how_long_it_can_be_restored(
    world: LocalWorld, local_store: Store, on_local: Location
) -> None:
    broker = Broker.of(world)
    name, other = broker.make(partitions=2, config=WEEK_MS), broker.make(partitions=1)
    broker.put(name, 0, *[3 * HOUR] * 4, 2 * HOUR, *[HOUR] * 3)
    broker.put(name, 1, HOUR, HOUR)
    broker.put(other, 0, HOUR, HOUR)
    for query, at in {"q": {name: {0: 6, 1: 2}, other: {0: 0}}, "r": {name: {0: 8, 1: 0}}}.items():
        checkpoint = checkpoint_at(at, on_local / query)
        local_store.generations.begin(query, 1, checkpoint, by="run")
    # The newest savepoint is behind the query: at the record of two hours ago.
    for number, offset in ((1, 0), (2, 4)):
        saved = (kafka_position({name: {0: offset, 1: 2}}),)
        local_store.catalog.add(savepoint(number, query="q", offsets=saved))
    archived = QuerySettings(app="a:b", checkpoints="c", archives={"i": "s3://nowhere/archive"})
    local_store.catalog.add(savepoint(3, query="r", offsets=(kafka_position({name: {0: 8}}),)))
    settings = Settings(kafka=broker.settings, queries={"r": archived})

    found = kafka_figures.of_store(local_store.with_settings(settings))

    assert found[LAG] == {("q", name): 2, ("q", other): 2, ("r", name): 2}
    until = (broker.now - 2 * HOUR + WEEK).timestamp()
    assert found[RESTORABLE_UNTIL] == {("q",): pytest.approx(until, abs=0.001)}

    broker.forget(name, 0, 5)
    gone = kafka_figures.of_store(local_store.with_settings(settings))
    assert gone[RESTORABLE_UNTIL] == {("q",): 0}
    assert gone[LAG] == found[LAG]

    newest = replace(savepoint(4, query="q", offsets=saved), topics={other: "of a topic before"})
    local_store.catalog.add(newest)
    told = kafka_figures.of_store(local_store.with_settings(settings))
    assert told[LAG] == {("q", name): 2, ("r", name): 2}
