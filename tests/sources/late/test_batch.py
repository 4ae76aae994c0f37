"""Late batches: files or tables, records or events; bad rows are refused or set aside."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyarrow import parquet

from savepoints.errors import IncompatibleError, LateBatchError, UsageError
from savepoints.io import Location
from savepoints.sources.events.events import Decoding
from savepoints.sources.events.events import events as events_of
from savepoints.sources.late import batch as late_batch
from savepoints.sources.late.batch import KnownOtherwise, LateBatch, LateInput
from tests.e2e.pages import blocks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.drawn(8)

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
FIELDS = "order_id string, client string, at timestamp, cents bigint"


def decode(records: DataFrame) -> DataFrame:
    """Read JSON values; one that is no order is left out, as applications do."""
    from pyspark.sql import functions as F

    parsed = records.select(
        "topic",
        "partition",
        "offset",
        F.from_json(F.col("value").cast("string"), FIELDS).alias("o"),
    )
    return parsed.where("o.cents IS NOT NULL OR o.client IS NOT NULL").select(
        "topic", "partition", "offset", "o.*"
    )


def encode(orders: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    value = F.to_json(F.struct("order_id", "client", "at", "cents"))
    return orders.select(
        F.encode("client", "UTF-8").alias("key"), F.encode(value, "UTF-8").alias("value")
    )


ORDERS = LateInput("orders", "shop", Decoding(decode, "client", "at", ("order_id",)), encode)


def order(number: int, **other: Any) -> dict[str, Any]:
    at = NOON - timedelta(hours=number)
    return {
        "order_id": f"o{number}",
        "client": f"c{number % 2}",
        "at": at,
        "cents": number,
        **other,
    }


def table(orders: Sequence[Mapping[str, Any]]) -> pa.Table:
    text: pa.DataType = pa.string()
    schema = pa.schema(
        [
            ("order_id", text),
            ("client", text),
            ("at", pa.timestamp("us", tz="UTC")),
            ("cents", pa.int64()),
        ]
    )
    ops = [one.get("op") for one in orders]
    made = pa.Table.from_pylist([*orders], schema)
    return made.append_column("op", pa.array(ops, pa.string())) if any(ops) else made


def in_parquet(path: Path, orders: Sequence[Mapping[str, Any]]) -> str:
    parquet.write_table(table(orders), path)
    return str(path)


def as_text(one: Mapping[str, Any]) -> str:
    return json.dumps({**one, "at": one["at"].isoformat() if one["at"] else None})


def taken(
    spark: SparkSession, batch: str, tmp_path: Path, source: LateInput = ORDERS, **more: Any
) -> LateBatch:
    place = Location.of(str(tmp_path / f"place{len(list(tmp_path.iterdir()))}"))
    return late_batch.read(spark, batch, source, place, at=NOON, **more)


def orders_of(batch: LateBatch) -> list[tuple[Any, ...]]:
    found = batch.events.select("op", "event_id", "entity", "event_time").collect()
    return sorted((*one[:3], one[3].astimezone(UTC)) for one in found)


def expected(orders: Sequence[Mapping[str, Any]], op: str = "insert") -> list[tuple[Any, ...]]:
    return sorted((op, one["order_id"], one["client"], one["at"]) for one in orders)


@pytest.mark.spark
def test_only_what_is_from_before_a_time_is_looked_at(spark: SparkSession, tmp_path: Path) -> None:
    """What is left out may be bad, and counts neither in the hash nor as an event."""
    orders = [order(number) for number in range(1, 5)]
    future = order(9, at=NOON + timedelta(hours=1))
    both = in_parquet(tmp_path / "both.parquet", [*orders, future])
    before = orders[1]["at"]

    found = taken(spark, both, tmp_path, before=before)

    assert (found.left_out, found.rows) == (3, 2)
    assert orders_of(found) == expected(orders[2:])
    alone = taken(spark, in_parquet(tmp_path / "alone.parquet", orders[2:]), tmp_path)
    assert (alone.left_out, alone.content_hash) == (0, found.content_hash)
    with pytest.raises(LateBatchError):
        taken(spark, in_parquet(tmp_path / "null.parquet", [order(1, at=None)]), tmp_path,
              before=before)  # fmt: skip


@pytest.mark.spark
def test_the_files_in_the_documents_mean_what_they_say(spark: SparkSession, tmp_path: Path) -> None:
    """Two ways of writing a moment; an id that is known is left out, unless it is replaced."""
    moment = datetime(2026, 11, 20, 10, 15, tzinfo=UTC)
    late, replacing = (block.replace("customer", "client") for block in blocks("merging.md", "csv"))
    (tmp_path / "late.csv").write_text(late)
    (tmp_path / "replacing.csv").write_text(replacing)
    (tmp_path / "changed.csv").write_text(late.replace("1250", "1520"))

    known, changed, corrected = (
        taken(spark, str(tmp_path / f"{name}.csv"), tmp_path)
        for name in ("late", "changed", "replacing")
    )

    assert orders_of(known) == [
        ("insert", "o-1041", "c-7", moment), ("insert", "o-1042", "c-9", moment),
    ]  # fmt: skip
    seen = known.events.drop("op")
    assert late_batch.unknown(changed.events, seen).count() == 0
    left = late_batch.unknown(corrected.events, seen).select("op", "event_id").collect()
    assert sorted(map(tuple, left)) == [("insert", "o-1041"), ("remove", "o-1041")]


@pytest.mark.spark
def test_files_and_tables_of_events_and_of_records_give_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also in another order, with a row twice: the same content, so the same hash."""
    orders = [order(number) for number in range(1, 5)]
    stored = in_parquet(tmp_path / "events.parquet", orders)
    texts = [*map(as_text, orders)]
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "one.json").write_text("\n".join([*reversed(texts), texts[0]]))
    lines = [f"{o['cents']},{o['at'].isoformat()},{o['client']},{o['order_id']}" for o in orders]
    (tmp_path / "events.csv").write_text("\n".join(["cents,at,client,order_id", *lines]))
    write_deltalake(tmp_path / "delta", table(orders[2:]))
    write_deltalake(tmp_path / "delta", table(orders[:2]), mode="append")

    found = [
        taken(spark, stored, tmp_path),
        taken(spark, str(tmp_path / "lines"), tmp_path),
        taken(spark, str(tmp_path / "delta"), tmp_path),
        taken(spark, str(tmp_path / "*.csv"), tmp_path),
    ]

    assert [orders_of(one) for one in found] == [expected(orders)] * 4
    assert len({one.content_hash for one in found}) == 1
    assert [one.doubled for one in found] == [0, 1, 0, 0]
    assert {one.rows for one in found} == {4}
    assert (found[0].first_event_time, found[0].last_event_time) == (
        orders[3]["at"],
        orders[0]["at"],
    )
    places = found[0].events.select("topic", "partition", "offset", "timestamp").collect()
    assert {(one[0], one[1]) for one in places} == {("shop", -1)}
    assert len({one[2] for one in places}) == 4


