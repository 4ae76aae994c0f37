"""The record format against fastavro and against other processes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark_jobs.orders
from spark_jobs.orders import codec
from spark_jobs.orders.cdnow import Order
from spark_jobs.orders.codec import (
    ORDER_EVENT_DDL,
    ORDER_SCHEMA_DDL,
    ORDER_SCHEMA_ID,
    RecordFormatError,
    decode_order,
    decode_order_events,
    decode_orders,
    encode_order,
    encode_orders,
)

PREFIX = b"\x00\x00\x00\x00\x01"
ORDER = Order(
    order_id="o-000012",
    customer_id=4,
    ordered_at=datetime(1997, 1, 18, 3, 4, 5, 678_000, tzinfo=UTC),
    quantity=2,
    amount_cents=2973,
)
ORDER_VALUE = (
    PREFIX + b"\x10o-000012"  # length 8; all numbers are zigzag
    b"\x08"  # customer 4
    b"\xdc\xbc\x86\xbf\xd7\x31"  # 853,556,645,678 ms after 1970
    b"\x04"  # 2 items
    b"\xba\x2e"  # 2,973 cents
)
SCHEMA = fastavro.parse_schema(
    json.loads(Path(spark_jobs.orders.__path__[0], "order.avsc").read_text(encoding="utf-8"))
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
longs = st.integers(-(2**63), 2**63 - 1)
orders = st.builds(
    Order,
    order_id=st.text(),
    customer_id=longs,
    ordered_at=st.integers(0, 4_102_444_800_000).map(lambda ms: EPOCH + timedelta(milliseconds=ms)),
    quantity=st.integers(-(2**31), 2**31 - 1),
    amount_cents=longs,
)


KAFKA_FIELDS: list[tuple[str, pa.DataType]] = [
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
]


def kafka_batch(*values: bytes | None, first_offset: int = 0) -> pa.RecordBatch:
    """Records as Spark's Kafka source gives them, with the columns that the codec may use."""
    return pa.RecordBatch.from_pylist(
        [
            {"value": value, "topic": "orders", "partition": 3, "offset": first_offset + row}
            for row, value in enumerate(values)
        ],
        schema=pa.schema(KAFKA_FIELDS),
    )


def test_a_known_order_has_the_bytes_that_the_formats_prescribe() -> None:
    assert encode_order(ORDER) == ORDER_VALUE
    assert decode_order(ORDER_VALUE) == ORDER


@given(orders)
def test_what_is_written_is_read_back(order: Order) -> None:
    assert decode_order(encode_order(order)) == order


@given(orders)
def test_a_value_is_the_prefix_and_what_fastavro_writes(order: Order) -> None:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, SCHEMA, vars(order))
    assert encode_order(order) == PREFIX + body.getvalue()


@given(st.lists(orders, max_size=5))
def test_a_batch_is_what_fastavro_reads(several: list[Order]) -> None:
    values = [encode_order(order) for order in several]
    truth = [fastavro.schemaless_reader(io.BytesIO(value[5:]), SCHEMA, SCHEMA) for value in values]
    (batch,) = decode_orders(iter([kafka_batch(*values)]))
    assert batch.to_pylist() == truth


def test_batches_stay_batches_and_rows_keep_their_order() -> None:
    values = [encode_order(Order(**{**vars(ORDER), "quantity": n})) for n in range(5)]
    batches = [kafka_batch(*values[:3]), kafka_batch(), kafka_batch(*values[3:])]
    read = list(decode_orders(iter(batches)))
    assert [batch.column("quantity").to_pylist() for batch in read] == [[0, 1, 2], [], [3, 4]]


