"""State rows as JSON, on values that a person's state may hold; Spark only, no savepoints."""

from __future__ import annotations

import base64
import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from savepoints.errors import UsageError
from savepoints.state.typed import to_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.drawn(3)]

SCHEMA = """
    whole long, real double, exact decimal(38,18), day date, moment timestamp,
    local timestamp_ntz, raw binary, flag boolean, text string, nothing long,
    names map<string,decimal(3,1)>, numbers map<int,string>,
    structs map<struct<a:int>,map<string,binary>>, list array<struct<d:decimal(3,1)>>,
    inner struct<when:timestamp,gone:struct<a:decimal(3,1)>>
"""
EXACT = Decimal("12345678901234567890.123456789012345678")
MOMENT = dt.datetime(2026, 11, 20, 10, 30, 0, 123456, dt.timezone(dt.timedelta(hours=2)))


def test_nothing_is_lost_in_json(spark: SparkSession) -> None:
    row = (
        2**63 - 1,
        0.1,
        EXACT,
        dt.date(2026, 2, 3),
        MOMENT,
        MOMENT.replace(microsecond=5, tzinfo=None),
        b"\x00\xff",
        True,
        'a "b"\n:smile:',
        None,
        {"x": Decimal("1.5")},
        {7: "seven"},
        {(1,): {"x": b"\x01"}},
        [(Decimal("2.5"),), (None,), None],
        (MOMENT, None),
    )

    (line,) = to_json.json_lines(spark.createDataFrame([row], SCHEMA), 9)

    assert json.loads(line) == {
        "whole": 2**63 - 1,
        "real": 0.1,
        "exact": str(EXACT),
        "day": "2026-02-03",
        "moment": "2026-11-20T08:30:00.123456Z",
        "local": "2026-11-20T10:30:00.000005",
        "raw": base64.b64encode(b"\x00\xff").decode(),
        "flag": True,
        "text": 'a "b"\n:smile:',
        "nothing": None,
        "names": {"x": "1.5"},
        "numbers": [{"key": 7, "value": "seven"}],
        "structs": [{"key": {"a": 1}, "value": {"x": base64.b64encode(b"\x01").decode()}}],
        "list": [{"d": "2.5"}, {"d": None}, None],
        "inner": {"when": "2026-11-20T08:30:00.123456Z", "gone": None},
    }


def test_the_time_zone_of_the_session_does_not_matter(spark: SparkSession) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    frame = own.createDataFrame([(MOMENT,)], "at timestamp")

    assert to_json.json_lines(frame, 1) == ['{"at":"2026-11-20T08:30:00.123456Z"}']


def test_numbers_that_are_none_are_json_all_the_same(spark: SparkSession) -> None:
    frame = spark.sql("SELECT double('NaN') a, double('-Infinity') b, float(0.1) c")

    assert json.loads(to_json.json_lines(frame, 1)[0]) == {"a": "NaN", "b": "-Infinity", "c": 0.1}


def test_columns_are_named_by_their_paths(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "key struct<a:struct<b:int>,c:map<string,int>>, n long")

    assert to_json.columns(frame) == ["key.a.b", "key.c", "n"]


@pytest.mark.parametrize(
    ("field", "text", "found"),
    [
        ("n", "2", 1),
        ("n", " 2 ", 1),
        ("d", "2.50", 1),
        ("t", "2026-11-20T08:30:00.123456Z", 1),
        ("t", "2026-11-20 10:30:00.123456+02:00", 1),
        ("s", "", 1),
        ("w.a b", "true", 1),
        ("n", "3", 0),
    ],
)
def test_a_key_is_read_as_the_type_of_its_field(
    field: str, text: str, found: int, spark: SparkSession
) -> None:
    row: tuple[Any, ...] = ((2, Decimal("2.5"), MOMENT, "", (True,)),)
    schema = "key struct<n:int,d:decimal(9,3),t:timestamp,s:string,w:struct<`a b`:boolean>>"
    frame = spark.createDataFrame([row, (None,)], schema)

    assert to_json.with_key(frame, {field: text}).count() == found


@pytest.mark.parametrize(
    ("kind", "text", "taken"),
    [
        ("decimal(9,2)", "2.50", True),
        ("decimal(9,2)", "25e-1", True),
        ("decimal(9,2)", "2.501", False),
        ("date", "2026-1-05", True),
        ("date", "2026-11", False),
        ("date", "2026-11-20T23:00:00", False),
        ("timestamp", "2026-11-20T08:30:00.123456Z", True),
        ("timestamp", "2026-11-20T08:30:00.1234567Z", False),
        ("double", "0.12345678", True),
    ],
)
def test_trap_spark_rounds_text_and_makes_up_what_it_lacks(
    kind: str, text: str, taken: bool, spark: SparkSession
) -> None:
    frame = spark.createDataFrame([], f"key struct<x:{kind}>")

    if taken:
        to_json.with_key(frame, {"x": text})
        return
    with pytest.raises(UsageError, match="is not a valid"):
        to_json.with_key(frame, {"x": text})


def test_trap_a_binary_key_is_found_as_it_is_shown(spark: SparkSession) -> None:
    """Spark's cast takes a text for its own bytes, so that what the rows show was not found."""
    rows: list[Any] = [((b"\x00\xff",),), ((b"AP8=",),), ((b"",),)]
    frame = spark.createDataFrame(rows, "key struct<b:binary>")

    for line in map(json.loads, to_json.json_lines(frame, 3)):
        (found,) = to_json.json_lines(to_json.with_key(frame, line["key"]), 3)
        assert json.loads(found) == line
    with pytest.raises(UsageError, match="not a binary value in base64") as refused:
        to_json.with_key(frame, {"b": "AP8"})
    assert to_json.where(frame, "key.b = binary('AP8=')").count() == 1
    assert "binary('TEXT')" in refused.value.hint


def test_a_list_cannot_be_written_on_the_command_line(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "key struct<l:array<int>>")

    with pytest.raises(UsageError, match="is not a valid array<int>"):
        to_json.with_key(frame, {"l": "[1]"})
