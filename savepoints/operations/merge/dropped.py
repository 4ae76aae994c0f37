"""What the watermark dropped of a query's events: found in the batch log and the archive.

The batch log has the offsets and the watermark of each batch, so it is known of each event by what
it was judged; `runtime.late_rows` asks the program's own plan. Events that a merge has worked in
since, and second deliveries of events that counted, are not among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING

from savepoints.checkpoint.logs.kafka_position import lowest_offsets
from savepoints.errors import IncompatibleError
from savepoints.io import Location
from savepoints.moments import moment_of, rfc3339
from savepoints.operations.merge import source_ends
from savepoints.operations.merge.live_query import LiveQuery
from savepoints.plan import Progress
from savepoints.runtime import late_rows, program
from savepoints.runtime.archive_of import is_before
from savepoints.sources.archive import archive
from savepoints.sources.archive.files import SCHEMA
from savepoints.sources.events.events import POSITION
from savepoints.sources.late import dropped_late
from savepoints.sources.late.dropped_late import LATE_MS, READ_MS, Read
from savepoints.store import scratch
from savepoints.store.batch_log import Batch
from savepoints.texts import count_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Dropped:
    """The events that the present of a query lacks because they came too late.

    Attributes:
        reads: The batches that were looked at, in order.
        events: By input, each event once: columns of `archive.SCHEMA`, and `late_ms`, `read_ms`.
        rows: What was dropped of them; columns of `late_rows.dropped`.
        again: By input, how many events were dropped that had counted already, by their id: second
            deliveries, which a merge leaves out.
        notes: What may be otherwise, because another program has read some of the batches.
    """

    reads: Sequence[Read]
    events: Mapping[str, DataFrame]
    rows: DataFrame
    again: Mapping[str, int]
    notes: tuple[str, ...] = ()


def find(
    spark: SparkSession,
    live: LiveQuery,
    place: Location,
    *,
    since: datetime | None,
    progress: Progress,
) -> Dropped:
    """Find what was dropped.

    Args:
        place: An empty directory.
        since: Only what batches read that were planned since then; None for all.
    """
    known, reads = _reads(live, since)
    names = list(live.inputs.app.inputs)
    if not any(one.late_watermark_ms > 0 for one in reads):
        none = {name: _nothing(spark) for name in names}
        return Dropped(reads, none, late_rows.nothing(spark), dict.fromkeys(names, 0))
    progress(f"reading the events of {count_text(len(reads), 'batch')} of {live.name}")
    behind = {
        name: scratch.keep(spark, _behind(spark, live, name, reads), place / "behind" / name)
        for name in names
    }
    rows = late_rows.dropped(spark, live.inputs.app, behind, place / "rows")
    rows = scratch.keep(spark, rows, place / "dropped")
    whose = reduce(
        lambda one, more: one.unionByName(more),
        (
            frame.join(rows, list(POSITION), "left_semi").select("entity")
            for frame in behind.values()
        ),
    )
    entities = scratch.keep(spark, whose.distinct(), place / "entities")
    events, again = {}, {}
    for name, frame in behind.items():
        lost = frame.join(rows, list(POSITION), "left_semi")
        counted = _counted(spark, live, name, entities, rows)
        fresh = lost.join(counted, ["entity", "event_id"], "left_anti")
        events[name] = scratch.keep(spark, dropped_late.once(fresh), place / "events" / name)
        again[name] = lost.count() - fresh.count()
    notes = _read_otherwise(spark, live, known, first=max(known) + 1 - len(reads))
    return Dropped(reads, events, rows, again, notes)


def _reads(live: LiveQuery, since: datetime | None) -> tuple[dict[int, Batch], list[Read]]:
    """Return what is known of the batches of a query, and those that made its present since."""
    known = {
        number: one
        for number, one in live.batches().items()
        if is_before(lowest_offsets(one.offsets), live.until)
    }
    newest = max(known, default=-1)
    wanted = [
        one for one in known.values() if since is None or moment_of(one.timestamp_ms) >= since
    ]
    first = min((one.batch_id for one in wanted), default=newest + 1)
    if since is None and not live.reach.ends_with:
        first = min(live.reach.first.values())
    _require_all(live, known, first, newest)
    require_one_end(live.name, known, first)
    begin = live.beginning if first == 0 else lowest_offsets(known[first - 1].offsets)
    found = []
    late_ms = 0 if first == 0 else known[first - 1].watermark_ms
    for number in range(first, newest + 1):
        one = known[number]
        end = lowest_offsets(one.offsets)
        found.append(Read(begin, end, late_ms, one.timestamp_ms))
        begin, late_ms = end, one.watermark_ms
    return known, found


def _read_otherwise(
    spark: SparkSession, live: LiveQuery, known: Mapping[int, Batch], *, first: int
) -> tuple[str, ...]:
    """Say of which batches, from the first that was looked at on, another program dropped rows."""
    other = live.read_otherwise(program.frame(spark, live.inputs), since=None)
    if other is None:
        return ()
    judged = (
        f"{other.text(live.inputs.bound.app)}: what they dropped is told by this one, and may be "
        "more or less"
    )
    if other.batch_id is None:
        return (judged,)
    if other.batch_id < first:
        return ()
    later = known.get(other.batch_id + 1)
    if later is None:
        return (judged,)
    return (f"{judged}; to leave them out: --since {rfc3339(moment_of(later.timestamp_ms))}",)


def _require_all(live: LiveQuery, known: Mapping[int, Batch], first: int, newest: int) -> None:
    # And the one before: by its watermark late rows are dropped.
    lost = [one for one in range(max(first - 1, 0), newest + 1) if one not in known]
    if not lost:
        return
    after = known.get(lost[-1] + 2)
    hint = (
        f"list or merge only later batches: --since {rfc3339(moment_of(after.timestamp_ms))}"
        if after is not None
        else f"wait until the run of {live.name} has recorded more batches, then try again"
    )
    more = f" and {count_text(len(lost) - 1, 'later batch')}" if len(lost) > 1 else ""
    why = f" ({live.reach.ends_with})" if live.reach.ends_with else ""
    raise IncompatibleError(
        f"cannot tell which events {live.name} dropped: the batch log lacks batch "
        f"{lost[0]}{more}{why}",
        hint=hint,
        query=live.name,
        batches=lost[:20],
    )


def require_one_end(query: str, known: Mapping[int, Batch], first: int) -> None:
    """Refuse batches that two inputs read the same topic in up to different offsets.

    Args:
        known: By number, all from the one before the first that is judged.
    """

    def judged_by(number: int) -> int | None:
        if (before := known.get(number - 1)) is not None:
            return before.watermark_ms
        return 0 if number == 0 else None

    judged = ((known[one], judged_by(one)) for one in sorted(known) if one >= first - 1)
    for one in source_ends.uneven(judged):
        later = known.get(one.batch_id + 2)
        raise IncompatibleError(
            f"cannot tell which events {query} dropped: in batch {one.batch_id} two of its inputs "
            f"read {one.topic} partition {one.partition} to different offsets, {one.low} and "
            f"{one.high}, and the next batch had another watermark",
            hint="list or merge only later batches: --since "
            f"{rfc3339(moment_of(later.timestamp_ms))}"
            if later is not None
            else "run the query on, then list or merge only what it drops from then on: "
            f"savepoints run {query} --until latest",
            query=query,
            batches=[one.batch_id],
        )


def _behind(spark: SparkSession, live: LiveQuery, name: str, reads: Sequence[Read]) -> DataFrame:
    """Return the events of an input that may have been dropped, and were not merged since."""
    rows = live.events(
        spark, name, since=reads[0].begin, until=reads[-1].end, merges=live.merge_ids
    )
    kept = archive.applied(rows, live.merge_ids, live.merged_at).where("merge_id is null")
    return dropped_late.behind(kept, reads)


def _counted(
    spark: SparkSession, live: LiveQuery, name: str, entities: DataFrame, rows: DataFrame
) -> DataFrame:
    """Return the ids of events of some entities that have counted: `entity`, `event_id`."""
    seen = live.events(
        spark,
        name,
        since=live.beginning,
        until=live.until,
        entities=entities,
        merges=live.merge_ids,
    )
    seen = archive.applied(seen, live.merge_ids, live.merged_at)
    kept = seen.join(rows.select(*POSITION).distinct(), list(POSITION), "left_anti")
    return kept.select("entity", "event_id").distinct()


def _nothing(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], f"{SCHEMA}, {LATE_MS} bigint, {READ_MS} bigint")