@pytest.mark.spark
def test_records_are_taken_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    orders = [order(1), order(2)]
    values = [as_text(one).encode() for one in orders]
    parquet.write_table(pa.table({"value": values, "note": ["x", "y"]}), tmp_path / "raw.parquet")
    lines = [json.dumps({"key": "k", "value": as_text(one)}) for one in orders]
    (tmp_path / "raw.json").write_text("\n".join(lines))

    found = [taken(spark, str(tmp_path / f"raw.{kind}"), tmp_path) for kind in ("parquet", "json")]

    assert [orders_of(one) for one in found] == [expected(orders)] * 2
    assert found[0].ignored == ("note",)
    assert found[0].content_hash == found[1].content_hash
    assert sorted(bytes(one[0]) for one in found[1].events.select("value").collect()) == sorted(
        values
    )
    assert {bytes(one[0]) for one in found[1].events.select("key").collect()} == {b"k"}


BAD = [
    order(10, client=None),
    order(11, at=None),
    order(12, order_id=None),
    order(13, at=NOON + timedelta(days=1)),
    order(14, op="delete"),
    order(15, cents=1),
    order(15, cents=2),
]


@pytest.mark.spark
def test_bad_rows_refuse_the_whole_batch_or_are_set_aside(
    spark: SparkSession, tmp_path: Path
) -> None:
    good = [order(number) for number in range(1, 4)]
    lines = [*map(as_text, [*good, *BAD]), "{ no json", '{"order_id": "o16", "cents": "many"}']
    (tmp_path / "batch.json").write_text("\n".join(lines))
    batch, aside = str(tmp_path / "batch.json"), tmp_path / "aside"

    with pytest.raises(
        LateBatchError, match=r"has 9 rows that cannot be merged: .*\(2\)"
    ) as refused:
        taken(spark, batch, tmp_path, clock=lambda: NOON)
    assert not aside.exists()
    found = taken(spark, batch, tmp_path, clock=lambda: NOON, quarantine=Location.of(str(aside)))

    counted = {one.reason: one.rows for one in found.rejected}
    assert counted == {
        "not readable": 2,
        "different events with the same id": 2,
        "no entity": 1,
        "no event time": 1,
        "no event id": 1,
        "op is not one of insert, remove, replace": 1,
        "later than the position of the live query, 2026-11-22T12:00:00.000Z": 1,
    }
    assert refused.value.details["rejected"] == [vars(one) for one in found.rejected]
    assert orders_of(found) == expected(good)
    clean = in_parquet(tmp_path / "clean.parquet", good)
    assert found.content_hash == taken(spark, clean, tmp_path).content_hash
    rows = parquet.read_table(aside).to_pylist()
    assert sorted(one["reason"] for one in rows) == sorted(
        reason for reason, count in counted.items() for _ in range(count)
    )
    assert any("{ no json" in one["row"] for one in rows)


