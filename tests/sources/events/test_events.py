"""What is decoded of records, with the records and without them: against what they were made of."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest

from savepoints.sources.events.events import RAW_SCHEMA, contents, events, without_records
from savepoints.spark import private_api
from tests.sources.json_input import DECODING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NOW = datetime(2026, 11, 20, tzinfo=timezone.utc)
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
