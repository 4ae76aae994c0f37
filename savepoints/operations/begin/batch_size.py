"""Whether a history can be read in larger batches than a stream had, with the same result.

Where batches end decides which rows are late, and what functions over state get to see at a time.
So a program with such functions keeps its batches. For the others all is the same as long as no row
is late in the smaller batches: then it is not late in larger ones either, and the watermark comes
to the same. That is found out from the events themselves and the program's own plan, before
anything is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING

from savepoints.checkpoint.evolution.program_layout import OperatorShape
from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.errors import IncompatibleError, UsageError
from savepoints.moments import epoch_ms
from savepoints.operations.begin.new_query import NewQuery
from savepoints.plan import Progress
from savepoints.runtime import late_rows
from savepoints.runtime.bounded.bounded_run import KafkaEnd
from savepoints.sources.events import offset_ranges
from savepoints.sources.kafka.offsets import count, step, with_new_partitions
from savepoints.sources.late import dropped_late
from savepoints.sources.late.dropped_late import Read
from savepoints.store import scratch
from savepoints.store.root import Store
from savepoints.texts import count_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What they keep depends on what they are given at a time, or on when they look at the watermark.
_OF_FUNCTIONS = ("applyInPandasWithState", "flatMapGroupsWithState", "transformWithState")
_WITHIN = "dedupeWithinWatermark"
# Slices, each compared with each event; a stream with more batches is judged by such slices.
_MOST_SLICES = 1000
_SAMPLES = 5


def require_free(query: str, operators: Sequence[OperatorShape]) -> None:
    """Refuse to change the batches of a program whose functions would notice."""
    for one in operators:
        if one.name.startswith(_OF_FUNCTIONS) or one.name == _WITHIN:
            raise IncompatibleError(
                f"the results of {one} in {query} depend on where batches end, so a different "
                "batch size would give different results from the streaming query",
                hint="omit --batch-records, so that max_offsets_per_trigger sets the batch size",
                query=query,
                operator_id=one.operator_id,
            )


def require_nothing_late(
    spark: SparkSession,
    store: Store,
    new: NewQuery,
    end: KafkaEnd,
    delays: Sequence[timedelta],
    operation_id: str,
    progress: Progress,
) -> None:
    """Refuse larger batches if a stream would have dropped rows as late.

    Args:
        delays: Of the watermarks of the program; without any nothing is late.

    Raises:
        IncompatibleError: If rows would have been dropped; it counts the events and shows some.
    """
    if not delays:
        return
    begin = with_new_partitions({}, end.ranges)
    most = new.bound.max_offsets_per_trigger or 1
    positions = _positions(begin, end.ends, most)
    is_coarse = count(begin, end.ends) > most * _MOST_SLICES
    progress(f"checking {count(begin, end.ends)} records for late events")
    place = scratch.claim(store, operation_id)
    events = {
        name: new.inputs.rows(
            spark, name, since=begin, until=end.ends, entities=None, merges=()
        ).persist()
        for name in new.inputs.app.inputs
    }
    try:
        every = reduce(lambda one, other: one.unionByName(other), events.values())
        # Of all inputs the newest, and the shortest delay: a row that is not late by this is not
        # late by any watermark that a stream could have had.
        clocks = offset_ranges.clocks(every, positions, offset_ranges.NEVER)
        if is_coarse:  # Within a slice the watermark of the stream rose up to that of its end.
            clocks = clocks[1:]
        marks = [_watermark_ms(one, min(delays)) for one in clocks]
        reads = [
            Read(first, last, mark)
            for first, last, mark in zip(positions, positions[1:], marks, strict=False)
        ]
        behind = {name: dropped_late.behind(one, reads) for name, one in events.items()}
        found = late_rows.dropped(spark, new.inputs.app, behind, place)
        late = found.select("topic", "partition", "offset").distinct().persist()
        lost, samples = late.count(), late.limit(_SAMPLES).collect()
        late.unpersist()
    finally:
        for one in events.values():
            one.unpersist()
        scratch.discard(store, operation_id)
    if lost:
        where = ", ".join(f"{one.topic} {one.partition}/{one.offset}" for one in samples)
        # Of coarse slices it is not known in which batch an event came.
        would = "may" if is_coarse else "would"
        raise IncompatibleError(
            f"larger batches {would} change the result: they would count "
            f"{count_text(lost, 'late event')} that streaming, in batches of "
            f"{count_text(most, 'record')}, {would} have dropped, for example {where}",
            hint="omit --batch-records, so that these events are dropped as in streaming, then "
            "merge them: savepoints merge QUERY --dropped",
            query=new.inputs.app.name,
            events=lost,
        )


def _watermark_ms(clock: datetime, delay: timedelta) -> int:
    """Return the watermark after the event of a time; 0 before the first one."""
    return 0 if clock == offset_ranges.NEVER else epoch_ms(clock - delay)


def _positions(begin: KafkaOffsets, ends: KafkaOffsets, most: int) -> list[KafkaOffsets]:
    """Return where the batches of a stream would have ended, or fewer, from its beginning on."""
    total = count(begin, ends)
    size = max(most, -(-total // _MOST_SLICES))
    found = [begin]
    while count(found[-1], ends):
        found.append(step(found[-1], ends, size))
    return found


def require_size(batch_records: int | None) -> None:
    """Refuse a size that is none."""
    if batch_records is not None and batch_records < 1:
        raise UsageError(
            f"--batch-records is {batch_records}, but a batch needs at least one record",
            hint="pass 1 or more, or omit the option",
        )