@pytest.mark.spark
def test_values_that_decode_leaves_out_and_those_on_which_it_fails(
    spark: SparkSession, tmp_path: Path
) -> None:
    values = [as_text(order(1)).encode(), b"garbage"]
    parquet.write_table(pa.table({"value": values}), tmp_path / "raw.parquet")

    with pytest.raises(LateBatchError, match=r"dropped by decode \(1\)"):
        taken(spark, str(tmp_path / "raw.parquet"), tmp_path)

    def failing(records: DataFrame) -> DataFrame:
        return decode(records.where("raise_error('value 7 is no order') IS NULL"))

    broken = LateInput("orders", "shop", Decoding(failing, "client", "at", ("order_id",)))
    with pytest.raises(
        IncompatibleError, match=r"(?s)the batch could not be decoded.*value 7 is no order"
    ):
        taken(spark, str(tmp_path / "raw.parquet"), tmp_path, broken)


@pytest.mark.spark
def test_trap_encode_by_to_json_cuts_times_to_milliseconds(
    spark: SparkSession, tmp_path: Path
) -> None:
    """So windows got events that belong to others, and nobody could see it."""
    exact = in_parquet(tmp_path / "a.parquet", [order(1, at=NOON + timedelta(milliseconds=123))])
    finer = in_parquet(tmp_path / "b.parquet", [order(1, at=NOON + timedelta(microseconds=123))])

    assert taken(spark, exact, tmp_path).rows == 1
    with pytest.raises(IncompatibleError, match=r"encode of the input orders changes .*00\.000000"):
        taken(spark, finer, tmp_path)


