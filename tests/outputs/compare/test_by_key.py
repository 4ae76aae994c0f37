"""Planted differences are found, each of them and nothing else; what differs is known by planting.

The tables are made row by row of known values, so the truth is what was put in.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from savepoints.errors import FileSinkError, IncompatibleError, UsageError
from savepoints.model import OutputVersion
from savepoints.outputs.compare import by_key, sql_metrics
from tests import draw

pytestmark = [pytest.mark.spark, pytest.mark.drawn(8)]

ROWS = 20_000
MOMENT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
Row = dict[str, Any]


def schema_of(types: Mapping[str, Any]) -> pa.Schema:
    return pa.schema(dict(types))


SCHEMA = schema_of(
    {
        "customer": pa.int64(),
        "day": pa.date32(),
        "amount": pa.decimal128(12, 2),
        "rate": pa.float64(),
        "at": pa.timestamp("us", tz="UTC"),
        "name": pa.string(),
        "tags": pa.map_(pa.string(), pa.int32()),
        "items": pa.list_(pa.struct([("n", pa.int32())])),
        "big": pa.int64(),
    }
)
KEY = ("customer", "day")


def row(customer: int) -> Row:
    """Make the row of a customer; some have null and NaN in both tables."""
    return {
        "customer": customer,
        "day": dt.date(2026, 1, 1) + dt.timedelta(days=customer % 28),
        "amount": None if customer % 1000 == 3 else Decimal(customer) / 100,
        "rate": math.nan if customer % 1000 == 4 else customer / 7,
        "at": MOMENT + dt.timedelta(seconds=customer),
        "name": f"customer {customer}",
        "tags": [("a", customer % 5), ("b", 1)],
        "items": [{"n": customer % 3}, {"n": None}],
        "big": 2**62 + customer,
    }


def table(place: Path, name: str, rows: Iterable[Row], schema: pa.Schema = SCHEMA) -> OutputVersion:
    """Write a table and pin its version 0."""
    uri = str(place / name)
    write_deltalake(uri, pa.Table.from_pylist(list(rows), schema=schema))
    return pinned(uri, 0)


def pinned(uri: str, version: int) -> OutputVersion:
    return OutputVersion("totals", uri, "", version, "", None)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def baseline(place: Path) -> OutputVersion:
    return table(place, "baseline", map(row, range(ROWS)))


@pytest.mark.nightly
def test_identical_tables_have_no_difference(
    spark: SparkSession, place: Path, baseline: OutputVersion
) -> None:
    """Other files, other order, entries of maps turned round, null, NaN: none is a difference."""
    rows = [{**one, "tags": one["tags"][::-1]} for one in map(row, range(ROWS))]
    same = table(place, "same", reversed(rows))
    for key in (KEY, ()):
        found = by_key.compare_outputs(spark, baseline, same, key=key)
        assert found.different_rows == found.different_columns == 0
        assert (found.equal, found.rows_before, found.rows_after) == (ROWS, ROWS, ROWS)
        assert (found.changes, found.sample) == ((), ())
        assert found.share == 0.0


@pytest.mark.nightly
@pytest.mark.parametrize("key", [("rate",), ()], ids=["by key", "by row"])
def test_zeros_and_nans_are_each_one_in_keys_and_values(
    spark: SparkSession, place: Path, key: tuple[str, ...]
) -> None:
    """As to Spark, which groups and joins them as one; the next number is another."""
    schema = schema_of({"rate": pa.float64(), "each": pa.list_(pa.float32()), "top": pa.float64()})
    name = f"zeros{len(key)}"
    (other_nan,) = struct.unpack("<d", struct.pack("<q", -1))
    tables = [
        table(place, f"{name}-{number}", rows, schema)
        for number, rows in enumerate(
            [
                {"rate": zero, "each": [zero, nan], "top": top},
                {"rate": nan, "each": [], "top": zero},
            ]
            for zero, nan, top in (
                (0.0, math.nan, -0.0),
                (-0.0, other_nan, 0.0),
                (0.0, math.nan, 5e-324),
            )
        )
    ]

    same, other = (by_key.compare_outputs(spark, tables[0], one, key=key) for one in tables[1:])

    assert (same.different_rows, same.equal) == (0, 2)
    assert (other.changed, other.missing, other.extra) == ((1, 0, 0) if key else (0, 1, 1))


@pytest.mark.nightly
def test_each_planted_difference_is_found_among_many_rows(
    spark: SparkSession, place: Path, baseline: OutputVersion
) -> None:
    """One key is missing, one is extra, and one value of each type differs a little."""
    planted: dict[int, Row] = {
        10: {"amount": row(10)["amount"] + Decimal("0.01")},
        11: {"rate": math.nan},
        1004: {"rate": 1.5},
        12: {"rate": math.nextafter(row(12)["rate"], math.inf)},
        13: {"at": row(13)["at"] + dt.timedelta(microseconds=1)},
        14: {"name": None},
        15: {"name": "customer 15 "},
        16: {"tags": [("a", 16 % 5), ("b", 2)]},
        17: {"items": [{"n": 17 % 3}, {"n": 0}]},
        18: {"big": 2**62 + 19},
        19: {"amount": None, "big": 0},
    }
    rows = [{**row(n), **planted.get(n, {})} for n in range(ROWS + 1) if n != ROWS // 2]
    other = table(place, "planted", rows)

    found = by_key.compare_outputs(spark, baseline, other, key=KEY, sample=20)

    assert (found.missing, found.extra, found.changed) == (1, 1, len(planted))
    assert found.equal == ROWS - 1 - len(planted)
    assert {one.column: one.rows for one in found.changes} == {
        "rate": 3, "amount": 2, "name": 2, "big": 2, "at": 1, "tags": 1, "items": 1,
    }  # fmt: skip
    changes = {one.column: one for one in found.changes}
    cent = changes["amount"]
    assert (cent.unit, cent.measured) == ("number", 1), "null has no distance"
    assert (cent.sum, cent.mean, cent.max) == (0.01, 0.01, 0.01)
    assert changes["rate"].measured == 1, "NaN has no distance"
    assert changes["rate"].max == math.nextafter(row(12)["rate"], math.inf) - row(12)["rate"]
    assert (changes["at"].unit, changes["at"].sum) == ("seconds", 1e-6)
    assert (changes["big"].sum, changes["big"].mean) == (float(2**62 + 20), (2**62 + 20) / 2)
    assert (changes["name"].unit, changes["name"].sum) == (None, None)

    by_customer = {one.key["customer"]: one for one in found.sample}
    assert by_customer.keys() == {*planted, ROWS // 2, ROWS}
    shown = by_customer[10]
    assert shown.key == {"customer": 10, "day": "2026-01-11"}
    assert shown.before
    assert shown.after
    assert (shown.before["amount"], shown.after["amount"]) == ("0.10", "0.11")
    assert by_customer[ROWS // 2].difference == "missing"
    assert (by_customer[ROWS].difference, by_customer[ROWS].before) == ("extra", None)
    assert by_customer[11].after
    assert by_customer[11].after["rate"] == "NaN"

    few = by_key.compare_outputs(spark, baseline, other, key=KEY, sample=2)
    assert [one.difference for one in few.sample] == ["changed", "changed", "missing", "extra"]
    assert few.changed == len(planted), "counts do not depend on the sample"


def test_rows_without_a_key_are_counted_as_often_as_they_occur(
    spark: SparkSession, place: Path
) -> None:
    """A row written twice is extra, and so is one that is there three times instead of two."""
    schema = schema_of({"k": pa.string(), "n": pa.int32()})
    a, b, none = ({"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": None, "n": None})
    before = table(place, "once", [a, b, b, none, none], schema)
    after = table(place, "twice", [a, a, b, b, b, none], schema)

    found = by_key.compare_outputs(spark, before, after)

    assert (found.equal, found.missing, found.extra, found.changed) == (4, 1, 2, 0)
    assert [(one.difference, one.key, one.number) for one in found.sample] == [
        ("missing", none, 2), ("extra", a, 2), ("extra", b, 3),
    ]  # fmt: skip
    assert found.share == 3 / 7

    by_k = by_key.compare_outputs(spark, before, after, key=["k"])
    assert (by_k.equal, by_k.missing, by_k.extra, by_k.changed) == (4, 1, 2, 0)


def test_schemas_that_differ_are_named_and_the_rest_is_compared(
    spark: SparkSession, place: Path
) -> None:
    """Names with dots and spaces are names; a number is the same number in another type."""
    before = table(
        place,
        "before",
        [{"k.1": 1, "old": 1, "a b": 5, "price": Decimal("1.50"), "code": 7}],
        schema_of(
            {
                "k.1": pa.int32(),
                "old": pa.int32(),
                "a b": pa.int32(),
                "price": pa.decimal128(5, 2),
                "code": pa.int32(),
            }
        ),
    )
    after = table(
        place,
        "after",
        [{"k.1": 1, "new": 1, "a b": 5, "price": Decimal("1.5001"), "code": "7"}],
        schema_of(
            {
                "k.1": pa.int64(),
                "new": pa.int32(),
                "a b": pa.int64(),
                "price": pa.decimal128(38, 4),
                "code": pa.string(),
            }
        ),
    )

    found = by_key.compare_outputs(spark, before, after, key=["k.1"])

    assert (found.columns_added, found.columns_dropped) == (("new",), ("old",))
    assert {name: (one.before, one.after) for name, one in found.types.items()} == {
        "k.1": ("int", "bigint"),
        "a b": ("int", "bigint"),
        "price": ("decimal(5,2)", "decimal(38,4)"),
        "code": ("int", "string"),
    }
    assert [one.column for one in found.changes] == ["price", "code"]
    assert (found.changes[0].sum, found.changed) == (0.0001, 1)
    with pytest.raises(IncompatibleError, match="no column 'old'"):
        by_key.compare_outputs(spark, before, after, key=["old"])


@draw.taking_turns("rounded numbers", "decimals of 38 digits")
def test_trap_numbers_are_rounded_before_they_are_compared(
    spark: SparkSession, place: Path
) -> None:
    """As doubles, 2^53 and 2^53 + 1 are one number: rows that differ were said to be equal."""
    pairs: list[tuple[Any, float]] = [
        (2**53, 2.0**53), (2**53 + 1, 2.0**53), (2**63 - 1, 2.0**63), (2**62, 2.0**62),
        (0, -0.0), (1, 1.5), (-3, -3.0), (0, math.nan), (0, math.inf), (0, 1e300),
    ]  # fmt: skip
    cents = [
        (Decimal("0.10"), 0.1), (Decimal(2**53 + 1), 2.0**53), (Decimal("1e20"), 1e20),
        (Decimal("0.01"), math.nan),
    ]  # fmt: skip
    for name, exact, numbers in (
        ("longs", pa.int64(), pairs), ("cents", pa.decimal128(38, 2), cents),
    ):  # fmt: skip
        tables = [
            table(
                place,
                f"{name}-{side}",
                [{"n": n, "v": pair[side]} for n, pair in enumerate(numbers)],
                schema_of({"n": pa.int32(), "v": (exact, pa.float64())[side]}),
            )
            for side in (0, 1)
        ]
        equal = {n for n, (one, other) in enumerate(numbers) if same_number(one, other)}

        for pair in (tables, tables[::-1]):
            found = by_key.compare_outputs(spark, *pair, key=["n"], sample=20)
            assert {*range(len(numbers))} - {one.key["n"] for one in found.sample} == equal
            assert found.changes[0].measured == sum(
                math.isfinite(other) for n, (_, other) in enumerate(numbers) if n not in equal
            )
        found = by_key.compare_outputs(spark, *tables)
        assert found.equal == len(equal), "whole rows, too"


def same_number(exact: int | Decimal, double: float) -> bool:
    """Compare as Python does, which rounds no number; of decimals their digits."""
    return exact == (Decimal(str(double)) if isinstance(exact, Decimal) else double)


@draw.taking_turns("decimals of 38 digits", "rounded numbers")
def test_trap_decimals_of_38_digits_differed_by_nothing(spark: SparkSession, place: Path) -> None:
    """Their difference has a digit more than a decimal of Spark, and was rounded or not there."""
    nines = "9" * 38
    pairs = {
        (38, 18): (
            "12345678901234567890.123456789012345678",
            "12345678901234567890.123456789012345679",
        ),
        (38, 38): (f"0.{nines}", f"0.{nines[1:]}8"),
        (38, 10): ("-1.0000000001", "0.9999999999"),
        (38, 0): (nines, f"-{nines}"),
        (38, 6): ("0.000001", "-0.000001"),
        (20, 20): ("0.00000000000000000001", "0.00000000000000000003"),
        (5, 0): ("12", "-3"),
        (5, 2): ("999.99", "-999.99"),
    }
    schema = schema_of({"n": pa.int32()} | {f"d{p}_{s}": pa.decimal128(p, s) for p, s in pairs})
    first, second = (
        {"n": 1} | {f"d{p}_{s}": Decimal(both[side]) for (p, s), both in pairs.items()}
        for side in (0, 1)
    )
    nulls = {"n": 2}
    before = table(place, "digits-before", [first, nulls], schema)
    after = table(place, "digits-after", [second, nulls], schema)

    found = by_key.compare_outputs(spark, before, after, key=("n",))

    with localcontext() as digits:
        digits.prec = 80
        wanted = {
            f"d{p}_{s}": float(abs(Decimal(both[1]) - Decimal(both[0])))
            for (p, s), both in pairs.items()
        }
    assert {one.column: one.measured for one in found.changes} == dict.fromkeys(wanted, 1)
    assert {one.column: one.max for one in found.changes} == pytest.approx(wanted, rel=1e-15, abs=0)


def test_the_pinned_version_is_compared_and_not_the_latest(
    spark: SparkSession, place: Path
) -> None:
    """What was written after the cut is not looked at."""
    schema = schema_of({"k": pa.int32()})
    first = table(place, "first", [{"k": 1}], schema)
    second = table(place, "second", [{"k": 1}], schema)
    write_deltalake(second.uri, pa.Table.from_pylist([{"k": 2}], schema=schema), mode="append")

    assert by_key.compare_outputs(spark, first, second).different_rows == 0
    assert by_key.compare_outputs(spark, first, pinned(second.uri, 1)).extra == 1
    files = OutputVersion("totals", second.uri, "", 0, "", None, "files")
    with pytest.raises(FileSinkError, match="which keeps no old versions to read"):
        by_key.compare_outputs(spark, first, files)


def test_metrics_are_sql_over_the_outputs_that_cannot_change_them(
    spark: SparkSession, place: Path, baseline: OutputVersion
) -> None:
    """One number each; Python knows the sum."""
    revenue = sum((row(n)["amount"] or Decimal(0) for n in range(ROWS)), Decimal(0))
    found = sql_metrics.measure(
        spark,
        [baseline],
        {
            "revenue": "SELECT sum(amount) FROM totals -- all of it",
            "customers": "SELECT count(DISTINCT customer) FROM totals;",
            "nothing": "SELECT avg(rate) FROM totals WHERE customer < 0",
        },
    )
    dashed = replace(baseline, name="totals-by.day")
    counted = sql_metrics.measure(spark, [dashed], {"n": "SELECT count(*) FROM `totals-by.day`"})
    assert counted == {"n": ROWS}, "names of outputs may have dashes and dots in them"
    assert found == {"revenue": revenue, "customers": ROWS, "nothing": None}
    for sql, problem in {
        "SELECT name FROM totals WHERE customer = 1": "'customer 1', but one number",
        "SELECT 1, 2": "2 columns, but one number",
        "SELECT customer FROM totals": "several rows, but one number",
        "SELECT double('NaN')": "nan, but one number",
        "SELECT timestamp_micros(253402300800000000)": r"'\+10000-01-01 00:00:00', but one number",
        "SELECT array(make_date(-1, 1, 1))": r"'\[-0001-01-01\]', but one number",
        "SELECT sum(price) FROM totals": "cannot be computed",
        "DROP VIEW totals": "cannot be computed",
    }.items():
        with pytest.raises(UsageError, match=problem):
            sql_metrics.measure(spark, [baseline], {"wrong": sql})


def test_trap_rows_of_others_in_a_shared_table_counted_as_different(
    spark: SparkSession, tmp_path: Path
) -> None:
    """They had written to the live table since it was forked."""
    live = table(tmp_path, "live", map(row, range(1, 9)))
    fork = table(tmp_path, "fork", map(row, range(1, 6)))

    found = by_key.compare_outputs(spark, live, fork, key=KEY, own_rows="customer < 6")

    assert (found.equal, found.different_rows) == (5, 0)
