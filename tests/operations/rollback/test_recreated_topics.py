"""A topic that was deleted and created again: what a savepoint's offsets mean, and the ways on."""

from __future__ import annotations

import re
from contextlib import nullcontext
from datetime import timedelta

import pytest

from savepoints.checkpoint import position
from savepoints.checkpoint.logs import offset_log
from savepoints.config.settings import KafkaSettings
from savepoints.errors import SourceDataGoneError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.rollback import reset, rollback
from savepoints.operations.rollback.target import AtBatch, BeforeLast
from savepoints.runtime import compatibility
from savepoints.sources.kafka import topics
from savepoints.sources.kafka.reset_targets import Target
from tests.kafka_query import QUERY, Query, make
from tests.processes import killed_at
from tests.samples import take
from tests.sources.broker import Broker

pytestmark = [pytest.mark.kafka]


@pytest.fixture
def query(broker: Broker, on_local: Location, local_store: Store) -> Query:
    """Give a query that has read 6 of 10 and 3 of 4 records, with a savepoint that knows of what.

    It is of batch 2, which had read 4 and 2.
    """
    made = make(broker, on_local, local_store)
    assert take(made.store, made.checkpoint, batch_id=2).topics
    return made


def recreate(query: Query, broker: Broker, records: int = 20) -> None:
    """Make the topic anew, with records at all the offsets that the old one had."""
    broker.remove(query.topic)
    broker.make(partitions=2, name=query.topic)
    for partition in range(2):
        broker.put(query.topic, partition, *(timedelta(minutes=one) for one in range(records)))


def test_trap_the_state_goes_on_at_chosen_offsets_of_the_topic_of_today(
    query: Query, broker: Broker
) -> None:
    """The offsets that are given are those of the new topic: what the old one was is no matter."""
    take(query.store, query.checkpoint)
    recreate(query, broker)
    with pytest.raises(SourceDataGoneError, match="deleted and recreated") as refused:
        rollback.plan(query.store, "latest", query=QUERY)
    assert refused.value.hint.endswith("reset QUERY --to-earliest --allow-data-loss")
    assert query.plan(Target("earliest"), allow_data_loss=True).moves

    plan = rollback.plan(query.store, "latest", query=QUERY, sources=(query.read(0, 0),))
    done = rollback.execute(plan, query.store)

    now = position.read(Location.of(done.checkpoint))
    assert now.offsets == {query.topic: {0: 0, 1: 0}}
    begun = query.store.generations.current(QUERY)
    compatibility.require_same_topics(query.store, begun, query.settings.kafka, pytest.fail)
    with pytest.raises(SourceDataGoneError, match="deleted and recreated"):
        rollback.plan(query.store, BeforeLast(), query=QUERY)


def test_trap_a_kept_source_still_means_the_topic_of_then(query: Query, broker: Broker) -> None:
    recreate(query, broker)

    with pytest.raises(SourceDataGoneError, match="deleted and recreated"):
        rollback.plan(query.store, "latest", query=QUERY, sources=("keep:0",))


def test_trap_a_savepoint_of_a_batch_from_before_does_not_belong_to_the_new_topic(
    query: Query, broker: Broker
) -> None:
    """It was asked for its id when the savepoint was taken, which is after the batch."""
    before = take(query.store, query.checkpoint)
    recreate(query, broker)

    again = [take(query.store, query.checkpoint, batch_id=one) for one in (1, 3)]

    assert before.topics != topics.ids([query.topic], query.settings.kafka)
    for one in again:
        assert one.topics == before.topics
        with pytest.raises(SourceDataGoneError, match="deleted and recreated"):
            rollback.plan(query.store, one.id, query=QUERY)


def read_on(query: Query, *offsets: int) -> None:
    """Let the newest batch of the query end there."""
    path = "offsets/3"
    entry = query.checkpoint.get(path)
    query.checkpoint.put(path, offset_log.with_batch(entry, path, positions=[query.read(*offsets)]))