def test_the_columns_are_those_of_the_ddl() -> None:
    (batch,) = decode_orders(iter([kafka_batch(encode_order(ORDER))]))
    names = {
        "int64": "long",
        "string": "string",
        "int32": "int",
        "timestamp[us, tz=UTC]": "timestamp",
    }
    columns = [f"{field.name} {names[str(field.type)]}" for field in batch.schema]
    assert ", ".join(columns) == ORDER_SCHEMA_DDL

    (events,) = decode_order_events(iter([kafka_batch(encode_order(ORDER), first_offset=7)]))
    columns = [f"{field.name} {names[str(field.type)]}" for field in events.schema]
    assert ", ".join(columns) == ORDER_EVENT_DDL
    assert events.select(batch.schema.names).equals(batch)
    assert events.select(["topic", "partition", "offset"]).to_pylist() == [
        {"topic": "orders", "partition": 3, "offset": 7}
    ]


@given(st.lists(orders, min_size=1, max_size=5))
def test_decoded_orders_become_the_records_that_the_producer_writes(several: list[Order]) -> None:
    values = [encode_order(order) for order in several]
    records = list(encode_orders(decode_order_events(iter([kafka_batch(*values)]))))
    assert [batch.to_pylist() for batch in records] == [
        [
            {"key": str(order.customer_id).encode(), "value": value}
            for order, value in zip(several, values, strict=True)
        ]
    ]


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("amount_cents", None, "without a value"),
        ("order_id", 7, "no order"),
        ("ordered_at", ORDER.ordered_at.replace(microsecond=678_001), "no whole millisecond"),
    ],
)
def test_what_is_not_an_order_is_not_written(column: str, value: object, says: str) -> None:
    batch = pa.RecordBatch.from_pylist([{**vars(ORDER), column: value}])
    with pytest.raises(RecordFormatError, match=says):
        list(encode_orders(iter([batch])))


def test_the_value_alone_is_enough() -> None:
    (batch,) = decode_orders(iter([pa.record_batch({"value": pa.array([encode_order(ORDER)])})]))
    assert batch.num_rows == 1


def test_another_process_writes_the_same_bytes_and_reads_ours() -> None:
    program = (
        "import sys; from spark_jobs.orders.codec import decode_order, encode_order;"
        "value = bytes.fromhex(sys.argv[1]);"
        "print(encode_order(decode_order(value)).hex())"
    )
    value = encode_order(ORDER).hex()
    root = Path(spark_jobs.orders.__path__[0]).parents[1]
    ran = subprocess.run(
        [sys.executable, "-c", program, value], capture_output=True, text=True, check=True, cwd=root
    )
    assert ran.stdout.strip() == value
    assert bytes.fromhex(value)[:5] == PREFIX
    assert ORDER_SCHEMA_ID == 1


def test_the_deserializer_is_made_once_in_a_process() -> None:
    batches = [kafka_batch(encode_order(ORDER))] * 3
    codec._deserialize.cache_clear()
    list(decode_orders(iter(batches)))
    list(decode_orders(iter(batches)))
    assert codec._deserialize.cache_info().misses == 1


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b'{"order_id": 1}', "magic byte 123 instead of 0.* begins with 7b 22 6f"),
        (b"\x01" + bytes(range(16)) + ORDER_VALUE[5:], "magic byte 1 instead of 0"),
        (b"\x00\x00\x00\x01\x02" + ORDER_VALUE[5:], "unknown schema id 258, orders have 1"),
        (b"", "0 bytes are too few .* the value is empty"),
        (PREFIX, "5 bytes are too few .* 00 00 00 00 01"),
        (ORDER_VALUE[:-1], f"the {len(ORDER_VALUE) - 6} bytes after the schema id are no order"),
        (None, "no value"),
    ],
)
def test_what_is_not_an_order_is_an_error_that_names_value_and_record(
    value: bytes | None, says: str
) -> None:
    with pytest.raises(RecordFormatError, match=f"^topic t partition 2 offset 7: {says}") as one:
        decode_order(value, topic="t", partition=2, offset=7)
    assert (one.value.topic, one.value.partition, one.value.offset) == ("t", 2, 7)

    batch = kafka_batch(ORDER_VALUE, ORDER_VALUE, value, ORDER_VALUE, first_offset=40)
    with pytest.raises(RecordFormatError, match=f"^topic orders partition 3 offset 42: {says}"):
        list(decode_orders(iter([batch])))

    with pytest.raises(RecordFormatError, match=f"^{says}"):
        decode_order(value)
