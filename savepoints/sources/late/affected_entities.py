"""Find the entities that late events touch, and the savepoint to replay each from.

A savepoint can be an entity's base if none of its late events, nor of its events of a merge that
the savepoint has not seen, is older than the newest event it has seen: then the replay only adds
later events. That event's time, over all entities because the watermark follows it, is the
savepoint's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.moments import EPOCH
from savepoints.sources.events import offset_ranges
from savepoints.sources.events.entity_filter import any_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Each base costs a read of its state; an older one than needed costs a longer replay.
MOST_BASES = 3
_MOST_CANDIDATES = 30


@dataclass(frozen=True)
class BaseState:
    """A state that entities can be replayed from.

    Attributes:
        clock: Time of the newest event in it, or later; None for the empty state.
        has: Ids of the merges in it.
    """

    savepoint_id: str | None = None
    clock: datetime | None = None
    offsets: KafkaOffsets = field(default_factory=dict)
    has: frozenset[str] = frozenset()


NOTHING = BaseState()


def thinned(bases: Sequence[BaseState], nothing: BaseState = NOTHING) -> list[BaseState]:
    """Return few enough candidates to compare, newest first and the empty state last.

    Leaving some out is exact: an older base only means more to replay.

    Args:
        nothing: The empty state, at the offsets where the query began.
    """
    found = sorted(
        (one for one in bases if one.clock is not None),
        key=lambda one: one.clock or EPOCH,
        reverse=True,
    )
    step = -(-len(found) // _MOST_CANDIDATES) or 1
    return [*found[::step], nothing]


def assigned(late: DataFrame, merged: DataFrame | None, bases: Sequence[BaseState]) -> DataFrame:
    """Find the newest possible base of each entity.

    Args:
        late: `entity` and `event_time` of the late events.
        merged: `entity`, `event_time` and `merge_id` of events of earlier merges that are in
            effect; None without any.

    Returns:
        `entity` (string), each once, and `base` (int), an index of `bases`.
    """
    from pyspark.sql import functions as F

    events = late.select("entity", "event_time", F.lit(None).cast("string").alias("merge_id"))
    if merged is not None:
        touched = late.select("entity").distinct()
        events = events.unionByName(
            merged.select("entity", "event_time", "merge_id").join(touched, "entity", "left_semi")
        )
    known = list(dict.fromkeys(one.has for one in bases))
    first = [F.min(F.when(_is_unseen(has), F.col("event_time"))) for has in known]
    firsts = events.groupBy("entity").agg(*(one.alias(f"f{n}") for n, one in enumerate(first)))
    base = F.lit(len(bases) - 1)
    for number in range(len(bases) - 2, -1, -1):
        one = bases[number]
        assert one.clock is not None
        is_before = F.lit(one.clock) < F.col(f"f{known.index(one.has)}")
        base = F.when(is_before, F.lit(number)).otherwise(base)
    return firsts.select("entity", base.alias("base"))


def kept(counts: Mapping[int, int], bases: Sequence[BaseState]) -> list[BaseState]:
    """Return the bases that most entities use, so that few are read, and the empty state.

    Entities of the others must be assigned again: with merges in between, an older base is not
    always possible where a newer one is.
    """
    most = sorted(counts, key=lambda one: -counts[one])[: MOST_BASES - 1]
    return [bases[one] for one in sorted({*most, len(bases) - 1})]


def after(events: DataFrame, entities: DataFrame, bases: Mapping[int, BaseState]) -> DataFrame:
    """Return the events that are not in their entities' bases.

    Args:
        entities: `entity` and `base`.

    Returns:
        The columns of `events`.
    """
    from pyspark.sql import functions as F

    unseen = any_of(
        [(F.col("base") == number) & _comes_after(one) for number, one in bases.items()]
    )
    return events.join(F.broadcast(entities), "entity").where(unseen).drop("base")


def versioned(entities: DataFrame, versions: Mapping[str, int | None]) -> DataFrame:
    """Return entities with a table's version at their base.

    Args:
        entities: `entity` string and `base` int.
        versions: The table's version by base, None for the empty state.

    Returns:
        `entity` string and `version` bigint, null for the empty state.
    """
    cases = "".join(
        f" when base = {base} then {version}"
        for base, version in versions.items()
        if version is not None
    )
    version = f"case{cases} end" if cases else "null"
    return entities.selectExpr("entity", f"cast({version} as bigint) as version")


def _comes_after(base: BaseState) -> Column:
    from pyspark.sql import functions as F

    arrived = ~offset_ranges.before(base.offsets)
    return F.when(F.col("merge_id").isNull(), arrived).otherwise(_is_unseen(base.has))


def _is_unseen(merges: frozenset[str]) -> Column:
    """Return whether an event is late now, or from a merge other than these."""
    from pyspark.sql import functions as F

    if not merges:
        return F.expr("true")
    return F.col("merge_id").isNull() | ~F.col("merge_id").isin(*sorted(merges))
