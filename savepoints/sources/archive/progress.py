"""An archive's progress in offsets and event time: a small table beside the events.

A row for each batch and partition of Kafka: which offsets the batch read, how many records, and the
newest event time among them. Written and read by deltalake, so that neither question needs a JVM or
the events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, by_partition, kafka_position
from savepoints.errors import NotAlignedError, SourceDataGoneError
from savepoints.io import Location
from savepoints.moments import moment_or_last
from savepoints.sources.archive import table as archive_table

if TYPE_CHECKING:
    import pyarrow as pa

# Hidden from Delta's VACUUM of the events by its first character.
DIRECTORY = "_arrivals"
# Newest batches of a partition with a row each, and older ones that share one.
_FINE, _COARSE = 1_000, 60


@dataclass(frozen=True)
class Arrival:
    """One partition's part of an archived batch.

    Attributes:
        rows: Records; fewer than offsets where Kafka has none, as in compacted topics.
        max_event_us: Newest event time, microseconds since 1970; None without any.
        batches: Number of batches in it; see `coarsened`.
        topic_id: Kafka's own id of the topic, None when unknown; a recreated topic has other
            records at the same offsets.
    """

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    rows: int
    max_event_us: int | None
    batches: int = 1
    topic_id: str | None = None


@dataclass(frozen=True)
class ArchiveProgress:
    """Everything that has arrived in an archive."""

    uri: str
    rows: tuple[Arrival, ...]

    @cached_property
    def begin(self) -> KafkaOffsets:
        """The first offset of each partition that the archive knows."""
        found: KafkaOffsets = {}
        for row in self.rows:
            known = found.setdefault(row.topic, {})
            known[row.partition] = min(row.first_offset, known.get(row.partition, row.first_offset))
        return found

    @cached_property
    def end(self) -> KafkaOffsets:
        """The next offset of each partition: everything before it is archived, nothing after it."""
        found: KafkaOffsets = {}
        for row in self.rows:
            known = found.setdefault(row.topic, {})
            known[row.partition] = max(row.end_offset, known.get(row.partition, 0))
        return found

    def has(self, end: KafkaOffsets) -> bool:
        """Return True if a batch that ends at some offsets is the newest one."""
        return all(
            self.end.get(topic, {}).get(part) == stop for topic, part, stop in by_partition(end)
        )

    def goes_on(self, begin: KafkaOffsets, end: KafkaOffsets) -> bool:
        """Return True if a batch begins where the archive ends, in each partition that it has."""
        return all(
            begin.get(topic, {}).get(part, 0) == stop
            for topic, part, stop in by_partition(self.end)
            if topic in end
        )

    def clock(self, offsets: KafkaOffsets) -> datetime | None:
        """Return an upper bound of the event times before some offsets.

        It is exact to a batch: events of a batch that goes beyond an offset count.

        Returns:
            None when there is nothing before the offsets.
        """
        self.require(offsets)
        newest = [
            row.max_event_us
            for row in self.rows
            if row.max_event_us is not None
            and row.first_offset < offsets.get(row.topic, {}).get(row.partition, 0)
        ]
        return moment_or_last(max(newest)) if newest else None

    def whole(self, offsets: KafkaOffsets) -> KafkaOffsets:
        """Return the end of the batches entirely before some offsets; `clock` is exact there."""
        found: KafkaOffsets = {}
        for row in self.rows:
            wanted = offsets.get(row.topic, {}).get(row.partition, 0)
            known = found.setdefault(row.topic, {})
            least = self.begin[row.topic][row.partition]
            end = row.end_offset if row.end_offset <= wanted else min(least, wanted)
            known[row.partition] = max(end, known.get(row.partition, 0))
        return found

    def require(self, offsets: KafkaOffsets, since: KafkaOffsets | None = None) -> None:
        """Check that the archive reaches some offsets, with each record up to there once.

        Args:
            since: From these offsets on; None for where the archive begins.

        Raises:
            NotAlignedError: If it ends before, has a gap, or has archived records twice.
        """
        short = [
            f"{topic} partition {part}: wanted up to {offset}, archived up to "
            f"{self.end.get(topic, {}).get(part, 0)}"
            for topic, part, offset in by_partition(offsets)
            if offset > self.end.get(topic, {}).get(part, 0)
        ]
        if short:
            raise NotAlignedError(
                f"the archive {self.uri} does not reach far enough: {'; '.join(short)}",
                hint="archive the newer records as well: python -m savepoints.jobs.archive "
                "QUERY INPUT --until latest",
                uri=self.uri,
            )
        wrong = [
            f"{topic} partition {part}: offsets {min(first, last)} to {max(first, last) - 1} "
            f"{'missing' if first < last else 'archived twice'}"
            for topic, part, first, last in self.holes()
            if max(min(first, last), (since or {}).get(topic, {}).get(part, 0))
            < min(max(first, last), offsets.get(topic, {}).get(part, 0))
        ]
        if wrong:
            raise NotAlignedError(
                f"the archive {self.uri} does not have each record once: {'; '.join(wrong)}",
                hint="archive the topic again at another URI, if Kafka still has the records; to "
                "compare the archive with Kafka: python -m savepoints.jobs.archive QUERY INPUT "
                "--check",
                uri=self.uri,
            )

    def require_same(self, topic_ids: Mapping[str, str]) -> None:
        """Check that topics have not been recreated since they were archived."""
        for topic in sorted(topic_ids):
            for one in {row.topic_id for row in self.rows if row.topic == topic and row.topic_id}:
                require_same_topic(self.uri, {topic: one}, topic_ids)

    def newest_stretch(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return first and next offset of the newest gapless range; None if unknown."""
        rows = [one for one in self.rows if (one.topic, one.partition) == (topic, partition)]
        if not rows:
            return None
        first = self.begin[topic][partition]
        ends = [end for _, part, _, end in self.holes(topic) if part == partition]
        return max(ends, default=first), self.end[topic][partition]

    def holes(self, topic: str | None = None) -> list[tuple[str, int, int, int]]:
        """Return the gaps between batches: topic, partition, from, to.

        Where batches overlap, `to` is before `from`.
        """
        return [one for one in self._holes if topic in {None, one[0]}]

    @cached_property
    def _holes(self) -> list[tuple[str, int, int, int]]:
        # The rows come in no order; an empty batch lies before the one that begins where it does.
        ordered = sorted(
            self.rows, key=lambda row: (row.topic, row.partition, row.first_offset, row.end_offset)
        )
        return [
            (row.topic, row.partition, before.end_offset, row.first_offset)
            for before, row in pairwise(ordered)
            if (before.topic, before.partition) == (row.topic, row.partition)
            and before.end_offset != row.first_offset
        ]


