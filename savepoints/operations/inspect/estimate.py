"""`estimate`: how much is left to read, how long that takes, and whether it ever catches up.

Every figure has its basis, and what was not measured is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from savepoints.checkpoint.cut import committed_in
from savepoints.checkpoint.logs import offset_log
from savepoints.checkpoint.logs.kafka_position import (
    KafkaOffsets,
    by_partition,
    kafka_position,
    lowest_offsets,
)
from savepoints.errors import NoCommittedBatchError, UsageError
from savepoints.io import Location
from savepoints.moments import utc_now
from savepoints.operations.inspect import catch_up, throughput
from savepoints.operations.inspect.catch_up import CatchesUp, InputRate
from savepoints.operations.inspect.throughput import Throughput
from savepoints.result import Result
from savepoints.runtime.archive_of import archives_of
from savepoints.sources.combined import availability, available_ranges
from savepoints.sources.kafka import arrival_rates, offsets, record_retention
from savepoints.sources.kafka import topics as kafka_topics
from savepoints.sources.kafka.arrival_rates import ArrivalCounts
from savepoints.sources.kafka.topics import Topic
from savepoints.store import bindings, lineage
from savepoints.store.root import Store


@dataclass(frozen=True)
class Estimate(Result):
    """How long a query needs to catch up.

    Attributes:
        query: Name of the query.
        savepoint_id: The savepoint it would begin from; None for its present position.
        batch_id: The last batch before the backlog, None before the first.
        measured_at: When Kafka was asked.
        topics: The topics that it reads.
        backlog_records: Offsets between its position and Kafka's end.
        backlog_bytes: Bytes of the backlog, by the average record; None when no record was read.
        record_bytes: Average bytes of a record: key, value and headers, uncompressed.
        records_sampled: Number of records in the sample.
        throughput: How fast the query reads; None when no run was measured.
        input: How fast records arrive; None when there are none to count.
        catches_up: `now` without a backlog, `maybe` when only the better figures allow it,
            `unknown` when something was not measured.
        reason: Why, in words.
        shortest_seconds: Time to catch up by the better figures; None if it never will, or if that
            is unknown.
        longest_seconds: The same by the worse figures.
        start_until: When Kafka may remove the first record of the backlog; None if there is no
            limit, or it is unknown.
        start_basis: What `start_until` is based on, or why there is none.
        retention_ends_first: Whether Kafka removes records before they are read, by the worse
            figures; None if unknown.
        findings: Further remarks for people.
    """

    query: str
    savepoint_id: str | None
    batch_id: int | None
    measured_at: datetime
    topics: tuple[str, ...]
    backlog_records: int
    backlog_bytes: int | None
    record_bytes: float | None
    records_sampled: int
    throughput: Throughput | None
    input: InputRate | None
    catches_up: CatchesUp
    reason: str
    shortest_seconds: float | None
    longest_seconds: float | None
    start_until: datetime | None
    start_basis: str
    retention_ends_first: bool | None
    findings: tuple[str, ...]


def estimate(store: Store, query: str, *, from_savepoint: str | None = None) -> Estimate:
    """Estimate how long a query needs to catch up with Kafka; changes nothing.

    Args:
        from_savepoint: Start from this savepoint instead of the present position: id, prefix,
            tag, `latest`, `latest~2` or `@TIME`.

    Raises:
        QueryNotFoundError: If the store does not know the query.
        SavepointNotFoundError: If there is no such savepoint of it.
        NoCommittedBatchError: If the query has run no batch yet.
        UsageError: If it does not read from Kafka.
        SourceDataGoneError: If neither Kafka nor an archive has what comes next.
        EnvironmentUnfitError: If no broker is configured or reachable.
        MissingExtraError: If Kafka's client is not installed.
    """
    settings = store.settings
    store = store.snapshot()
    begin, savepoint_id, batch_id, ids = _begin(store, query, from_savepoint)
    archives = archives_of(bindings.complete(store), query)
    found = availability.require_available(
        (kafka_position(begin),), settings.kafka, topics=ids, archives=archives
    )
    now = utc_now()
    topics = kafka_topics.describe(begin, settings.kafka)
    ranges = available_ranges.extended(
        {name: topic.ranges for name, topic in topics.items()},
        available_ranges.of_topics(archives, topics),
    )
    complete = offsets.with_new_partitions(begin, ranges)
    ends = offsets.ends(ranges)
    backlog = offsets.count(complete, ends)
    counted = arrival_rates.arrivals(topics, settings.kafka, now)
    places = {
        (topic, part): offset
        for topic, part, offset in by_partition(complete)
        if offset < ends[topic][part]
    }
    # Only what Kafka still has can be looked at, and only that it may remove.
    there = {(t, p): max(at, ranges[t][p].kafka_earliest) for (t, p), at in places.items()}
    record_bytes, sampled = arrival_rates.record_bytes(there, settings.kafka) or (None, 0)
    left = record_retention.left_to_kafka(complete, ranges)
    kept = record_retention.until(left, topics, settings.kafka, now)
    until, basis, notes = record_retention.soonest(kept, now)
    speed = throughput.measured(store.events.all(), query)
    arriving = _input(counted)
    out = catch_up.forecast(backlog, speed, arriving, query)
    return Estimate(
        query=query,
        savepoint_id=savepoint_id,
        batch_id=batch_id,
        measured_at=now,
        topics=tuple(sorted(topics)),
        backlog_records=backlog,
        backlog_bytes=None if record_bytes is None else round(backlog * record_bytes),
        record_bytes=record_bytes,
        records_sampled=sampled,
        throughput=speed,
        input=arriving,
        **asdict(out),
        start_until=until,
        start_basis=basis,
        retention_ends_first=catch_up.retention_ends_first(
            out, [one.policy for one in topics.values()], is_over=until is not None and until <= now
        ),
        findings=(*notes, *available_ranges.notes(begin, found), *_notes(begin, topics, counted)),
    )


def _begin(
    store: Store, query: str, from_savepoint: str | None
) -> tuple[KafkaOffsets, str | None, int | None, Mapping[str, str]]:
    """Return where to begin, the savepoint and batch of that, and the known ids of the topics."""
    if from_savepoint is not None:
        savepoint = store.catalog.find(from_savepoint, query=query)
        begin = lowest_offsets(savepoint.cut.offsets)
        known: tuple[str | None, int | None] = (savepoint.id, savepoint.cut.batch_id)
        ids: Mapping[str, str] = savepoint.topics
    else:
        generation = store.generations.current(query)
        checkpoint = Location.of(generation.checkpoint)
        committed = committed_in(checkpoint)
        if not committed:
            raise NoCommittedBatchError(
                f"{query} has not finished a batch yet, so its starting position is unknown",
                hint=f"run it first: savepoints run {query}",
                query=query,
            )
        begin = lowest_offsets(offset_log.read(checkpoint, committed[-1]).sources)
        known, ids = (None, committed[-1]), lineage.topic_ids(store, generation)
    if not begin:
        raise UsageError(
            f"{query} does not read from Kafka, and the records left to read can be counted only "
            "for Kafka sources",
            hint=f"show its position instead: savepoints show latest --query {query}",
            query=query,
        )
    return begin, *known, ids


def _input(counted: Sequence[ArrivalCounts]) -> InputRate | None:
    if not counted:
        return None
    speeds = [one.per_second for one in counted]
    return InputRate(min(speeds), max(speeds), "; ".join(one.basis for one in counted))


def _notes(
    begin: KafkaOffsets, topics: Mapping[str, Topic], counted: Sequence[ArrivalCounts]
) -> list[str]:
    found = []
    for name, topic in sorted(topics.items()):
        new = sorted(topic.ranges.keys() - begin[name].keys())
        if new:
            listed = ", ".join(map(str, new))
            found.append(f"new partitions of {name} are read from their beginning: {listed}")
        if topic.compacts:
            found.append(
                f"topic {name} is compacted, so it holds fewer records than the offsets suggest"
            )
    by_producers = [
        name
        for name, topic in sorted(topics.items())
        if topic.policy is None or topic.policy.times != "LogAppendTime"
    ]
    if counted and by_producers:
        found.append(
            f"the input of {', '.join(by_producers)} is measured by timestamps set by the "
            "producers; unless these are arrival times, this is not the input rate"
        )
    return found
