"""Arithmetic of Kafka positions: steps, distances, reachability, and offset files.

All offsets are next-to-read, as in Spark's offset log. Nothing here asks Kafka; callers pass what
it has as `Range` values (see `savepoints.sources.combined.availability.ranges`).
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, apart, by_partition
from savepoints.errors import SourceDataGoneError, UsageError
from savepoints.texts import count_text

# Kafka's own rule for names of topics.
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
# Numbers as Kafka and Spark write them: no sign, no leading zero.
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
_LARGEST_OFFSET = 2**63 - 1
_LARGEST_PARTITION = 2**31 - 1

_JSON_HINT = 'write the offsets as Spark does: {"topic": {"0": 12, "1": 7}}'
_CSV_HINT = "write topic,partition,offset on each line, without a header, as --export does"
_NAMED_OFFSETS = {-1: "latest", -2: "earliest"}


@dataclass(frozen=True)
class Range:
    """The available offsets of a partition, from `earliest` up to, not including, `end`.

    Attributes:
        earliest: First offset that can be read, of Kafka or of an archive.
        kafka_from: First offset that Kafka has, where an archive has earlier ones; None where
            `earliest` is Kafka's.
        beyond: What an archive has that does not connect to Kafka, in words; empty for nothing.
    """

    topic: str
    partition: int
    earliest: int
    end: int
    kafka_from: int | None = None
    archived_to: int | None = None
    beyond: str = ""

    @property
    def kafka_earliest(self) -> int:
        """First offset that Kafka has."""
        return self.earliest if self.kafka_from is None else self.kafka_from

    @property
    def text(self) -> str:
        """The available offsets, in words."""
        archived = "" if self.archived_to is None else f" (to {self.archived_to} archived)"
        return f"{self.earliest} to {self.end}{archived}{self.beyond}"

    def left_to_kafka(self, offset: int) -> int:
        """Return the offset from which Kafka must have the records that follow an offset."""
        return max(offset, self.archived_to or 0) if self.from_archive(offset) else offset

    def from_archive(self, offset: int) -> int:
        """Return how many offsets from this one on only an archive has."""
        return max(0, self.kafka_earliest - max(offset, self.earliest))


def ends(ranges: Mapping[str, Mapping[int, Range]]) -> KafkaOffsets:
    """Return where each partition ends."""
    return {
        topic: {part: one.end for part, one in parts.items()} for topic, parts in ranges.items()
    }


Ranges: TypeAlias = Mapping[str, Mapping[int, Range]]


def step(begin: KafkaOffsets, end: KafkaOffsets, most: int | None) -> KafkaOffsets:
    """Return where a batch of at most `most` records ends on the way from `begin` to `end`.

    Each partition gets a share in proportion to what it has left, as in Spark's
    `KafkaMicroBatchStream.rateLimit`. Spark rounds each share by itself, so that its batches are a
    little larger or smaller; here the shares add up exactly (largest remainder first, then by
    topic and partition), so that the same call gives the same batch.

    Args:
        begin: Where the batch begins; complete (see `with_new_partitions`).
        end: Where to go in the end; never before `begin`.
        most: Most records of the batch; None for no limit.

    Returns:
        A position of the same partitions as `end`: min(most, left) records after `begin`.

    Raises:
        ValueError: If begin and end are not of the same partitions, or end lies before begin.
    """
    if most is not None and most < 1:
        raise UsageError(
            f"with a limit of {most} records per batch, the query cannot make progress",
            hint="set max_offsets_per_trigger to 1 or more, or remove it",
        )
    left = {(topic, part): size for topic, part, size in _distances(begin, end)}
    total = sum(left.values())
    if most is None or most >= total:
        return {topic: dict(parts) for topic, parts in end.items()}
    shares = {key: most * size // total for key, size in left.items()}
    # A partition with a remainder has more left than its share, so one more record always fits.
    by_remainder = sorted(left, key=lambda key: (-(most * left[key] % total), key))
    for key in by_remainder[: most - sum(shares.values())]:
        shares[key] += 1
    return {
        topic: {part: begin[topic][part] + shares[topic, part] for part in parts}
        for topic, parts in end.items()
    }


def count(begin: KafkaOffsets, end: KafkaOffsets) -> int:
    """Return how many offsets lie between two positions.

    In a compacted topic, and where transactions were used, there are fewer records than offsets.

    Raises:
        ValueError: If begin and end are not of the same partitions, or end lies before begin.
    """
    return sum(size for _, _, size in _distances(begin, end))


def merge(
    positions: Iterable[KafkaOffsets],
    *,
    instead: str = "choose a savepoint instead of offsets or a time: savepoints list",
) -> KafkaOffsets:
    """Return the positions of several sources as one.

    Args:
        instead: What to do where they cannot be one, for the hint.

    Raises:
        UsageError: If two have read a partition up to different offsets.
    """
    several = list(positions)
    if (found := apart(several)) is not None:
        topic, part, one, other = found
        raise UsageError(
            f"two sources read topic {topic} partition {part} but are at different "
            f"offsets, {one} and {other}",
            hint=instead,
            topic=topic,
            partition=part,
        )
    merged: KafkaOffsets = {}
    for position in several:
        for topic, parts in position.items():
            merged.setdefault(topic, {}).update(parts)
    return merged


def with_new_partitions(begin: KafkaOffsets, ranges: Ranges) -> KafkaOffsets:
    """Return a position extended by the partitions added in Kafka since.

    They start at their earliest offset, as in a running query, whatever `startingOffsets` is.
    """
    return {
        topic: {
            **{part: one.earliest for part, one in ranges.get(topic, {}).items()},
            **begin.get(topic, {}),
        }
        for topic in {**begin, **ranges}
    }


def require_new_partitions(begin: KafkaOffsets, ranges: Ranges) -> None:
    """Refuse partitions added since a position that have lost records which would be read first.

    Spark's `KafkaMicroBatchStream` refuses them, too. A query without a position begins where it
    can.
    """
    gone = [
        one
        for topic, parts in ranges.items()
        if begin.get(topic)
        for part, one in parts.items()
        if part not in begin[topic] and one.earliest > 0
    ]
    if gone:
        listed = "; ".join(
            f"{one.topic} partition {one.partition}: wanted 0, available {one.text}" for one in gone
        )
        raise SourceDataGoneError(
            "the query has read nothing yet of partitions that were added to its topic, and their "
            f"first records are gone: {listed}",
            hint="choose a savepoint that was taken after they were added: savepoints list "
            "--check-sources",
            partitions=[_misfit(one.topic, one.partition, 0, one, "newer") for one in gone],
        )


def require_reachable(begin: KafkaOffsets, end: KafkaOffsets, ranges: Ranges) -> None:
    """Check that a query can read everything from one position to another.

    Nothing is clamped: each partition that does not fit is named, with what was wanted and what
    Kafka has of it.

    Args:
        begin: Where the query stands; complete (see `with_new_partitions`).
        ranges: What Kafka has of the topics of both; a topic that it lacks is left out.
    """
    gone: list[dict[str, Any]] = []
    wrong: list[dict[str, Any]] = []
    for topic, part in sorted({*_partitions(begin), *_partitions(end), *_partitions(ranges)}):
        start, stop = begin.get(topic, {}).get(part), end.get(topic, {}).get(part)
        found = ranges.get(topic, {}).get(part)
        if start is not None and (found is None or not found.earliest <= start <= found.end):
            gone.append(_misfit(topic, part, start, found, "where the query would start"))
        elif found is None or stop is None or start is None or not start <= stop <= found.end:
            wrong.append(_misfit(topic, part, stop, found, _why(start, stop, found)))
    if gone:
        raise SourceDataGoneError(
            "Kafka does not have the records that the query would read next: "
            f"{_listed(gone + wrong)}",
            hint="choose a newer savepoint to roll back to: savepoints list --check-sources",
            partitions=gone + wrong,
        )
    if wrong:
        raise UsageError(
            f"the query cannot stop at these offsets: {_listed(wrong)}",
            hint="give one offset for each partition of the topic, within the range that Kafka has",
            partitions=wrong,
        )


def read_text(path: Path) -> str:
    """Read a file of offsets, in either form.

    Raises:
        UsageError: If it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text("utf-8-sig")  # Spreadsheets begin it with a mark.
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"the offsets in {path} cannot be read: {error}",
            hint="correct the path, the permissions or the encoding of the file",
        ) from None


