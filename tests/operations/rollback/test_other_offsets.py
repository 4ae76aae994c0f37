"""A rollback whose sources go on elsewhere: what has moved the query is not told by events."""

from __future__ import annotations

import shlex
from datetime import datetime, timedelta

import pytest

from savepoints.checkpoint import position
from savepoints.checkpoint.logs.kafka_position import kafka_position
from savepoints.errors import NotAlignedError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.moments import utc_now
from savepoints.operations.rollback import reset, rollback, skipped_records, target
from savepoints.operations.rollback.query_context import QueryContext
from savepoints.operations.rollback.target import AtTime, ResolvedTarget
from savepoints.operations.run import recover
from savepoints.sources.kafka.reset_targets import Target
from savepoints.store import lineage
from savepoints.store.lineage import GenerationHistory
from tests.kafka_query import QUERY, Query, make
from tests.samples import take
from tests.sources.broker import Broker

pytestmark = [pytest.mark.kafka]


@pytest.fixture
def query(world: LocalWorld, on_local: Location, local_store: Store) -> Query:
    """Give a query with a savepoint of batch 2, which had read 4 of 10 and 2 of 4 records."""
    made = make(Broker.of(world), on_local, local_store)
    take(made.store, made.checkpoint, batch_id=2)
    return made


def go_back(query: Query, *offsets: int) -> Location:
    """Go back to batch 2, with other offsets where some are given; return the new checkpoint."""
    sources = (query.read(*offsets),) if offsets else None
    plan = rollback.plan(query.store, "latest", query=QUERY, sources=sources)
    return Location.of(rollback.execute(plan, query.store).checkpoint)


@pytest.mark.parametrize(
    ("offsets", "passed_over", "begun_by"),
    [
        pytest.param((8, 2), {0: ((4, 8),)}, "2 was begun by rollback", id="some are skipped"),
        pytest.param((0, 0), {}, "2 was begun by rollback", id="some are read again"),
        pytest.param((), {}, "1 was begun by create", id="as it was"),
    ],
)
def test_trap_a_replay_would_take_what_was_passed_over_for_read(
    query: Query, offsets: tuple[int, ...], passed_over: dict[int, object], begun_by: str
) -> None:
    go_back(query, *offsets)
    history = GenerationHistory.of(query.store)

    skips = skipped_records.find(query.store, history, history.ancestry(QUERY, 2))

    assert skips == {(query.topic, part): ranges for part, ranges in passed_over.items()}
    assert lineage.reach(query.store, QUERY).ends_with == f"generation {begun_by}"


def without_first(query: Query) -> None:
    """Take away the savepoint of where the query was moved to."""
    first = query.store.catalog.find("latest", query=QUERY)
    assert (first.generation, first.cut.batch_id) == (2, 2)
    query.store.catalog.remove([first.id])


@pytest.mark.parametrize("verb", ["rollback", "reset"])
def test_trap_a_query_that_was_moved_cannot_be_recovered_before_its_next_savepoint(
    query: Query, verb: str
) -> None:
    """The way out repeated the reset, which by then went elsewhere: to a later end of the topic."""
    if verb == "rollback":
        moved, there = go_back(query, 8, 2), {0: 8, 1: 2}
    else:
        plan = query.plan(Target("latest"), state="keep")
        moved, there = Location.of(reset.execute(plan, query.store).checkpoint), {0: 10, 1: 4}
    moved.delete(["metadata"])

    recovered = recover.if_damaged(query.store, QUERY, query.settings.queries[QUERY])

    assert recovered is not None
    assert query.store.catalog.find(recovered).generation == 2
    now = query.store.generations.current(QUERY)
    assert now.generation == 3
    assert position.read(Location.of(now.checkpoint)).offsets == {query.topic: there}


def test_trap_a_recovery_does_not_go_to_where_the_query_was_before(query: Query) -> None:
    """It read again what somebody had passed over, and nobody was told."""
    moved = go_back(query, 8, 2)
    without_first(query)
    moved.delete(["metadata"])
    bound = query.settings.queries[QUERY]

    with pytest.raises(NotAlignedError, match="before the rollback that began generation 2") as how:
        recover.if_damaged(query.store, QUERY, bound)

    words = shlex.split(how.value.hint.partition(": ")[2])
    name = words.pop(2)
    assert words == [
        "savepoints",
        "rollback",
        "--no-safety-savepoint",
        "--source",
        query.read(8, 2),
    ]
    plan = rollback.plan(
        query.store, name, query=QUERY, sources=(query.read(8, 2),), save_present=False
    )
    again = rollback.execute(plan, query.store)
    now = position.read(Location.of(again.checkpoint))
    assert now.offsets == {query.topic: {0: 8, 1: 2}}


@pytest.mark.parametrize("verb", ["rollback", "reset"])
def test_trap_a_time_after_a_move_is_not_reached_from_before_it(query: Query, verb: str) -> None:
    """What somebody had passed over was read on the way there."""
    if verb == "rollback":
        go_back(query, 8, 2)
    else:
        reset.execute(query.plan(Target("latest"), state="keep"), query.store)
    first = query.store.catalog.find("latest", query=QUERY)
    query.store.catalog.remove([first.id])

    def of(moment: datetime) -> ResolvedTarget:
        return target.resolve(QueryContext.open(query.store, QUERY), AtTime(moment))

    with pytest.raises(NotAlignedError, match=f"the {verb} that began generation 2"):
        of(utc_now())
    before = of(utc_now() - timedelta(hours=5.5))
    assert (before.generation, before.batch_id) == (1, 2)
    assert before.ends == query.read(5, 4)
    query.store.catalog.add(first)
    assert of(utc_now()).savepoint_id == first.id


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
def test_trap_a_compacted_topic_may_not_give_all_of_it_again(
    query: Query, world: LocalWorld, policy: str
) -> None:
    broker = Broker.of(world)
    topic = broker.make(partitions=1, config={"cleanup.policy": policy})
    broker.put(topic, 0, timedelta(hours=1))

    def told(offset: int) -> bool:
        sources = (kafka_position({topic: {0: offset}}),)
        plan = rollback.plan(query.store, "latest", query=QUERY, sources=sources)
        return any(f"topic {topic} is compacted" in one for one in plan.warnings)

    assert told(0) == ("compact" in policy)
    assert not told(1), "nothing is read again"