def require_same_topic(uri: str, known: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Check that topics whose ids are known have not been recreated since."""
    for topic, known_id in known.items():
        if now.get(topic) != known_id:
            raise SourceDataGoneError(
                f"topic {topic} has been deleted and recreated since it was archived at {uri}, so "
                "its offsets now refer to other records",
                hint="archive the new topic at another URI",
                uri=uri,
                topic=topic,
            )


def load(uri: str) -> ArchiveProgress:
    """Read an archive's progress; empty if there is no archive yet."""
    location = Location.of(uri)
    rows = archive_table.rows(location / DIRECTORY)
    return ArchiveProgress(str(location), tuple(_from_row(row) for row in rows))


def has(uri: str, app: str, version: int) -> bool:
    """Return True if a batch is archived, by its transaction id and version."""
    table = archive_table.open_if_exists(Location.of(uri) / DIRECTORY)
    return table is not None and archive_table.has(table, app, version)


def add(uri: str, rows: Iterable[Arrival], *, app: str, version: int) -> None:
    """Add a batch's arrivals; one that is already there changes nothing."""
    data = [dict(vars(row)) for row in rows]
    archive_table.append_rows(Location.of(uri) / DIRECTORY, data, _schema(), app, version)


def compact(uri: str) -> None:
    """Keep the table small: see `coarsened`."""
    archive_table.change_rows(
        Location.of(uri) / DIRECTORY,
        _schema(),
        lambda rows: to_json(coarsened([_from_row(row) for row in rows])),
    )


def coarsened(rows: Sequence[Arrival]) -> list[Arrival]:
    """Merge runs of old batches into one row each.

    A year of a batch a minute is half a million rows for each partition. For old offsets the clock
    gets later by up to that many batches; it remains a bound.
    """
    found: list[Arrival] = []
    places: dict[tuple[str, int], list[Arrival]] = {}
    for row in rows:
        places.setdefault((row.topic, row.partition), []).append(row)
    for known in places.values():
        known.sort(key=lambda row: (row.first_offset, row.end_offset))
        split = max(0, len(known) - _FINE)
        old, new = known[:split], known[split:]
        pending: list[Arrival] = []
        for row in old:
            follows = not pending or pending[-1].end_offset == row.first_offset
            if row.batches > 1 or not follows or len(pending) == _COARSE:
                found += [_one(pending)] if len(pending) == _COARSE else pending
                pending = []
            if row.batches > 1:
                found.append(row)
            else:
                pending.append(row)
        found += [_one(pending)] if len(pending) == _COARSE else pending
        found += new
    return found


def _one(rows: Sequence[Arrival]) -> Arrival:
    times = [row.max_event_us for row in rows if row.max_event_us is not None]
    return replace(
        rows[0],
        end_offset=rows[-1].end_offset,
        rows=sum(row.rows for row in rows),
        max_event_us=max(times, default=None),
        batches=sum(row.batches for row in rows),
    )


def to_json(rows: Sequence[Arrival]) -> list[dict[str, Any]]:
    """Return what `from_json` reads."""
    return [dict(vars(row)) for row in rows]


def from_json(rows: Sequence[Mapping[str, Any]]) -> list[Arrival]:
    """Read what `to_json` wrote."""
    return [_from_row(row) for row in rows]


def of_batch(
    found: Mapping[tuple[str, int], tuple[int, int | None]],
    begin: KafkaOffsets,
    end: KafkaOffsets,
    topic_ids: Mapping[str, str],
) -> list[Arrival]:
    """Return the rows of a batch.

    Args:
        found: Records and newest event time (microseconds) by topic and partition.
        begin: Where the batch began; a partition that is not in it began at 0.

    Returns:
        A row for each partition, even an empty one: it records where the archive begins.
    """
    if strangers := found.keys() - {
        (topic, part) for topic, parts in end.items() for part in parts
    }:
        which = ", ".join(f"{topic} partition {part}" for topic, part in sorted(strangers))
        raise NotAlignedError(
            f"decode returned records from partitions that are not in the batch, which ends at "
            f"{kafka_position(end)}: {which}",
            hint="change decode so that it leaves Kafka's columns topic, partition and offset "
            "unchanged",
        )
    rows = []
    for topic, part, offset in by_partition(end):
        count, newest = found.get((topic, part), (0, None))
        first = begin.get(topic, {}).get(part, 0)
        known = topic_ids.get(topic)
        rows.append(Arrival(topic, part, first, offset, count, newest, topic_id=known))
    return rows


def _from_row(row: Mapping[str, Any]) -> Arrival:
    return Arrival(**{name: row[name] for name in Arrival.__dataclass_fields__})


def _schema() -> pa.Schema:
    import pyarrow as pa

    number: pa.DataType = pa.int64()
    columns: list[tuple[str, pa.DataType]] = [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("first_offset", number),
        ("end_offset", number),
        ("rows", number),
        ("max_event_us", number),
        ("batches", number),
        ("topic_id", pa.string()),
    ]
    return pa.schema(columns)