def parse_offsets(text: str) -> KafkaOffsets:
    """Read an offsets file in Spark's form: `{"topic": {"0": 12}}`."""
    try:
        data = json.loads(text, object_pairs_hook=_without_duplicates)
    except ValueError as error:
        raise UsageError(f"the offsets are not valid JSON: {error}", hint=_JSON_HINT) from None
    if not isinstance(data, dict) or not data:
        raise UsageError("the offsets contain no topics", hint=_JSON_HINT)
    found: KafkaOffsets = {}
    for topic, parts in data.items():
        if not isinstance(parts, dict) or not parts:
            raise UsageError(
                f"the offsets of topic {topic!r} contain no partitions",
                hint=_JSON_HINT,
                topic=topic,
            )
        found[_topic(topic, "the offsets", _JSON_HINT)] = {
            _partition(part, f"topic {topic!r}", _JSON_HINT): _offset(
                offset, f"topic {topic!r}, partition {part!r}", _JSON_HINT
            )
            for part, offset in parts.items()
        }
    return found


def parse_group_csv(text: str, group: str | None = None) -> KafkaOffsets:
    """Read the CSV of `kafka-consumer-groups --reset-offsets --export`.

    Args:
        text: Lines `topic,partition,offset`, or `group,topic,partition,offset`.
        group: The group whose lines to take, where the lines name one.
    """
    found: KafkaOffsets = {}
    lines: dict[tuple[str, int], int] = {}
    width: int | None = None
    for number, cells in _csv_lines(text):
        where = f"line {number}"
        width = width or len(cells)
        if len(cells) not in {3, 4} or len(cells) != width:
            raise UsageError(
                f"{where} has {count_text(len(cells), 'field')}, but every line must have the same "
                "number of fields, either 3 or 4",
                hint=_CSV_HINT,
                line=number,
            )
        *named, topic_text, part_text, offset_text = cells
        if named and group is None:
            raise UsageError(
                f"{where} names the consumer group {named[0]!r}, but --group is missing",
                hint="specify which group's lines to use: --group GROUP",
                line=number,
            )
        if named and named[0] != group:
            continue
        topic = _topic(topic_text, where, _CSV_HINT)
        part = _partition(part_text, where, _CSV_HINT)
        if (topic, part) in lines:
            raise UsageError(
                f"{where} repeats {topic} partition {part} from line {lines[topic, part]}",
                hint="keep one of the two lines",
                line=number,
            )
        lines[topic, part] = number
        offset = int(offset_text) if _NUMBER.fullmatch(offset_text) else offset_text
        found.setdefault(topic, {})[part] = _offset(offset, where, _CSV_HINT)
    if not found:
        of = f" for the group {group!r}" if group is not None and width == 4 else ""  # noqa: PLR2004
        raise UsageError(f"the offsets file contains no offsets{of}", hint=_CSV_HINT)
    return found