@pytest.mark.spark
def test_trap_the_format_of_the_hint_cut_the_seconds_of_old_offsets(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Before 1893 Berlin was 53 minutes and 28 seconds ahead of UTC."""
    from pyspark.sql import functions as F

    berlin = spark.newSession()
    berlin.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    old = order(1, at=datetime(1892, 7, 1, 12, 0, 0, 1, tzinfo=UTC))
    batch = in_parquet(tmp_path / "old.parquet", [old])
    with pytest.raises(IncompatibleError) as refused:
        taken(berlin, batch, tmp_path)
    exact = json.loads(refused.value.hint.partition("without ")[2])

    def encode_exactly(orders: DataFrame) -> DataFrame:
        value = F.to_json(F.struct("order_id", "client", "at", "cents"), exact)
        return orders.select(
            F.encode("client", "UTF-8").alias("key"), F.encode(value, "UTF-8").alias("value")
        )

    read = taken(berlin, batch, tmp_path, replace(ORDERS, encode=encode_exactly))

    assert orders_of(read) == expected([old])


@pytest.mark.spark
def test_a_batch_of_another_schema_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"order_id": ["o1"], "client": ["c"]}), tmp_path / "few.parquet")
    wrong = table([order(1)]).set_column(3, "cents", pa.array(["1"]))
    parquet.write_table(wrong, tmp_path / "wrong.parquet")
    whole = in_parquet(tmp_path / "whole.parquet", [order(1)])

    with pytest.raises(IncompatibleError, match="lacks columns of a decoded event: at, cents"):
        taken(spark, str(tmp_path / "few.parquet"), tmp_path)
    with pytest.raises(IncompatibleError, match="cents is string, not bigint"):
        taken(spark, str(tmp_path / "wrong.parquet"), tmp_path)
    with pytest.raises(UsageError, match="does not define how to encode them"):
        taken(spark, whole, tmp_path, LateInput(ORDERS.name, ORDERS.topic, ORDERS.decoding))


@pytest.mark.spark
def test_corrections_remove_and_replace(spark: SparkSession, tmp_path: Path) -> None:
    """An event that is known is no new one, unless the same batch takes the known one away."""
    orders = [order(1), order(2, op="remove"), order(3, op="replace"), order(4, op="insert")]
    batch = in_parquet(tmp_path / "corrections.parquet", orders)

    found = taken(spark, batch, tmp_path)

    assert found.rows == 4
    assert orders_of(found) == sorted(
        [
            *expected([order(1), order(3), order(4)]),
            *expected([order(2), order(3)], "remove"),
        ]
    )
    numbers = [one[0] for one in found.events.select("offset").collect()]
    assert len(set(numbers)) == len(numbers) == 5
    known = in_parquet(tmp_path / "known.parquet", [order(1, cents=99), order(2), order(3)])
    left = late_batch.unknown(found.events, taken(spark, known, tmp_path).events.drop("op"))
    assert sorted((one["op"], one["event_id"]) for one in left.collect()) == [
        ("insert", "o3"), ("insert", "o4"), ("remove", "o2"), ("remove", "o3")]  # fmt: skip


def as_record(one: Mapping[str, Any], offset: int, **other: Any) -> dict[str, Any]:
    """Return an order as a topic may have it: the same, in other bytes."""
    text = json.dumps({"source": "shop", **one, "at": one["at"].isoformat()})
    return {"value": text.encode(), "topic": "shop", "partition": 0, "offset": offset, **other}


@pytest.mark.spark
def test_trap_a_known_event_with_other_content_is_left_out_and_nobody_hears_of_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    orders = [order(1), order(2, cents=99), order(3, cents=99), order(4), order(5, op="replace")]
    batch = taken(spark, in_parquet(tmp_path / "batch.parquet", orders), tmp_path).events
    topic = [order(1), order(2), order(2), order(3), order(3, cents=99), order(5, cents=99)]
    records = spark.createDataFrame(
        [as_record(one, number) for number, one in enumerate(topic)],
        "value binary, topic string, partition int, offset bigint",
    )
    known = events_of(
        records.selectExpr(
            "cast(null as binary) as key", "*", "timestamp '2026-11-22T12:00:00Z' as timestamp",
            "0 as timestampType",
            "cast(null as array<struct<key: string, value: binary>>) as headers",
        ),
        ORDERS.decoding,
    )  # fmt: skip

    found = late_batch.known_otherwise(batch, known, ORDERS.decoding)

    assert found == KnownOtherwise(1, "o2", None)
    moved = taken(
        spark, in_parquet(tmp_path / "moved.parquet", [order(1, client="c7"), order(2)]), tmp_path
    )
    found = late_batch.known_otherwise(moved.events, known, ORDERS.decoding)
    assert found == KnownOtherwise(1, "o1", "o1")
