"""Orders as Kafka values: Confluent wire format around an Avro body.

A value is the magic byte 0, the schema id as 4 bytes big-endian, and the Avro body.
It is written and read with confluent-kafka's own serializer and deserializer, so any
consumer that speaks the format can read the topic.

The registry is `mock://`: the client then keeps its schemas in memory and no server is
needed. It numbers schemas from 1 in the order of their registration, and each process
has a registry of its own: the producer, every Python worker of Spark, every test. The
id is the same in all of them because each registers exactly one schema, the packaged
`order.avsc`, before anything else, and refuses to go on under another id. Two settings
keep it so: the subject is the record's name and not the topic's (a topic-named subject
would register the same schema again, under a new id, for each topic), and nothing is
registered automatically. The alternative, a fixed id written in front of the body by
hand, would have needed framing code of ours on both sides.

The other form of the format, magic byte 1 and the GUID of the schema, is refused: an
in-memory registry draws GUIDs at random, so no reader could resolve them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any, TypedDict, cast

import pyarrow as pa
from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

from spark_jobs.orders.cdnow import Order

ORDER_SCHEMA_ID = 1
"""The id of `order.avsc` in every registry that this module makes."""

ORDER_SCHEMA_DDL = (
    "customer_id long, order_id string, ordered_at timestamp, quantity int, amount_cents long"
)
"""The columns that `decode_orders` returns, in Spark's words."""

ORDER_EVENT_DDL = f"{ORDER_SCHEMA_DDL}, topic string, partition int, offset long"
"""The columns that `decode_order_events` returns: orders, and where their records are."""

ORDER_RECORD_DDL = "key binary, value binary"
"""The columns that `encode_orders` returns."""

_ORDER_FIELDS: list[tuple[str, pa.DataType]] = [
    ("customer_id", pa.int64()),
    ("order_id", pa.string()),
    # Spark's timestamp is microseconds since the epoch; the zone only has to be there.
    ("ordered_at", pa.timestamp("us", tz="UTC")),
    ("quantity", pa.int32()),
    ("amount_cents", pa.int64()),
]
_ORDER_COLUMNS = pa.schema(_ORDER_FIELDS)
_POSITION_FIELDS: list[tuple[str, pa.DataType]] = [
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
]
_EVENT_COLUMNS = pa.schema([*_ORDER_FIELDS, *_POSITION_FIELDS])
_RECORD_COLUMNS = pa.schema({"key": pa.binary(), "value": pa.binary()})
_SUBJECT = "shop.orders.Order"
_PREFIX_BYTES = 5  # magic byte and schema id


