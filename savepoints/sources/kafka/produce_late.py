"""Produce late events to the end of a topic, as if they arrived now.

Each record has two headers, the merge that produced it and the id of its event, so that after a
kill the topic itself shows what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.config.settings import KafkaSettings
from savepoints.errors import LateBatchError, PartlyDoneError
from savepoints.sources.kafka import client, live_ranges, offsets, read_range

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message
    from pyspark.sql import DataFrame, Row, SparkSession

MERGE, EVENT = "savepoints-merge", "savepoints-event"
_POLL_SECONDS = 1.0


def ends(settings: KafkaSettings, topic: str) -> KafkaOffsets:
    """Return the end of each partition of a topic."""
    return offsets.ends(live_ranges.ranges([topic], settings))


def require_timestamps(events: DataFrame) -> None:
    """Refuse records whose timestamps cannot be produced.

    Timestamp 0 is how librdkafka is told to take the present time (`rd_kafka_msg_new0`), and
    brokers refuse negative ones.

    Args:
        events: `timestamp` and `event_id`.

    Raises:
        LateBatchError: If one is of 1970-01-01T00:00:00Z, or older.
    """
    found = events.where("unix_millis(timestamp) <= 0").selectExpr("min(event_id) event_id").first()
    if found is not None and found["event_id"] is not None:
        raise LateBatchError(
            f"the record of event {found['event_id']} cannot be produced with its timestamp, which "
            "is not after 1970-01-01T00:00:00Z",
            hint="correct the column timestamp of the batch, or leave it out if the application "
            "does not read it: the records then have the present time",
            events=[str(found["event_id"])],
        )


def missing(
    spark: SparkSession,
    settings: KafkaSettings,
    events: DataFrame,
    *,
    topic: str,
    since: KafkaOffsets,
    merge_id: str,
) -> DataFrame:
    """Return the events of a merge that the topic does not have yet, by `event_id`."""
    from pyspark.sql import functions as F

    until = ends(settings, topic)
    begin = {topic: {part: since.get(topic, {}).get(part, 0) for part in until[topic]}}
    records = read_range.read_records(spark, settings, begin, until)
    there = records.where(F.expr(_tag(MERGE)) == merge_id).selectExpr(f"{_tag(EVENT)} event_id")
    return events.join(there, "event_id", "left_anti")


def produce(settings: KafkaSettings, topic: str, events: Iterator[Row], merge_id: str) -> int:
    """Produce events to the end of a topic, with their own timestamps.

    Args:
        events: `key`, `value`, `headers`, `timestamp_ms` and `event_id`.
    """
    failed: list[KafkaError] = []

    def taken(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    count = 0
    producer = client.producer(settings)
    for one in events:
        headers: list[tuple[str, str | bytes | None]] = [
            (each["key"], _bytes(each["value"]))
            for each in one["headers"] or []
            if each["key"] not in (MERGE, EVENT)
        ]
        headers += [(MERGE, merge_id.encode()), (EVENT, str(one["event_id"]).encode())]
        is_queued = False
        while not is_queued:
            try:
                producer.produce(
                    topic,
                    _bytes(one["value"]),
                    _bytes(one["key"]),
                    timestamp=int(one["timestamp_ms"]),
                    headers=headers,
                    on_delivery=taken,
                )
                is_queued = True
            except BufferError:
                producer.poll(_POLL_SECONDS)
        producer.poll(0)
        count += 1
    if (left := producer.flush(client.TIMEOUT_SECONDS * 4)) or failed:
        why = failed[0].str() if failed else "no response in time"
        raise PartlyDoneError(
            f"Kafka did not accept {len(failed) + left} of {count} events for topic {topic}: {why}",
            hint="run the command again: it sends only the missing ones",
            topic=topic,
        )
    return count


def _tag(header: str) -> str:
    """Return the text of a header as SQL, null where a record has none."""
    return f"cast(get(filter(headers, one -> one.key = '{header}'), 0).value as string)"


def _bytes(value: bytearray | bytes | None) -> bytes | None:
    return None if value is None else bytes(value)