def group_csv(offsets: KafkaOffsets) -> str:
    """Write offsets as `kafka-consumer-groups --reset-offsets --from-file` reads them."""
    return "".join(f"{topic},{part},{offset}\n" for topic, part, offset in by_partition(offsets))


def _distances(begin: KafkaOffsets, end: KafkaOffsets) -> Iterator[tuple[str, int, int]]:
    different = set(_partitions(begin)) ^ set(_partitions(end))
    if different:
        topic, part = min(different)
        raise ValueError(f"only one of two positions has {topic} partition {part}")
    for topic, part in _partitions(end):
        distance = end[topic][part] - begin[topic][part]
        if distance < 0:
            raise ValueError(
                f"the range of {topic} partition {part} ends at offset {end[topic][part]}, which "
                f"is before its start offset {begin[topic][part]}"
            )
        yield topic, part, distance


def _partitions(topics: Mapping[str, Mapping[int, object]]) -> Iterator[tuple[str, int]]:
    return ((topic, part) for topic, parts in topics.items() for part in parts)


def _misfit(
    topic: str, part: int, wanted: int | None, found: Range | None, reason: str
) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": part,
        "wanted": wanted,
        "earliest": None if found is None else found.earliest,
        "end": None if found is None else found.end,
        "reason": reason,
        **({"beyond": found.beyond} if found and found.beyond else {}),
    }


def _why(start: int | None, stop: int | None, found: Range | None) -> str:
    if stop is None:
        return "not given in the end offsets"
    if found is None:
        return "Kafka does not have it"
    if start is None:
        return "not given in the start offsets"
    return f"before the start at {start}" if stop < start else "beyond Kafka's end"


def _listed(misfits: list[dict[str, Any]]) -> str:
    def one(misfit: dict[str, Any]) -> str:
        wanted = "no offset" if misfit["wanted"] is None else f"offset {misfit['wanted']}"
        available = (
            "nothing"
            if misfit["end"] is None
            else f"{misfit['earliest']} to {misfit['end']}{misfit.get('beyond', '')}"
        )
        return (
            f"{misfit['topic']} partition {misfit['partition']}: wanted {wanted}, "
            f"available {available} ({misfit['reason']})"
        )

    return "; ".join(one(misfit) for misfit in misfits)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is given twice")
    return found


def _csv_lines(text: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text), strict=True)
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UsageError(
                f"line {reader.line_num} is not valid CSV: {error}",
                hint=_CSV_HINT,
                line=reader.line_num,
            ) from None
        if cells:
            yield reader.line_num, [cell.strip() for cell in cells]


def _topic(text: str, where: str, hint: str) -> str:
    if not _TOPIC.fullmatch(text):
        raise UsageError(f"{where}: {text!r} is not a valid Kafka topic", hint=hint)
    return text


def _partition(text: str, where: str, hint: str) -> int:
    if not _NUMBER.fullmatch(text) or not 0 <= int(text) <= _LARGEST_PARTITION:
        raise UsageError(f"{where}: {text!r} is not a partition number", hint=hint)
    return int(text)


def _offset(value: object, where: str, hint: str) -> int:
    if type(value) is not int or value > _LARGEST_OFFSET:
        raise UsageError(f"{where}: {value!r} is not a valid offset", hint=hint)
    if value < 0:
        named = _NAMED_OFFSETS.get(value)
        also = f" (Spark's {named})" if named else ""
        raise UsageError(
            f"{where}: {value}{also} does not identify a record",
            hint=f"write the offset itself, or, with reset, use --to-{named}" if named else hint,
        )
    return value
