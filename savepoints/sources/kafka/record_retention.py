"""Until when Kafka keeps the records from a position on: by its settings and by measured rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, by_partition
from savepoints.config.settings import KafkaSettings
from savepoints.moments import LAST, rfc3339
from savepoints.sources.kafka import arrival_rates, probe_records
from savepoints.sources.kafka.arrival_rates import ArrivalCounts
from savepoints.sources.kafka.offsets import Range, Ranges
from savepoints.sources.kafka.probe_records import ProbeRecord
from savepoints.sources.kafka.topics import Topic, TopicRetention

_FOREVER = "kept forever"
# What Kafka writes at most besides key, value and headers, for a record in a batch of its own.
_ADDED_BYTES = 80


@dataclass(frozen=True)
class RecordRetention:
    """How long the records of a partition are kept from some offset on."""

    until: datetime | None
    basis: str
    known: bool = True


@dataclass(frozen=True)
class _Load:
    """What comes into the partitions: records a second, and bytes of each."""

    arrivals: ArrivalCounts | None
    record_bytes: float | None
    sampled: int


def left_to_kafka(position: KafkaOffsets, ranges: Ranges) -> KafkaOffsets:
    """Return from where on Kafka has to have it: up to there the archive has it."""
    return {
        topic: {part: ranges[topic][part].left_to_kafka(at) for part, at in parts.items()}
        for topic, parts in position.items()
    }


def until(
    position: KafkaOffsets,
    topics: Mapping[str, Topic],
    settings: KafkaSettings,
    now: datetime,
    *,
    seconds: float = probe_records.SECONDS,
) -> dict[tuple[str, int], RecordRetention]:
    """Find out until when the records from a position on are kept.

    By time, that is the timestamp of the first of them and `retention.ms`: Kafka removes a segment
    when its newest record is that old, so it may be later, but not earlier. By size, it is when so
    many bytes have come after it as `retention.bytes` allows; that is an estimate from the rate and
    the size of records.

    Args:
        seconds: How long to wait for the first records; what was not read by then is not known.
    """
    places = {(topic, part): offset for topic, part, offset in by_partition(position)}
    ranges = {(topic, part): topics[topic].ranges[part] for topic, part in places}
    waiting = {place: at for place, at in places.items() if at < ranges[place].end}
    limited = {
        place: at
        for place, at in waiting.items()
        if _expires(topics[place[0]].policy, by_time=True)
    }
    read = probe_records.first(limited, settings, seconds=seconds)
    load = _Load(None, None, 0)
    if any(_expires(topics[topic].policy, by_time=False) for topic, _ in places):
        load = _load(places, ranges, topics, settings, now)
    return {
        place: _partition(topics[place[0]], ranges[place], at, read.get(place), load, now)
        for place, at in places.items()
    }


def soonest(
    kept: Mapping[tuple[str, int], RecordRetention], now: datetime
) -> tuple[datetime | None, str, tuple[str, ...]]:
    """Return the first end among partitions, its basis, and what a person should know.

    When it is not known of one partition, it is not known at all: that one may be the first.
    """
    unknown = {place: one for place, one in kept.items() if not one.known}
    if unknown:
        (topic, part), one = next(iter(sorted(unknown.items())))
        more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
        return None, f"unknown for {topic} partition {part}{more}: {one.basis}", ()
    ends = [(one.until, place, one.basis) for place, one in kept.items() if one.until is not None]
    if not ends:
        return None, _FOREVER, ()
    first, (topic, part), basis = min(ends)
    findings: tuple[str, ...] = ()
    if first <= now:
        what = f"the next record of {topic} partition {part}"
        findings = (
            f"Kafka may remove {what} at any moment: its retention ended at {rfc3339(first)}",
        )
    return first, f"{topic} partition {part}: {basis}", findings


def _expires(policy: TopicRetention | None, *, by_time: bool) -> bool:
    if policy is None or "delete" not in policy.cleanup:
        return False
    return (policy.retention_ms if by_time else policy.retention_bytes) is not None


def _load(
    places: Mapping[tuple[str, int], int],
    ranges: Mapping[tuple[str, int], Range],
    topics: Mapping[str, Topic],
    settings: KafkaSettings,
    now: datetime,
) -> _Load:
    counted = arrival_rates.arrivals(topics, settings, now)
    # Where nothing waits, those before are the next best to tell how large records are.
    sample = {
        place: at
        if at < ranges[place].end
        else max(ranges[place].earliest, at - arrival_rates.SAMPLE)
        for place, at in places.items()
        if ranges[place].earliest < ranges[place].end
    }
    measured = arrival_rates.record_bytes(sample, settings)
    # The fastest, for the earliest end.
    fastest = max(counted, key=lambda one: one.per_second, default=None)
    size, sampled = measured or (None, 0)
    return _Load(fastest, size, sampled)


def _partition(
    topic: Topic,
    found: Range,
    offset: int,
    read: list[ProbeRecord] | None,
    load: _Load,
    now: datetime,
) -> RecordRetention:
    policy = topic.policy
    if policy is None:
        return RecordRetention(None, topic.policy_problem, known=False)
    if "delete" not in policy.cleanup:
        return RecordRetention(
            None, "cleanup.policy is compact, so nothing is removed by age or size"
        )
    limits = []
    if policy.retention_ms is not None:
        limits.append(_by_time(policy, policy.retention_ms, found, offset, read, now))
    if policy.retention_bytes is not None:
        limits.append(_by_size(policy.retention_bytes, found, offset, load, now))
    unknown = [one for one in limits if not one.known]
    if unknown:
        return unknown[0]
    ends = [one for one in limits if one.until is not None]
    if ends:
        return min(ends, key=lambda one: one.until or now)
    return limits[0] if limits else RecordRetention(None, _FOREVER)


def _by_time(
    policy: TopicRetention,
    retention_ms: int,
    found: Range,
    offset: int,
    read: list[ProbeRecord] | None,
    now: datetime,
) -> RecordRetention:
    keeps = f"retention.ms {retention_ms}"
    if offset == found.end:
        return RecordRetention(
            _later(now, retention_ms / 1000),
            f"no record is waiting there yet; one that arrives now would be subject to {keeps}",
        )
    arrived = read[0].timestamp if read else None
    if arrived is None:
        return RecordRetention(
            None, f"{keeps}, and the record at offset {offset} was not read", known=False
        )
    when = "after the year 9999" if arrived == LAST else f"at {rfc3339(arrived)}"
    return RecordRetention(
        _later(arrived, retention_ms / 1000),
        f"{keeps}, and the record at offset {offset} arrived {when} ({policy.times})",
    )


def _by_size(
    retention_bytes: int, found: Range, offset: int, load: _Load, now: datetime
) -> RecordRetention:
    keeps = f"retention.bytes {retention_bytes}"
    if load.arrivals is None or load.record_bytes is None:
        return RecordRetention(None, f"{keeps}, and there were no records to measure", known=False)
    per_second = load.arrivals.partition_per_second(found.topic, found.partition)
    size = load.record_bytes + _ADDED_BYTES
    left = retention_bytes - (found.end - offset) * size
    measured = (
        f"{keeps}; estimated from {size:.0f} bytes per record at most ({load.sampled} read, "
        f"uncompressed) and {per_second:.2f} records per second ({load.arrivals.basis})"
    )
    if left <= 0:
        return RecordRetention(now, measured)
    if per_second <= 0:
        return RecordRetention(None, f"{measured}: no new input is arriving to push it out")
    return RecordRetention(_later(now, left / (per_second * size)), measured)


def _later(moment: datetime, seconds: float) -> datetime | None:
    """Return the moment after so many seconds; None when that is after the year 9999."""
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return None
