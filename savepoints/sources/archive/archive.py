"""The archive of an input: a Delta table of all its events in order of arrival.

Columns `EVENT_SCHEMA` (the record, its entity and its event time) and

- `merge_id string`: null for what arrived in Kafka; late events have the merge that brought them;
- `op string`: `remove` takes away the events of the same `event_id`; null is `insert`.

Position (`topic, partition, offset`) is the order of arrival. Each file is sorted by entity and has
small Parquet row groups, so that Spark reads only those that may have one of the entities wanted.
A table of its own records how far the archive goes, see `progress`.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from savepoints import faults
from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, by_partition, kafka_position
from savepoints.errors import (
    IncompatibleError,
    NotAlignedError,
    QueryRunningError,
    VerificationError,
)
from savepoints.io import Location
from savepoints.sources.archive import files as archive_files
from savepoints.sources.archive import progress
from savepoints.sources.archive import table as archive_table
from savepoints.sources.archive.files import SCHEMA, WrittenFiles
from savepoints.sources.archive.table import File
from savepoints.sources.events import entity_filter as entity
from savepoints.sources.events import offset_ranges
from savepoints.sources.events.events import EVENT
from savepoints.texts import count_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = (*EVENT, "merge_id", "op")
# Below the table: one directory a batch, a late batch, or a compaction.
_BATCHES, _LATE = "batches", "late"
# Of the query that archives; hidden from VACUUM by its first character.
CHECKPOINT = "_checkpoint"
# Transaction id of batches; the version counts them.
_ARRIVED = "savepoints-archive"


def make(spark: SparkSession, uri: str) -> None:
    """Create an empty archive if there is none at a URI."""
    from deltalake import Schema

    columns = spark.createDataFrame([], SCHEMA).schema
    archive_table.make(Location.of(uri), Schema.from_json(columns.json()))


def exists(uri: str) -> bool:
    """Return whether there is an archive at a URI, which the settings may name before."""
    return archive_table.open_if_exists(Location.of(uri)) is not None


def append(
    uri: str,
    events: DataFrame,
    *,
    begin: KafkaOffsets,
    end: KafkaOffsets,
    topic_ids: Mapping[str, str] | None = None,
    confirm: Callable[[], None] = lambda: None,
) -> None:
    """Append a batch of Kafka that begins where the archive ends.

    A batch that the archive has is not written again, and a write that would double or skip a
    record is refused. There are two commits: the events with a note of what arrived, then the table
    of arrivals; after a kill between the two, `mend` makes the second from the note.

    Args:
        begin: Where the batch begins; a partition that is not in it begins at 0.
        confirm: Raises if the batch must not be appended; asked when its records have been read.

    Raises:
        NotAlignedError: If the archive ends elsewhere in a partition (one that it does not have yet
            may begin anywhere: Kafka may have removed its first records), or if the batch has
            records from before its beginning or from after its end.
        QueryRunningError: If another process adds a batch at the same time.
    """
    location = Location.of(uri)
    # Before its arrivals are read: whoever adds a batch after this is noticed at the commit.
    before = mend(uri)
    known = progress.load(uri)
    if known.has(end):
        return
    if not known.goes_on(begin, end):
        raise NotAlignedError(
            f"the archive {uri} ends at {kafka_position(known.end)}, but the next batch begins "
            f"at {kafka_position(begin)}: another process has written to it",
            hint=f"stop that process and delete {location / CHECKPOINT}: the next run then "
            "continues where the archive ends",
            uri=str(location),
        )
    offsets = sum(
        stop - begin.get(topic, {}).get(part, 0) for topic, part, stop in by_partition(end)
    )
    directory = f"{_BATCHES}/{uuid.uuid4().hex}"
    parts = archive_files.spread(_with_merge(events, None), offsets)
    written = archive_files.write(parts, location, directory)
    beyond = sum(rows for rows, _ in written.arrived.values()) - offsets
    _refuse_doubles(written.arrived, max(written.doubled, beyond))
    _refuse_outside(uri, written.offsets, begin, end)
    confirm()
    came = progress.of_batch(written.arrived, begin, end, topic_ids or {})
    version = 1 if before is None else before + 1
    note = {"arrivals": progress.to_json(came)}
    added = archive_table.append_files(
        location, written.files, _ARRIVED, version, note, after=before
    )
    if not added:
        _require_same_batch(location, version, note)
    faults.reach("archive.events_committed")
    progress.add(uri, came, app=_ARRIVED, version=version)


def _require_same_batch(location: Location, version: int, note: Mapping[str, Any]) -> None:
    """Check that a batch that is there is this one, added before an answer was lost."""
    said = archive_table.note_of(archive_table.require(location), _ARRIVED, version)
    if said is None or said["arrivals"] != note["arrivals"]:
        raise QueryRunningError(
            f"another process has added a batch to the archive {location} at the same time",
            hint="run only one job per archive; this batch was not added, and the next run "
            "continues where the archive ends",
            uri=str(location),
        )


def mend(uri: str) -> int | None:
    """Add the newest batch to the arrivals, if its writer was killed before doing so.

    Returns:
        That batch's transaction version; None without any.
    """
    location = Location.of(uri)
    table = archive_table.require(location)
    newest = table.transaction_version(_ARRIVED)
    if newest is None or progress.has(uri, _ARRIVED, newest):
        return newest
    said = archive_table.note_of(table, _ARRIVED, newest)
    if said is None:
        raise VerificationError(
            f"the archive {uri} does not record, in its table or its log, when some of its "
            "events arrived",
            hint="archive the topic from Kafka again, at another URI",
            uri=str(location),
        )
    came = progress.from_json(said["arrivals"])
    progress.add(uri, came, app=_ARRIVED, version=newest)
    return newest


def write_late(uri: str, events: DataFrame, merge_id: str) -> WrittenFiles | None:
    """Write the files of a late batch beside an archive, which `append_late` makes part of it.

    Args:
        events: Columns `EVENT_SCHEMA` with `partition` -1 and offsets of their own; maybe `op`,
            which is null, `insert` or `remove`.

    Returns:
        None when the archive has the events of the merge already.
    """
    location = Location.of(uri)
    table = archive_table.open_if_exists(location)
    if table is not None and archive_table.has(table, merge_id, 0):
        return None
    directory = f"{_LATE}/{merge_id}-{uuid.uuid4().hex}"
    written = archive_files.write(_with_merge(events, merge_id).coalesce(1), location, directory)
    _refuse_doubles(written.arrived, written.doubled)
    return written


def append_late(spark: SparkSession, uri: str, written: WrittenFiles, merge_id: str) -> None:
    """Append a late batch's events under the id of their merge; repeating it changes nothing.

    Args:
        written: From `write_late`.
    """
    make(spark, uri)
    note = {"rows": sum(one.rows for one in written.files)}
    archive_table.append_files(Location.of(uri), written.files, merge_id, 0, note)


def read(
    spark: SparkSession,
    uri: str,
    *,
    entities: DataFrame | Sequence[str] | None,
    since: KafkaOffsets | None,
    until: KafkaOffsets,
    merges: Sequence[str],
) -> DataFrame:
    """Read events that arrived between two positions, and those of some merges.

    Args:
        until: Up to these; partitions not in it are left out.

    Returns:
        Columns of `SCHEMA`.
    """
    from pyspark.sql import functions as F

    location = Location.of(uri)
    table = archive_table.require(location)
    progress.load(uri).require(until)
    chosen = None if entities is None else entity.entities_of(spark, entities)
    files = archive_table.files(table)
    few = chosen.few if chosen else None
    rows = archive_files.read(spark, location, choose(files, few, since or {}, until, merges))
    wanted = F.col("merge_id").isNull() & offset_ranges.between(since or {}, until)
    if merges:
        wanted |= F.col("merge_id").isin(list(merges))
    found = rows.where(wanted)
    return (found if chosen is None else entity.among(found, chosen)).select(*_COLUMNS)


def choose(
    files: Sequence[File],
    few: Sequence[str] | None,
    since: KafkaOffsets,
    until: KafkaOffsets,
    merges: Sequence[str],
) -> list[File]:
    """Return the files that may have the rows wanted, by their Delta statistics.

    Args:
        since: From these offsets on; a partition that is not in it is from 0.
    """
    starts = [since.get(topic, {}).get(p, 0) for topic, parts in until.items() for p in parts]
    ends = [offset for parts in until.values() for offset in parts.values()]

    def fits(one: File) -> bool:
        if not {"entity", "offset", "partition"} <= one.lowest.keys():
            return True
        if few is not None:
            at = bisect_left(few, one.lowest["entity"])
            if at == len(few) or few[at] > one.highest["entity"]:
                return False
        if one.lowest["partition"] < 0 and merges:
            return True
        from_any, to_any = min(starts, default=0), max(ends, default=0)
        return bool(one.highest["offset"] >= from_any and one.lowest["offset"] < to_any)

    return [one for one in files if fits(one)]


def corrected(
    rows: DataFrame, merges: Sequence[str], reached: Mapping[str, KafkaOffsets] | None = None
) -> DataFrame:
    """Drop removals, and the events that removals of later merges remove; see `applied`.

    Returns:
        Columns `EVENT_SCHEMA`.
    """
    return applied(rows, merges, reached).select(*EVENT)


def applied(
    rows: DataFrame, merges: Sequence[str], reached: Mapping[str, KafkaOffsets] | None = None
) -> DataFrame:
    """Drop removals, and the events that removals of later merges remove.

    Args:
        rows: Columns of `SCHEMA`; all rows of the entities concerned.
        merges: Ids of the merges in effect, in the order in which they were made. A removal takes
            away what has its `event_id` and `entity` and came with an earlier merge or with none.
        reached: By merge, the offsets up to which records had been read then: what came after them
            is not taken away. All that is there, for a merge that is not named.

    Returns:
        The columns of `rows`.
    """
    from pyspark.sql import functions as F

    if not merges:
        return rows
    ranks = F.create_map(*(F.lit(one) for at, name in enumerate(merges) for one in (name, at + 1)))
    rank = F.coalesce(ranks[F.col("merge_id")], F.lit(0))
    is_removal = F.coalesce(F.col("op") == "remove", F.lit(False))  # noqa: FBT003  (Spark's)
    removed = rows.where(is_removal).select(
        F.col("event_id").alias("removed_id"),
        F.col("entity").alias("removed_entity"),
        rank.alias("removed_by"),
    )
    was_there = F.lit(True)  # noqa: FBT003  (Spark's)
    for at, name in enumerate(merges):
        if reached is not None and name in reached:
            later = (F.col("removed_by") == at + 1) & ~offset_ranges.before(reached[name])
            was_there &= ~later
    gone = (
        (F.col("event_id") == F.col("removed_id"))
        & (F.col("entity") == F.col("removed_entity"))
        & (rank < F.col("removed_by"))
        & ((rank > 0) | was_there)
    )
    return rows.where(~is_removal).join(removed.distinct(), gone, "left_anti")


def end(uri: str) -> KafkaOffsets:
    """Return the next offset of each partition; empty without an archive. No JVM is needed."""
    return progress.load(uri).end


def _with_merge(events: DataFrame, merge_id: str | None) -> DataFrame:
    from pyspark.sql import functions as F

    op = F.col("op") if "op" in events.columns else F.lit(None).cast("string")
    return events.select(*EVENT, F.lit(merge_id).cast("string").alias("merge_id"), op.alias("op"))


def _refuse_outside(
    uri: str,
    offsets: Mapping[tuple[str, int], tuple[int, int]],
    begin: KafkaOffsets,
    end: KafkaOffsets,
) -> None:
    for (topic, part), (first, last) in offsets.items():
        start, stop = begin.get(topic, {}).get(part, 0), end.get(topic, {}).get(part)
        if stop is not None and not start <= first <= last < stop:
            raise NotAlignedError(
                f"the batch for the archive {uri} has offsets {first} to {last} of topic {topic} "
                f"partition {part}, but it is the batch from {start} up to {stop}",
                hint="run only one job per archive, and change decode if it changes Kafka's "
                "offsets; nothing was added",
                uri=uri,
            )


def _refuse_doubles(places: Iterable[tuple[str, int]], doubled: int) -> None:
    if doubled:
        listed = ", ".join(f"{topic} partition {part}" for topic, part in sorted(places))
        raise IncompatibleError(
            "decode returned several events for one record, with the same topic, partition and "
            f"offset: {count_text(doubled, 'event')} too many in {listed}",
            hint="change decode to return at most one event per record; the event may contain an "
            "array, which build can explode",
        )
