"""The producer and its command line, against a real broker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from spark_jobs.orders.__main__ import main
from spark_jobs.orders.cdnow import Order, orders_between, read_orders
from spark_jobs.orders.codec import decode_order
from spark_jobs.orders.producer import ProduceError, produce

pytestmark = pytest.mark.drawn(3)

READ_TIMEOUT_S = 30.0


@pytest.fixture
def servers(world: Any) -> str:
    return str(world.bootstrap_servers)


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="module")
def january() -> tuple[Order, ...]:
    return orders_between(read_orders(), until_date=date(1997, 2, 1))


def create_topic(servers: str, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, num_partitions=1, config=config)])[topic].result()


def read_topic(servers: str, topic: str) -> dict[int, list[Message]]:
    """Read every record that the topic has, by partition."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": f"read-{uuid.uuid4()}"})
    try:
        partitions = consumer.list_topics(topic, timeout=READ_TIMEOUT_S).topics[topic].partitions
        return {number: list(_records(consumer, topic, number)) for number in sorted(partitions)}
    finally:
        consumer.close()


def _records(consumer: Consumer, topic: str, number: int) -> Iterator[Message]:
    partition = TopicPartition(topic, number, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=READ_TIMEOUT_S)
    consumer.assign([partition])
    give_up_at = time.monotonic() + READ_TIMEOUT_S
    position = 0
    while position < end:
        assert time.monotonic() < give_up_at, f"{topic} {number}: only {position} of {end} records"
        for message in consumer.consume(num_messages=end - position, timeout=1.0):
            assert message.error() is None
            position += 1
            yield message


def as_order(message: Message) -> Order:
    return decode_order(message.value(), topic=message.topic(), offset=message.offset())


@pytest.mark.kafka
def test_a_customers_orders_are_in_one_partition_and_in_order(
    servers: str, topic: str, january: tuple[Order, ...]
) -> None:
    produced = produce(january, bootstrap_servers=servers, topic=topic)
    by_partition = read_topic(servers, topic)

    assert produced.rows == len(january)
    assert list(by_partition) == [0, 1, 2, 3]
    assert sum(len(messages) for messages in by_partition.values()) == len(january)
    assert all(len(messages) > len(january) / 8 for messages in by_partition.values())

    partition_of: dict[int, int] = {}
    arrived: dict[int, list[Order]] = {}
    for number, messages in by_partition.items():
        for order in map(as_order, messages):
            assert partition_of.setdefault(order.customer_id, number) == number
            arrived.setdefault(order.customer_id, []).append(order)
    sent: dict[int, list[Order]] = {}
    for order in january:
        sent.setdefault(order.customer_id, []).append(order)
    assert arrived == sent


@pytest.mark.kafka
def test_key_and_timestamp_of_a_record_are_those_of_its_order(
    servers: str, topic: str, january: tuple[Order, ...]
) -> None:
    produce(january[:50], bootstrap_servers=servers, topic=topic, partitions=1)
    messages = read_topic(servers, topic)[0]
    for message, order in zip(messages, january[:50], strict=True):
        assert as_order(message) == order
        assert message.key() == str(order.customer_id).encode()
        kind, timestamp_ms = message.timestamp()
        assert kind == TIMESTAMP_CREATE_TIME
        assert datetime.fromtimestamp(timestamp_ms / 1000, UTC) == order.ordered_at


@pytest.mark.kafka
def test_a_second_range_goes_on_where_the_first_ended(
    servers: str, topic: str, capsys: pytest.CaptureFixture[str], january: tuple[Order, ...]
) -> None:
    command = ["produce", "--topic", topic, "--bootstrap-servers", servers, "--partitions", "1"]
    assert main([*command, "--until", "1997-01-03"]) == 0
    assert main([*command, "--from", "1997-01-03", "--until", "1997-01-04"]) == 0
    assert main([*command, "--from", "1997-01-04", "--limit", "7"]) == 0

    before = orders_between(january, until_date=date(1997, 1, 4))
    expected = january[: len(before) + 7]
    assert [as_order(message) for message in read_topic(servers, topic)[0]] == list(expected)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"produced 7 orders to {topic} in ")
    assert last.endswith(
        f"ordered_at 1997-01-04T00:00:00.000+00:00 "
        f"to {expected[-1].ordered_at.isoformat(timespec='milliseconds')}"
    )


@pytest.mark.kafka
def test_the_rate_is_kept(servers: str, topic: str, january: tuple[Order, ...]) -> None:
    create_topic(servers, topic, **{"retention.ms": "-1"})
    produced = produce(january[:21], bootstrap_servers=servers, topic=topic, rows_per_second=20)
    assert 1.0 <= produced.seconds < 10.0


@pytest.mark.kafka
def test_a_topic_that_would_delete_the_orders_gets_none(
    servers: str, topic: str, january: tuple[Order, ...]
) -> None:
    create_topic(servers, topic, **{"retention.ms": "604800000"})
    with pytest.raises(ProduceError, match=r"retention\.ms=604800000"):
        produce(january[:5], bootstrap_servers=servers, topic=topic)
    assert read_topic(servers, topic) == {0: []}


@pytest.mark.kafka
def test_a_refused_record_is_an_error_with_the_brokers_words(
    servers: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(servers, topic, **{"retention.ms": "-1", "max.message.bytes": "60"})
    command = ["produce", "--topic", topic, "--bootstrap-servers", servers, "--limit", "3"]
    assert main(command) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert "MSG_SIZE_TOO_LARGE" in output.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--from", "1997-02-30"], "'1997-02-30' is not a date"),
        (["--from", "1997-02-01", "--until", "1997-02-01"], "is not before --until 1997-02-01"),
        (["--rate", "0"], "'0' is not a number above 0"),
        (["--limit", "-1"], "--limit"),
        ([], "--bootstrap-servers is needed, or SAVEPOINTS_KAFKA__BOOTSTRAP_SERVERS"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_sent(
    arguments: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SAVEPOINTS_KAFKA__BOOTSTRAP_SERVERS", raising=False)
    servers = ["--bootstrap-servers", "127.0.0.1:1"] if arguments else []
    with pytest.raises(SystemExit) as ended:
        main(["produce", *servers, *arguments])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err
