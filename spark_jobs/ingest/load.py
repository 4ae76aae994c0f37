"""From a feed into Kafka: every event at least once, in the order of the feed.

The position in the feed is written down when Kafka has acknowledged the page before it. A loader
that dies in between sends that page again: nothing is lost, and `events_once` knows the copies.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from savepoints import faults
from savepoints.io import Location
from spark_jobs.ingest import feed
from spark_jobs.ingest.feed import FeedError, Page

# All records of a bucket are in one partition, in order; its memory is one row of the state.
BUCKETS = 64
_CURSOR = "cursor.json"
_DELIVERY_TIMEOUT_MS = 60_000


class LoadError(RuntimeError):
    """Kafka does not take the events, or the position belongs to another feed."""


@dataclass(frozen=True)
class Loaded:
    """What was brought into Kafka, all of it acknowledged.

    Attributes:
        pages: How many pages were read.
        events: How many events they had, copies too.
    """

    pages: int
    events: int

    def __str__(self) -> str:
        """Return the one line that the command prints."""
        return f"loaded {self.events} events in {self.pages} pages"


def load(
    url: str, *, bootstrap_servers: str, topic: str, position: Location, limit: int = 500
) -> Loaded:
    """Bring what the feed has now into Kafka, from where the last loader came to.

    Args:
        position: Where the position in the feed is kept; a directory of this feed and topic alone.
        limit: Most events of a page.

    Raises:
        FeedError: If the feed gives no usable answer. What was loaded before is in Kafka.
        LoadError: If Kafka does not take an event, or the position is one of another feed or topic.
    """
    after = _read(position, url, topic)
    pages = events = 0
    while True:
        page = feed.page(url, after, limit=limit)
        if page.more and page.next == after:
            raise FeedError(f"{url} says that there is more after {after!r}, but not where")
        _send(page, bootstrap_servers, topic)
        faults.reach("ingest.sent")
        after, pages, events = page.next, pages + 1, events + len(page.events)
        said = {"url": url, "topic": topic, "after": after}
        position.put(_CURSOR, json.dumps(said).encode())
        faults.reach("ingest.noted")
        if not page.more:
            return Loaded(pages, events)


def bucket(event: object) -> str:
    """Return in which bucket an event is remembered: by its id, the same for all its copies."""
    event_id = event.get("event_id") if isinstance(event, dict) else None
    known = event_id if isinstance(event_id, str) else json.dumps(event, sort_keys=True)
    return f"{zlib.crc32(known.encode(errors='surrogatepass')) % BUCKETS:02d}"


def record(event: object, answered_ms: int) -> bytes:
    """Return an event as the value of a record, with the time at which the feed gave it."""
    return json.dumps({"answered_ms": answered_ms, "event": event}).encode()


def _read(position: Location, url: str, topic: str) -> str:
    if not position.exists(_CURSOR):
        return ""
    said = json.loads(position.get(_CURSOR))
    if (said["url"], said["topic"]) != (url, topic):
        raise LoadError(
            f"{position} has the position in {said['url']} for {said['topic']}, not in {url} for "
            f"{topic}: name another directory"
        )
    return str(said["after"])


def _send(page: Page, bootstrap_servers: str, topic: str) -> None:
    """Send a page, and wait until Kafka has acknowledged all of it."""
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 2,
            # Retries of the client neither double nor reorder records.
            "enable.idempotence": True,
            "delivery.timeout.ms": _DELIVERY_TIMEOUT_MS,
            "partitioner": "murmur2_random",
        }
    )
    for event in page.events:
        value = record(event, page.answered_ms)
        while True:
            try:
                producer.produce(topic, value, bucket(event), on_delivery=delivered)
                break
            except BufferError:
                producer.poll(1)
            except KafkaException as error:
                # The page is sent again: the position stays before it.
                raise LoadError(f"{topic} does not take {value[:200]!r}…: {error}") from error
        producer.poll(0)
    while len(producer):
        producer.poll(1)
    producer.flush()
    if failed:
        raise LoadError(f"{topic} at {bootstrap_servers}: {failed[0].str()}")
