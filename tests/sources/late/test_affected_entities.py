"""From which savepoint an entity is replayed, and which of its events: against plain Python."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import pytest

from savepoints.sources.late import affected_entities
from savepoints.sources.late.affected_entities import NOTHING, BaseState
from tests import draw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = (
    "entity string, event_time timestamp, topic string, partition int, offset long, merge_id string"
)


class Event(NamedTuple):
    entity: str
    event_time: datetime
    topic: str
    partition: int
    offset: int
    merge_id: str | None


def at(hour: int) -> datetime:
    return BEGINNING + timedelta(hours=hour)


def base(name: str, hour: int, offset: int, *has: str) -> BaseState:
    return BaseState(name, at(hour), {"orders": {0: offset, 1: offset}}, frozenset(has))


def test_few_candidates_are_left_and_the_empty_state_is_the_last() -> None:
    bases = affected_entities.thinned([base(f"sp-{n}", n, n) for n in range(200)])

    assert bases[0].savepoint_id == "sp-199"
    assert bases[-1] == NOTHING
    assert len(bases) <= 31
    assert affected_entities.thinned([]) == [NOTHING]


def test_few_bases_are_kept_and_always_the_empty_state() -> None:
    bases = affected_entities.thinned([base(f"sp-{n}", n, n) for n in range(10)])

    kept = affected_entities.kept({0: 50, 2: 1, 5: 40, 7: 2, 9: 1}, bases)

    assert kept == [bases[0], bases[5], NOTHING]


@pytest.mark.spark
@pytest.mark.parametrize("seed", draw.some(1, range(3), "affected entities"))
def test_bases_and_events_are_those_of_the_definition(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)
    bases = affected_entities.thinned(
        [base("sp-1", 10, 10), base("sp-2", 20, 20, "m1"), base("sp-3", 30, 30, "m1", "m2")]
    )

    def event(partition: int, offset: int, merge_id: str | None) -> Event:
        entity = f"e{chance.randrange(12)}"
        return Event(entity, at(chance.randrange(40)), "orders", partition, offset, merge_id)

    arrived = [event(part, offset, None) for part in range(2) for offset in range(40)]
    merged = [event(-1, n, chance.choice(["m1", "m2"])) for n in range(12)]
    late = [event(-1, n, None) for n in range(8)]

    frame = spark.createDataFrame(late, COLUMNS)
    found = affected_entities.assigned(frame, spark.createDataFrame(merged, COLUMNS), bases)
    chosen = {row["entity"]: row["base"] for row in found.collect()}
    replayed = affected_entities.after(
        spark.createDataFrame([*arrived, *merged], COLUMNS), found, dict(enumerate(bases))
    )

    def is_possible(one: BaseState, entity: str) -> bool:
        missing = [e for e in (*late, *merged) if e.entity == entity and e.merge_id not in one.has]
        return one.clock is None or all(one.clock < e.event_time for e in missing)

    assert chosen == {
        e.entity: next(n for n, one in enumerate(bases) if is_possible(one, e.entity)) for e in late
    }
    unseen = [
        e
        for e in (*arrived, *merged)
        if e.entity in chosen
        and (
            e.offset >= bases[chosen[e.entity]].offsets.get("orders", {}).get(e.partition, 0)
            if e.merge_id is None
            else e.merge_id not in bases[chosen[e.entity]].has
        )
    ]
    assert sorted(
        (
            (row["entity"], row["partition"], row["offset"], row["merge_id"])
            for row in replayed.collect()
        ),
        key=str,
    ) == sorted(((e.entity, e.partition, e.offset, e.merge_id) for e in unseen), key=str)
