"""The rows of files as other programs write them: each with its values, or refused."""

from __future__ import annotations

import csv
import gzip
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyarrow import parquet
from pyspark.sql.types import ByteType, DataType, DecimalType, ShortType

from savepoints.errors import IncompatibleError, StalePlanError, UsageError
from savepoints.sources.late import files, stored_files
from tests import draw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.drawn(8)]


def read(spark: SparkSession, place: Path) -> list[dict[str, Any]]:
    """Return the rows of `id`, `note` and `n`, by id; with `op` and what cannot be read."""
    records, events = (
        spark.createDataFrame([], one).schema
        for one in ("value binary", "id string, note string, n bigint")
    )
    found = files.read(spark, str(place), records=records, events=events)
    with files.failures(str(place), found.kind):
        rows = [one.asDict() for one in found.rows.collect()]
    return sorted(rows, key=lambda one: one["id"] or "")


def notes(spark: SparkSession, place: Path) -> list[str | None]:
    """Return the notes by id, of rows that can all be read."""
    rows = read(spark, place)
    assert [one[files.UNREADABLE] for one in rows] == [None] * len(rows)
    return [one["note"] for one in rows]


def test_trap_columns_that_not_all_parquet_files_have_are_passed_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark takes the columns of one file for those of all: a removal became an event."""
    rows = {"id": ["a"], "note": ["x"], "n": [1]}
    parquet.write_table(pa.table(rows), tmp_path / "a.parquet")
    parquet.write_table(pa.table({**rows, "id": ["b"], "op": ["remove"]}), tmp_path / "b.parquet")

    assert [one["op"] for one in read(spark, tmp_path)] == [None, "remove"]


def test_parquet_files_of_other_types_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    for name, n in (("a", pa.int32()), ("b", pa.string())):
        rows = pa.table({"id": ["a"], "note": ["x"], "n": pa.array(["1"]).cast(n)})
        parquet.write_table(rows, tmp_path / f"{name}.parquet")

    with pytest.raises(IncompatibleError, match=r"cannot be read: .*incompatible data types"):
        read(spark, tmp_path)


def test_trap_values_in_names_of_directories_become_numbers(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The column was said to be of the wrong type, and no file has it that could be mended."""
    for id_ in ("007", "7"):
        (tmp_path / f"id={id_}").mkdir()
        rows = pa.table({"note": [f"of {id_}"], "n": [1]})
        parquet.write_table(rows, tmp_path / f"id={id_}" / "a.parquet")

    found = [(one["id"], one["note"]) for one in read(spark, tmp_path)]

    assert found == [("007", "of 007"), ("7", "of 7")]


def test_trap_decimals_in_names_of_directories_lose_their_point(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark read `price=1.1` as 0.11 where prices have two places."""
    for price in ("1.1", "1.10", "-20", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / f"price={price}").mkdir()
        parquet.write_table(pa.table({"id": [price]}), tmp_path / f"price={price}" / "a.parquet")
    types = {"price": DecimalType(5, 2)}

    rows = stored_files.find(str(tmp_path)).load_with(spark, types).collect()

    assert {one["id"]: one["price"] for one in rows} == {
        "1.1": Decimal("1.1"), "1.10": Decimal("1.1"), "-20": Decimal(-20),
        "__HIVE_DEFAULT_PARTITION__": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (DecimalType(5, 2), "12.105"),
        (DecimalType(5, 2), "1000"),
        (DecimalType(5, 2), "x"),
        (ByteType(), "300"),
        (ShortType(), "-32769"),
    ],
)
def test_trap_numbers_in_names_of_directories_are_cut_off(
    spark: SparkSession, tmp_path: Path, kind: DataType, value: str
) -> None:
    """Of 300 Spark made 44 where one byte was wanted."""
    (tmp_path / f"n={value}").mkdir()
    parquet.write_table(pa.table({"id": ["a"]}), tmp_path / f"n={value}" / "a.parquet")

    with pytest.raises(IncompatibleError, match=rf"n={value}, which is no value of ") as refused:
        stored_files.find(str(tmp_path)).load_with(spark, {"n": kind})

    assert "write n into the files" in refused.value.hint


def test_trap_numbers_in_directories_of_lines_are_rounded(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of JSON and CSV Spark makes 12.11 of 12.105."""
    columns = spark.createDataFrame([], "id string, price decimal(5, 2)").schema
    found = []
    for price in ("1.1", "12.105"):
        (tmp_path / price / f"price={price}").mkdir(parents=True)
        (tmp_path / price / f"price={price}" / "a.json").write_text('{"id": "a"}')
    for place in ("1.1", "12.105"):
        with suppress(IncompatibleError):
            rows = files.read(spark, str(tmp_path / place), records=columns, events=columns).rows
            found += [one["price"] for one in rows.collect()]

    assert found == [Decimal("1.10")]


def test_trap_directories_in_directories_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """Those of a pattern are refused: Spark would pass over what is deeper."""
    for name in ("a", "2026/11/b"):
        path = tmp_path / "late.json" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{{"id": "{path.stem}", "note": "x", "n": 1}}')

    assert [one["id"] for one in read(spark, tmp_path / "late.json")] == ["a", "b"]
    with pytest.raises(UsageError, match="matches directories that contain other directories"):
        read(spark, tmp_path / "*.json")


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC])
def test_csv_has_the_values_that_were_written(
    spark: SparkSession, tmp_path: Path, quoting: Literal[0, 2]
) -> None:
    """By Python's own module, as spreadsheets, pandas and databases write it (RFC 4180)."""
    chance = draw.chance("csv", quoting)
    texts = [
        "".join(chance.choices("\"\\,'{}: \n\té€a", k=chance.randint(1, 9))) for _ in range(200)
    ]
    with (tmp_path / "late.csv").open("w", newline="") as file:
        writer = csv.writer(file, quoting=quoting, lineterminator=chance.choice(["\n", "\r\n"]))
        writer.writerow(["note", "n", "id"])
        writer.writerows([text, number, f"{number:03}"] for number, text in enumerate(texts))

    assert notes(spark, tmp_path / "late.csv") == texts


