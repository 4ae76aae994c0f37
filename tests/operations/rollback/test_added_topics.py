"""Topics that a query has come to read since a savepoint: after a rollback, they are read whole."""

from __future__ import annotations

import shlex
from datetime import timedelta

import pytest

from savepoints.checkpoint import position
from savepoints.checkpoint.logs import offset_log
from savepoints.checkpoint.logs.kafka_position import kafka_position
from savepoints.errors import SourceDataGoneError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.rollback import rollback
from tests.kafka_query import QUERY, Query, make
from tests.samples import take
from tests.sources.broker import Broker

pytestmark = [pytest.mark.kafka]


@pytest.fixture
def query(broker: Broker, on_local: Location, local_store: Store) -> Query:
    """Give a query with a savepoint of batch 1, which had read 2 and 1 records of its topic."""
    return make(broker, on_local, local_store)


@pytest.fixture
def other(broker: Broker, query: Query) -> str:
    """Give another topic, of which the query has read 2 of 4 records in its newest batch."""
    topic = broker.make(partitions=1)
    broker.put(topic, 0, *(timedelta(minutes=one) for one in range(4)))
    read_on(query, {query.topic: {0: 6, 1: 3}, topic: {0: 2}})
    return topic


def read_on(query: Query, offsets: dict[str, dict[int, int]]) -> None:
    """Let the newest batch of the query end there."""
    path = "offsets/3"
    data = query.checkpoint.get(path)
    ends = [kafka_position(offsets)]
    query.checkpoint.put(path, offset_log.with_batch(data, path, positions=ends))


def back(query: Query, **options: object) -> rollback.RollbackPlan:
    return rollback.plan(query.store, "latest", query=QUERY, **options)  # type: ignore[arg-type]


def continued(query: Query, hint: str) -> dict[str, dict[int, int]]:
    """Type the last command of a hint; returns where the query continues."""
    words = shlex.split(hint.rpartition("savepoints rollback ")[2])
    sources = tuple(words[at + 1] for at, word in enumerate(words) if word == "--source")
    plan = rollback.plan(query.store, words[0], sources=sources)
    done = rollback.execute(plan, query.store)
    return position.read(Location.of(done.checkpoint)).offsets


def test_trap_first_records_that_are_gone_would_be_lost(
    query: Query, broker: Broker, other: str
) -> None:
    """They have been rolled back, and Spark begins a topic that is new to it with what there is."""
    assert back(query)
    broker.forget(other, 0, 1)

    with pytest.raises(SourceDataGoneError, match=f"{other} partition 0: wanted offset 0") as gone:
        back(query)

    assert query.rows == [0, 1, 2, 3]
    assert back(query, check_source=False)
    assert continued(query, gone.value.hint) == {query.topic: {0: 2, 1: 1}, other: {0: 1}}


@pytest.mark.parametrize("is_recorded", [True, False])
def test_trap_of_a_topic_that_was_deleted_nothing_would_be_read_again(
    query: Query, broker: Broker, other: str, is_recorded: bool
) -> None:
    """Also when the query has left the topic behind since, and a savepoint alone tells of it."""
    if is_recorded:
        take(query.store, query.checkpoint)
        read_on(query, {query.topic: {0: 6, 1: 3}})
    broker.remove(other)
    (target,) = (one.id for one in query.store.catalog.all() if one.cut.batch_id == 1)

    with pytest.raises(SourceDataGoneError, match="available nothing") as gone:
        rollback.plan(query.store, target)

    assert continued(query, gone.value.hint) == {query.topic: {0: 2, 1: 1}}


def test_trap_one_that_was_recreated_has_other_records(
    query: Query, broker: Broker, other: str
) -> None:
    take(query.store, query.checkpoint)
    broker.remove(other)
    broker.make(partitions=1, name=other)

    with pytest.raises(SourceDataGoneError, match="deleted and recreated"):
        rollback.plan(query.store, "latest~1", query=QUERY)


def test_a_topic_that_took_the_place_of_another_is_not_read_again(
    query: Query, broker: Broker, other: str
) -> None:
    """The target goes on in the topic that it knows; nobody has asked for the other one."""
    read_on(query, {other: {0: 2}})
    broker.forget(other, 0, 1)

    assert back(query)
