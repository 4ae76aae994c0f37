"""What is decoded of records, with the records and without them: against what they were made of."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from savepoints.sources.events.events import (
    RAW_SCHEMA,
    Decoding,
    contents,
    events,
    without_records,
)
from savepoints.spark import private_api
from tests.sources.json_input import DECODING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark

NOW = datetime(2026, 11, 20, tzinfo=UTC)
# Customer, and the id of the order; what has none is no order.
ORDERS = [("ann", "1"), (None, "2"), ("bob", "3"), ("ann", "4")]


@pytest.fixture
def records(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """Give records in a file, which a plan reads as often as it names them."""
    rows = [
        (None, _value(customer, order), "orders", 0, offset, NOW, 0, None)
        for offset, (customer, order) in enumerate(ORDERS)
    ]
    spark.createDataFrame(rows, RAW_SCHEMA).write.parquet(str(tmp_path / "records"))
    return spark.read.parquet(str(tmp_path / "records"))


def _value(customer: str | None, order: str) -> bytes:
    return json.dumps({"id": order, "customer": customer, "at": NOW.isoformat()}).encode()


def test_each_record_is_there_with_its_event_or_without_one(records: DataFrame) -> None:
    found = events(records, DECODING).orderBy("offset").collect()

    assert [(one.entity, one.event_id) for one in found] == [
        ("ann", "1"), (None, None), ("bob", "3"), ("ann", "4")
    ]  # fmt: skip
    assert [bytes(one.value) for one in found] == [_value(*one) for one in ORDERS]


def test_trap_the_texts_of_ids_and_entities_are_the_same_in_all_sessions(
    spark: SparkSession, tmp_path: Path
) -> None:
    """In New York both times are half past one, and a cast without ANSI writes 1E-7."""
    rows = [
        (None, b"", "orders", 0, 0, datetime(2026, 11, 1, 5, 30, tzinfo=UTC), 0, None),
        (None, b"", "orders", 0, 1, datetime(2026, 11, 1, 6, 30, tzinfo=UTC), 0, None),
    ]
    spark.createDataFrame(rows, RAW_SCHEMA).write.parquet(str(tmp_path / "records"))

    def texts(zone: str, ansi: str) -> list[Row]:
        theirs = spark.newSession()
        theirs.conf.set("spark.sql.session.timeZone", zone)
        theirs.conf.set("spark.sql.ansi.enabled", ansi)
        read = theirs.read.parquet(str(tmp_path / "records"))
        small = "CAST(offset + 1 AS DECIMAL(20, 0)) * CAST('0.0000001' AS DECIMAL(8, 7)) AS `a b`"
        found = []
        for name in ("timestamp", "a b"):
            decoding = Decoding(lambda one: one.selectExpr("*", small), "a b", "timestamp", (name,))
            found += without_records(read, decoding).orderBy("offset").collect()
        return found

    found = texts("UTC", "true")

    assert [(one.entity, one.event_id) for one in found] == [
        ("0.0000001", '{"timestamp":"2026-11-01T05:30:00.000000Z"}'),
        ("0.0000002", '{"timestamp":"2026-11-01T06:30:00.000000Z"}'),
        ("0.0000001", "0.0000001"),
        ("0.0000002", "0.0000002"),
    ]
    assert texts("America/New_York", "false") == found


def test_trap_an_event_without_a_time_that_is_its_id_has_no_id(records: DataFrame) -> None:
    """JSON of a null is text, and all such events would be one."""

    def without_time(given: DataFrame) -> DataFrame:
        return DECODING.decode(given).selectExpr("*", "CAST(NULL AS TIMESTAMP) AS never")

    never = dataclasses.replace(DECODING, decode=without_time, event_id=("never",))
    assert {one.event_id for one in without_records(records, never).collect()} == {None}


def test_without_records_there_are_the_events_alone_and_the_source_is_read_once(
    records: DataFrame,
) -> None:
    found = without_records(records, DECODING)

    assert {(one.offset, one.entity, one.event_id) for one in found.collect()} == {
        (0, "ann", "1"), (2, "bob", "3"), (3, "ann", "4")
    }  # fmt: skip
    assert _reads(found) == 1
    assert _reads(events(records, DECODING)) == 2


def _reads(frame: DataFrame) -> int:
    return int(private_api.optimized_plan(frame).collectLeaves().size())


def test_trap_a_column_of_the_program_is_called_as_one_of_the_record(records: DataFrame) -> None:
    """A change of it was taken for nothing; what the record says besides its event is nothing."""

    def of_the_first(decode: Callable[[DataFrame], DataFrame]) -> str:
        found = contents(records, dataclasses.replace(DECODING, decode=decode))
        (row,) = found.where("event_id = '1'").collect()
        return str(row.content)

    def content(amount: int) -> str:
        def decode(raw: DataFrame) -> DataFrame:
            return DECODING.decode(raw.select("*")).selectExpr(
                "*", f"{amount} AS value", "at + INTERVAL 1 HOUR AS timestamp"
            )

        return of_the_first(decode)

    def as_it_is(raw: DataFrame) -> DataFrame:
        return DECODING.decode(raw).join(raw.select("offset", "timestamp", "value"), "offset")

    changed = json.loads(content(8))
    assert (changed["value"], changed["timestamp"][:13]) == (8, "2026-11-20T01")
    said = json.loads(of_the_first(as_it_is))
    assert (said["customer"], said["value"], said["timestamp"]) == ("ann", None, None)