def test_trap_a_query_that_reads_the_new_topic_already_was_to_read_it_again(
    query: Query, broker: Broker
) -> None:
    """Whether it reads it nobody can say; it was sent to its beginning, and without its state."""
    recreate(query, broker)
    read_on(query, 6, 3)
    live = query.store.generations.current(QUERY)
    with pytest.raises(SourceDataGoneError, match="deleted and recreated") as refused:
        compatibility.require_same_topics(query.store, live, query.settings.kafka, pytest.fail)
    there = query.place / "offsets.csv"
    there.put("", f"{query.topic},0,6\n{query.topic},1,3\n".encode())
    settings = query.place / "savepoints.toml"
    settings.put(
        "",
        f'store = "{query.store.root}"\n[kafka]\n'
        f'bootstrap_servers = "{query.settings.kafka.bootstrap_servers}"\n'
        f'[queries.{QUERY}]\napp = "unused:app"\ncheckpoints = "{query.place}/next"\n'
        f'[queries.{QUERY}.outputs]\ntotals = "{query.table}"\n'.encode(),
    )
    command = re.search(r"savepoints (reset .*?);", refused.value.hint)
    assert command is not None

    words = command[1].replace("--to-earliest", f"--from-file {there}").split()
    assert killed_at("", *words, "--yes", "--stopped", "--config", str(settings)) == 0

    begun = query.store.generations.current(QUERY)
    now = position.read(Location.of(begun.checkpoint))
    assert (now.committed, now.offsets) == (3, {query.topic: {0: 6, 1: 3}})
    compatibility.require_same_topics(query.store, begun, query.settings.kafka, pytest.fail)


@pytest.mark.parametrize(
    ("offsets", "is_of"),
    [
        pytest.param((4, 2), "old", id="nothing was read since"),
        pytest.param((9, 3), "old", id="beyond the end of the new one"),
        pytest.param((5, 1), "new", id="behind where the old one was read to"),
        pytest.param((6, 3), None, id="either"),
    ],
)
def test_trap_a_query_that_went_on_counts_as_of_the_new_topic_only_if_that_is_certain(
    query: Query, broker: Broker, offsets: tuple[int, int], is_of: str | None
) -> None:
    """A savepoint that may be of either had no id, and a rollback to it asked for none."""
    before = query.store.catalog.find("latest", query=QUERY)
    recreate(query, broker, records=8)
    read_on(query, *offsets)
    told: list[str] = []

    again = take(query.store, query.checkpoint, progress=told.append)

    known = {"old": before.topics, "new": topics.ids([query.topic], query.settings.kafka)}
    assert again.topics == known[is_of or "old"]
    assert any("deleted and recreated" in one for one in told) == (is_of is None)
    refused = (
        nullcontext()
        if is_of == "new"
        else pytest.raises(SourceDataGoneError, match="deleted and recreated")
    )
    with refused:
        rollback.plan(query.store, again.id, query=QUERY, stopped=True)


def test_trap_a_savepoint_that_could_not_ask_for_its_topic_went_on_in_another(
    query: Query, broker: Broker
) -> None:
    """What it has read on since the savepoint before, it has read in the same topic."""
    before = query.store.catalog.find("latest", query=QUERY)
    alone = query.store.with_settings(query.settings.model_copy(update={"kafka": KafkaSettings()}))
    again = take(alone, query.checkpoint)
    recreate(query, broker)

    assert again.topics == before.topics
    with pytest.raises(SourceDataGoneError, match="deleted and recreated"):
        rollback.plan(query.store, again.id, query=QUERY, stopped=True)


def test_trap_a_fork_without_a_savepoint_of_its_own_knows_its_topic_by_what_it_began_from(
    query: Query, broker: Broker
) -> None:
    """A reset took the offsets of the old topic for some of the new one."""
    origin = take(query.store, query.checkpoint)
    place = query.place / "trial"
    for one in query.checkpoint.list():
        place.put(one.path, query.checkpoint.get(one.path))
    query.store.generations.begin("trial", 1, place, by="fork", begun_from=origin.id)
    recreate(query, broker)

    with pytest.raises(SourceDataGoneError, match=f"since savepoint {origin.id} was taken"):
        reset.plan(query.store, "trial", Target("earliest"), stopped=True)


def test_trap_an_unsaved_batch_does_not_belong_to_the_new_topic_either(
    query: Query, broker: Broker
) -> None:
    """Its rollback was carried out, outputs and all; then the query could not be run."""
    recreate(query, broker)

    with pytest.raises(SourceDataGoneError, match="deleted and recreated"):
        rollback.plan(query.store, AtBatch(3), query=QUERY, stopped=True)
