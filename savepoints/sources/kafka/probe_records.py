"""Read the timestamps and sizes of single records."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from savepoints.config.settings import KafkaSettings
from savepoints.errors import EnvironmentUnfitError
from savepoints.moments import moment_or_last
from savepoints.sources.kafka import client

if TYPE_CHECKING:
    from confluent_kafka import Message

# Probing a few records must not fetch megabytes of each partition.
_FETCH_BYTES = 64 * 1024
# What was not read by then is left out.
SECONDS = 5.0


@dataclass(frozen=True)
class ProbeRecord:
    """A record without its content.

    Attributes:
        timestamp: When it arrived, `moments.LAST` for all times after it; None if unknown.
        size: Bytes of key, value and headers, uncompressed.
    """

    offset: int
    timestamp: datetime | None
    size: int


def first(
    places: Mapping[tuple[str, int], int],
    settings: KafkaSettings,
    *,
    most: int = 1,
    seconds: float = SECONDS,
) -> dict[tuple[str, int], list[ProbeRecord]]:
    """Read the first records from some offsets on.

    Args:
        places: An offset for each topic and partition; before the end, where there is something to
            read.

    Returns:
        At most that many records for each place, in order. In compacted and transactional topics
        the first may be beyond the offset asked for.
    """
    found: dict[tuple[str, int], list[ProbeRecord]] = {place: [] for place in places}
    if not places:
        return found

    from confluent_kafka import KafkaException, TopicPartition

    deadline = time.monotonic() + seconds
    open_places = set(places)
    with client.consumer(
        settings,
        enable_partition_eof=True,
        auto_offset_reset="error",
        fetch_message_max_bytes=_FETCH_BYTES,
    ) as consumer:
        try:
            consumer.assign([TopicPartition(*place, offset) for place, offset in places.items()])
            while open_places and (left := deadline - time.monotonic()) > 0:
                for message in consumer.consume(most * len(open_places), timeout=min(left, 0.2)):
                    place = (str(message.topic()), int(message.partition() or 0))
                    if place not in open_places:
                        continue
                    if _is_record(message, settings):
                        found[place].append(_record(message))
                    if message.error() is not None or len(found[place]) == most:
                        open_places.discard(place)
                        consumer.pause([TopicPartition(*place)])
        except KafkaException as error:
            raise client.silent(settings, error) from None
    return found


def _is_record(message: Message, settings: KafkaSettings) -> bool:
    from confluent_kafka import KafkaError

    error = message.error()
    if error is None:
        return True
    # The end of a partition, or an offset that was just removed.
    if error.code() in {KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET}:
        return False
    raise EnvironmentUnfitError(
        f"cannot read topic {message.topic()} partition {message.partition()} from Kafka at "
        f"{settings.bootstrap_servers}: {error.str()}",
        hint="check that the broker is up, and that you have READ on the topic",
    )


def _record(message: Message) -> ProbeRecord:
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

    kind, milliseconds = message.timestamp()
    headers = dict(message.headers() or ())
    parts = [message.key(), message.value(), *headers, *headers.values()]
    return ProbeRecord(
        offset=int(message.offset() or 0),
        timestamp=None if kind == TIMESTAMP_NOT_AVAILABLE else moment_or_last(milliseconds * 1000),
        size=sum(len(part) for part in parts if part is not None),
    )
