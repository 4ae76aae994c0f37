"""How far the sources of a query have read one topic: not always equally far.

Spark asks each source by itself how far a topic goes, one after the other, so that two sources of
one topic read a batch up to different offsets where records arrive in between. A replay gives both
the same events: those up to the lower offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from savepoints.checkpoint.cut import CutFiles
from savepoints.checkpoint.logs.kafka_position import sources_apart
from savepoints.errors import IncompatibleError
from savepoints.store.batch_log import Batch

_WATERMARK_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


@dataclass(frozen=True)
class Uneven:
    """A batch that two sources read a partition up to different offsets in."""

    batch_id: int
    topic: str
    partition: int
    low: int
    high: int


def uneven(batches: Iterable[tuple[Batch, int | None]]) -> Iterator[Uneven]:
    """Find the batches in which it matters by which source an event was read first.

    What lies between two ends was read in this batch by one source and in the next by the other:
    nothing else follows from that if both batches have the same watermarks.

    Args:
        batches: Each with the watermark by which it dropped late rows, None if it is unknown.
    """
    for one, late_ms in batches:
        found = sources_apart(one.offsets)
        if found is not None and one.watermark_ms != late_ms:
            topic, partition, *ends = found
            yield Uneven(one.batch_id, topic, partition, min(ends), max(ends))


def require_even(query: str, batches: Iterable[tuple[Batch, int]]) -> None:
    """Refuse to replay batches one by one if two inputs did not read the same events in one.

    Args:
        batches: As for `uneven`.
    """
    for one in uneven(batches):
        raise IncompatibleError(
            f"{query} cannot be replayed batch by batch: in batch {one.batch_id} two of its inputs "
            f"read {one.topic} partition {one.partition} to different offsets, {one.low} and "
            f"{one.high}, and the next batch had another watermark. Nothing was changed",
            hint="if the query was running, stop it, run it to the end of its topics (savepoints "
            f"run {query} --until latest), then merge; otherwise accept a weaker guarantee: "
            "--policy replay-all replays all events in order of event time",
            query=query,
            batches=[one.batch_id],
        )


def require_one_position(query: str, cut: CutFiles) -> None:
    """Refuse a query whose inputs can be at different places, or ahead of each other."""
    if (found := sources_apart(cut.cut.offsets)) is not None:
        topic, partition, one, other = found
        raise IncompatibleError(
            f"two sources of {query} read topic {topic} but are at different offsets of partition "
            f"{partition}: {one} and {other}",
            hint="stop the query if it is running, and run it to the end of the topic first: "
            f"savepoints run {query} --until latest",
            query=query,
        )
    if len(cut.cut.offsets) > 1 and cut.conf.get(_WATERMARK_POLICY, "min") != "min":
        raise IncompatibleError(
            f"the watermark of {query} follows its most advanced input ({_WATERMARK_POLICY} is "
            "not min), so late events of other inputs could be dropped",
            hint=f"start the query with a new checkpoint and {_WATERMARK_POLICY}=min",
            query=query,
        )
