"""Orders into Kafka, as a shop would have sent them.

The key of a record is its customer id, so that all orders of a customer are in one
partition, in the order in which they happened; its timestamp is `ordered_at`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # two are not in its __all__
    AdminClient,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from spark_jobs.orders.cdnow import Order
from spark_jobs.orders.codec import encode_order, order_key

_log = logging.getLogger(__name__)

_ADMIN_TIMEOUT_S = 15.0  # a healthy broker answers in well under one
_DELIVERY_TIMEOUT_MS = 60_000  # Kafka's own 5 minutes is long to wait for "broker is gone"
_PROGRESS_EVERY_S = 5.0
# Critical only: an unreachable broker is 20 lines a second of librdkafka's log, and every
# failure comes back as an error anyway.
_LOG_LEVEL = 2


class ProduceError(RuntimeError):
    """The topic cannot take the orders, or the broker did not accept one of them."""


@dataclass(frozen=True)
class Produced:
    """What was sent, all of it acknowledged by the broker.

    Args:
        topic: Where the orders are.
        rows: How many.
        first_ordered_at: `ordered_at` of the first one; None if there were none.
        last_ordered_at: `ordered_at` of the last one; None if there were none.
        seconds: How long it took.
    """

    topic: str
    rows: int
    first_ordered_at: datetime | None
    last_ordered_at: datetime | None
    seconds: float

    def __str__(self) -> str:
        """Return the one line that the command prints."""
        if self.first_ordered_at is None or self.last_ordered_at is None:
            return f"produced 0 orders to {self.topic} in {self.seconds:.1f} s"
        first = self.first_ordered_at.isoformat(timespec="milliseconds")
        last = self.last_ordered_at.isoformat(timespec="milliseconds")
        return (
            f"produced {self.rows} orders to {self.topic} in {self.seconds:.1f} s, "
            f"ordered_at {first} to {last}"
        )


def produce(
    orders: Sequence[Order],
    *,
    bootstrap_servers: str,
    topic: str,
    partitions: int = 4,
    rows_per_second: float | None = None,
) -> Produced:
    """Send orders to a topic and wait until the broker has all of them.

    Args:
        orders: What to send, in this order.
        bootstrap_servers: Kafka's `host:port`, several separated by commas.
        topic: Where to; created if it is missing.
        partitions: Number of partitions of a topic that is created here.
        rows_per_second: Pace; None sends as fast as the broker takes.

    Returns:
        What was sent.

    Raises:
        ProduceError: The broker cannot be reached, the topic would delete the orders,
            or a delivery failed. Some orders may have been sent by then.
    """
    began = time.monotonic()
    try:
        _ensure_topic(bootstrap_servers, topic, partitions)
        _send(orders, _Deliveries(bootstrap_servers, topic), rows_per_second)
    except KafkaException as error:
        raise ProduceError(f"{topic} at {bootstrap_servers}: {_words(error.args[0])}") from error
    return Produced(
        topic=topic,
        rows=len(orders),
        first_ordered_at=orders[0].ordered_at if orders else None,
        last_ordered_at=orders[-1].ordered_at if orders else None,
        seconds=time.monotonic() - began,
    )


class _Deliveries:
    """An idempotent producer that remembers the first delivery that failed."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic = topic
        self._failed: KafkaError | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "log_level": _LOG_LEVEL,
                # Retries neither double nor reorder records: a customer's orders stay in order.
                "enable.idempotence": True,
                "delivery.timeout.ms": _DELIVERY_TIMEOUT_MS,
                "linger.ms": 20,
                # Kafka's own hash of the key, so that any other client finds the same partition.
                "partitioner": "murmur2_random",
            }
        )

    def send(self, order: Order) -> None:
        """Queue one order, waiting while the queue is full."""
        value = encode_order(order)
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    key=order_key(order.customer_id),
                    value=value,
                    timestamp=round(order.ordered_at.timestamp() * 1000),
                    on_delivery=self._delivered,
                )
            except BufferError:
                self.serve(1.0)
            else:
                self.serve(0.0)
                return

    def serve(self, wait_s: float) -> None:
        """Take in acknowledgements for up to `wait_s` seconds; raise the first failure."""
        self._producer.poll(wait_s)
        if self._failed is not None:
            raise KafkaException(self._failed)

    def finish(self) -> None:
        """Wait for the acknowledgement of everything queued."""
        while len(self._producer):
            self.serve(1.0)
        self.serve(0.0)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None and self._failed is None:
            self._failed = error


def _send(orders: Sequence[Order], deliveries: _Deliveries, rows_per_second: float | None) -> None:
    began = time.monotonic()
    report_at = began + _PROGRESS_EVERY_S
    for row, order in enumerate(orders):
        if rows_per_second is not None:
            due = began + row / rows_per_second
            while (wait_s := due - time.monotonic()) > 0:
                deliveries.serve(min(wait_s, 1.0))
        deliveries.send(order)
        if time.monotonic() >= report_at:
            report_at += _PROGRESS_EVERY_S
            _log.info("%d of %d orders, at %s", row + 1, len(orders), order.ordered_at.date())
    deliveries.finish()


def _ensure_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Create the topic, or see that an existing one keeps records as old as these orders."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": _LOG_LEVEL})
    # The orders are from 1997: under any time limit Kafka would delete them at once.
    new = NewTopic(topic, num_partitions=partitions, config={"retention.ms": "-1"})
    try:
        admin.create_topics([new], request_timeout=_ADMIN_TIMEOUT_S)[topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    else:
        _log.info("created topic %s with %d partitions", topic, partitions)
        return
    resource = ConfigResource(ResourceType.TOPIC, topic)
    described = admin.describe_configs([resource], request_timeout=_ADMIN_TIMEOUT_S)
    retention_ms = described[resource].result()["retention.ms"].value
    if retention_ms != "-1":
        raise ProduceError(
            f"{topic} has retention.ms={retention_ms}: Kafka would delete orders from 1997 "
            "soon after they are sent; set retention.ms=-1 on the topic, or name a new one"
        )


def _words(error: KafkaError) -> str:
    return f"{error.str()} ({error.name()})"