class RecordFormatError(ValueError):
    """A Kafka value is not an order in Confluent wire format.

    Args:
        problem: What is wrong with the value, with the bytes it begins with.
        topic: Topic of the record, if known.
        partition: Its partition, if known.
        offset: Its offset, if known.
    """

    def __init__(
        self,
        problem: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> None:
        places = {"topic": topic, "partition": partition, "offset": offset}
        place = " ".join(f"{name} {value}" for name, value in places.items() if value is not None)
        super().__init__(f"{place}: {problem}" if place else problem)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class _Fields(TypedDict):
    order_id: str
    customer_id: int
    ordered_at: datetime
    quantity: int
    amount_cents: int


def encode_order(order: Order) -> bytes:
    """Write an order as a Kafka value.

    Args:
        order: The order.

    Returns:
        The value: magic byte, schema id, Avro body.
    """
    return _serialize()(vars(order))


def decode_order(
    value: bytes | None,
    *,
    topic: str | None = None,
    partition: int | None = None,
    offset: int | None = None,
) -> Order:
    """Read an order from a Kafka value.

    Args:
        value: The value; None, a tombstone, is not an order.
        topic: Topic of the record; it and the next two only serve the error.
        partition: Partition of the record.
        offset: Offset of the record.

    Returns:
        The order.

    Raises:
        RecordFormatError: The value is not an order in wire format.
    """
    try:
        return Order(**_read(value))
    except Exception as error:
        raise RecordFormatError(
            _problem(value, error), topic=topic, partition=partition, offset=offset
        ) from error


def decode_orders(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read the orders of a partition of Kafka records, for `DataFrame.mapInArrow`.

    The deserializer is made once in each Python process, not once a batch.

    Args:
        batches: Kafka's columns as Spark gives them. `value` is needed; `topic`,
            `partition` and `offset` make errors name the record; others are ignored.

    Yields:
        A batch with the columns of `ORDER_SCHEMA_DDL` for each batch read, rows in order.

    Raises:
        RecordFormatError: A value is not an order in wire format.
    """
    for batch in batches:
        rows: list[_Fields] = []
        for value in batch.column("value").to_pylist():
            try:
                rows.append(_read(value))
            except Exception as error:
                place = _place(batch, row=len(rows))
                raise RecordFormatError(_problem(value, error), **place) from error
        yield pa.RecordBatch.from_pylist(rows, schema=_ORDER_COLUMNS)


def decode_order_events(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read the orders like `decode_orders`, and keep where each one's record is.

    Args:
        batches: Kafka's columns `value`, `topic`, `partition` and `offset`; others are ignored.

    Yields:
        A batch with the columns of `ORDER_EVENT_DDL` for each batch read, rows in order.

    Raises:
        RecordFormatError: A value is not an order in wire format.
    """
    for batch in batches:
        (orders,) = decode_orders(iter([batch]))
        position = [batch.column(name) for name, _ in _POSITION_FIELDS]
        yield pa.RecordBatch.from_arrays([*orders.columns, *position], schema=_EVENT_COLUMNS)


def encode_orders(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write orders as the producer writes them, for `DataFrame.mapInArrow`.

    Args:
        batches: The columns of `ORDER_SCHEMA_DDL`; others are ignored.

    Yields:
        A batch with the columns of `ORDER_RECORD_DDL` for each batch read, rows in order.

    Raises:
        RecordFormatError: A row is no order: a value is missing or of another type, or
            `ordered_at` is no whole millisecond, which is all that a record can say.
    """
    for batch in batches:
        rows = batch.select(_ORDER_COLUMNS.names).to_pylist()
        yield pa.RecordBatch.from_pylist([_record(row) for row in rows], schema=_RECORD_COLUMNS)


def order_key(customer_id: int) -> bytes:
    """Return the key of the records of a customer."""
    return str(customer_id).encode()


def _record(row: dict[str, Any]) -> dict[str, bytes]:
    if any(value is None for value in row.values()):
        raise RecordFormatError(f"an order without a value: {row}")
    if row["ordered_at"].microsecond % 1000:
        raise RecordFormatError(f"ordered_at is no whole millisecond: {row}")
    try:
        return {"key": order_key(row["customer_id"]), "value": _serialize()(row)}
    except Exception as error:
        raise RecordFormatError(f"this is no order: {row}: {error!r}") from error


def _read(value: bytes | None) -> _Fields:
    fields = _deserialize()(value)
    if fields is None:  # the deserializer passes a tombstone through, orders have none
        raise ValueError("no value")
    return fields


def _problem(value: bytes | None, error: Exception) -> str:
    """Say what is wrong with a value that could not be read."""
    if value is None:
        return "no value (a tombstone); an order was expected"
    begin = f"the value begins with {value[:8].hex(' ')}" if value else "the value is empty"
    if len(value) <= _PREFIX_BYTES:
        return f"{len(value)} bytes are too few for magic byte, schema id and order; {begin}"
    if value[0] != 0:
        return f"magic byte {value[0]} instead of 0, so not Confluent wire format; {begin}"
    schema_id = int.from_bytes(value[1:_PREFIX_BYTES], "big")
    if schema_id != ORDER_SCHEMA_ID:
        return f"unknown schema id {schema_id}, orders have {ORDER_SCHEMA_ID}; {begin}"
    return f"the {len(value) - _PREFIX_BYTES} bytes after the schema id are no order: {error!r}"


class _Place(TypedDict, total=False):
    topic: str
    partition: int
    offset: int


def _place(batch: pa.RecordBatch, *, row: int) -> _Place:
    """Find where in Kafka a row of a batch comes from, as far as the batch has the columns."""
    names = [name for name in ("topic", "partition", "offset") if name in batch.schema.names]
    return cast("_Place", {name: batch.column(name)[row].as_py() for name in names})


@cache
def _schema() -> Schema:
    text = resources.files(__package__).joinpath("order.avsc").read_text(encoding="utf-8")
    return Schema(text, "AVRO")


@cache
def _registry() -> SchemaRegistryClient:
    """Return this process's registry, with the order schema registered first."""
    client = SchemaRegistryClient.new_client({"url": "mock://orders"})
    schema_id = client.register_schema(_SUBJECT, _schema())
    if schema_id != ORDER_SCHEMA_ID:
        raise RuntimeError(
            f"the mock registry gave the order schema the id {schema_id}, "
            f"other processes read and write it as {ORDER_SCHEMA_ID}"
        )
    return client


@cache
def _serialize() -> Callable[[dict[str, object]], bytes]:
    serializer = AvroSerializer(
        _registry(),
        _schema(),
        conf={
            "auto.register.schemas": False,
            "subject.name.strategy": record_subject_name_strategy,
        },
    )
    return cast("Callable[[dict[str, object]], bytes]", serializer)


@cache
def _deserialize() -> Callable[[bytes | None], _Fields | None]:
    # Called without a SerializationContext: with one, it looks for newer versions of the
    # subject at each record, which an in-memory registry cannot have, at half the speed.
    deserializer = AvroDeserializer(_registry(), _schema())
    return cast("Callable[[bytes | None], _Fields | None]", deserializer)
