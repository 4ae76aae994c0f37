"""Equal batches: how a query comes to where another one is in the very batches that that one ran.

Queries that stand at one place and take the same steps run equal batches. One that is behind can
still do what the other did, as long as that one keeps its offset log and both were at one place
before. Only the ends of batches are taken over: the watermark is each program's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from savepoints.checkpoint.logs import offset_log
from savepoints.checkpoint.logs.kafka_position import kafka_offsets
from savepoints.checkpoint.position import CheckpointPosition
from savepoints.io import Location

# Where each source is after a batch, as Spark's JSON.
Positions = tuple[str | None, ...]


@dataclass(frozen=True)
class Approach:
    """How a query goes to where the one that is furthest has been."""

    through: tuple[Positions, ...] = ()
    problem: str | None = None


def approach(
    query: str,
    own: CheckpointPosition,
    leader: str,
    furthest: CheckpointPosition,
    recorded: Callable[[int], Positions | None],
) -> Approach:
    """Decide how a query goes to where another one is.

    Args:
        furthest: Where that one stands; what it has begun lies within the common end.
        recorded: Gives where the sources of that one were after a batch, None when it does not
            keep that any more.
    """
    if own.committed is None or furthest.committed is None:
        same_begun = own.begun == furthest.begun and (
            own.begun is None or _same(own.begun_positions, furthest.begun_positions)
        )
        if own.committed == furthest.committed and same_begun:
            return Approach()
        return Approach(problem=f"{query} and {leader} did not start at the same offsets")
    if _same(own.positions, furthest.positions):
        ahead = _begun(furthest)
    else:
        at_own = recorded(own.committed)
        if at_own is None or not _same(own.positions, at_own):
            return Approach(
                problem=f"{query} is at batch {own.committed}, and {leader} was never at those "
                "offsets in that batch, or no longer retains that batch"
            )
        between = [recorded(n) for n in range(own.committed + 1, furthest.committed + 1)]
        kept = [one for one in between if one is not None]
        if len(kept) < len(between):
            return Approach(
                problem=f"{leader} no longer retains the offsets of all batches since "
                f"{own.committed}; see spark.sql.streaming.minBatchesToRetain"
            )
        ahead = (*kept, *_begun(furthest))
    if own.begun is not None and not (ahead and _same(own.begun_positions, ahead[0])):
        return Approach(
            problem=f"{query} has started batch {own.begun} with different offsets from {leader}"
        )
    return Approach(ahead)


def recorded_in(checkpoint: Location) -> Callable[[int], Positions | None]:
    """Read the offset log of a query, one batch at a time."""

    def find(batch: int) -> Positions | None:
        try:
            return offset_log.read(checkpoint, batch).sources
        except FileNotFoundError:
            return None

    return find


def _begun(position: CheckpointPosition) -> tuple[Positions, ...]:
    return () if position.begun is None else (tuple(position.begun_positions),)


def _same(first: Sequence[str | None], second: Sequence[str | None]) -> bool:
    """Say whether positions are the same, however their JSON is written."""
    return [kafka_offsets(one) or one for one in first] == [
        kafka_offsets(one) or one for one in second
    ]