def test_trap_an_empty_text_in_csv_is_read_as_null(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "late.csv").write_text('id,note,n\na,"",1\nb,,2\n')

    assert notes(spark, tmp_path / "late.csv") == ["", None]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'id,note,n\na,"x ""y"",1\nb,z,2\n', "has a quoted value that does not end"),
        (b'id,note,n\na,"x \\"y\\"",1\n', "Unescaped quote"),
        ("id,note,n\na,\xe9,1\n".encode("latin-1"), "not UTF-8|decode"),
        ("id,note,n\na,x,1\n".encode("utf-16"), "not UTF-8|decode"),
    ],
    ids=["cut", "backslashes", "latin-1", "utf-16"],
)
def test_trap_text_of_other_rules_is_read_as_something_else(
    spark: SparkSession, tmp_path: Path, text: bytes, why: str
) -> None:
    (tmp_path / "late.csv.gz").write_bytes(gzip.compress(text))

    with pytest.raises(IncompatibleError, match=f"(?s)late.csv.gz cannot be read: .*({why})"):
        read(spark, tmp_path / "late.csv.gz")


def test_trap_a_line_end_of_another_kind_becomes_part_of_a_value(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "late.csv").write_bytes(b"n,id,note\n1,a,x\n2,b,y\r\n")

    assert [one[files.UNREADABLE] for one in read(spark, tmp_path / "late.csv")] == [None, "y\r"]


def test_csv_of_other_columns_in_each_file_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,note,n\na,x,1\n")
    (tmp_path / "b.csv").write_text("id,n,note\nb,2,y\n")

    with pytest.raises(IncompatibleError, match=r"(?s)cannot be read: .*header does not conform"):
        read(spark, tmp_path)


def test_json_that_is_not_utf8_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    line = '{"id": "a", "note": "\xe9", "n": 1}'
    (tmp_path / "late.json").write_bytes(line.encode("latin-1"))

    with pytest.raises(IncompatibleError, match=r"cannot be read: .*(not UTF-8|decode)"):
        read(spark, tmp_path / "late.json")


def test_trap_rows_that_are_written_to_a_table_meanwhile_are_half_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Delta reads each query of a frame from the newest version: ops were known, rows were not."""
    rows = {"id": ["a"], "note": ["x"], "n": [1]}
    write_deltalake(tmp_path / "late", pa.table({**rows, "op": ["insert"]}))
    found = stored_files.find(str(tmp_path / "late")).load(spark)
    assert found.count() == 1

    write_deltalake(tmp_path / "late", pa.table({**rows, "op": ["remove"]}), mode="append")

    assert [one["op"] for one in found.collect()] == ["insert"]


def test_trap_files_that_are_written_meanwhile_have_unknown_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text('{"id": "a"}')
    before = spark.read.json(str(tmp_path))
    files.require_same_files(str(tmp_path), before, spark.read.json(str(tmp_path)))
    (tmp_path / "b.json").write_text('{"id": "b", "op": "remove"}')

    with pytest.raises(StalePlanError, match=r"changed while it was read: .*b.json was added"):
        files.require_same_files(str(tmp_path), before, spark.read.json(str(tmp_path)))


def test_trap_a_pattern_that_matches_tables_reads_rows_that_they_no_longer_have(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = pa.table({"id": ["a"], "note": ["x"], "n": [1]})
    table = tmp_path / "a b" / "late.parquet"
    for _ in range(2):
        write_deltalake(str(table), rows, mode="overwrite")
    assert len(read(spark, table)) == 1

    with pytest.raises(UsageError, match=r"late.parquet is a table, .* as _delta_log says"):
        read(spark, tmp_path / "a b" / "*.parquet")

    (table / "_delta_log").rename(table / "_spark_metadata")
    with pytest.raises(UsageError, match="as _spark_metadata says"):
        read(spark, tmp_path / "a b" / "*.parquet")


def test_trap_columns_whose_names_have_backticks_and_dots(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "late.csv").write_text("a`b,c.d\n1,one\n2,two\n")
    records, events = (
        spark.createDataFrame([], one).schema
        for one in ("value binary", "`a``b` bigint, `c.d` string")
    )

    found = files.read(spark, str(tmp_path / "late.csv"), records=records, events=events)

    rows = [one.asDict() for one in found.rows.collect()]
    assert sorted((one["a`b"], one["c.d"]) for one in rows) == [(1, "one"), (2, "two")]
