"""Reading Delta tables whose files are damaged."""

from __future__ import annotations

import re
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from savepoints.delta_reader import files_with, open_delta, small_rows
from savepoints.io import Location

ROWS = pa.table({"name": ["ada", "bob"], "n": [1, 2]})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    directory = tmp_path / "table"
    write_deltalake(str(directory), ROWS)
    return directory


def test_trap_a_damaged_schema_in_a_file_makes_the_reader_panic(table: Path) -> None:
    (file,) = table.glob("*.parquet")
    whole = file.read_bytes()
    # Arrow's schema in the footer, where a changed type is what Rust does not expect.
    schema = re.search(rb"ARROW:schema.{1,8}?([A-Za-z0-9+/=]{40,})", whole, re.DOTALL)
    assert schema is not None

    refused, place = 0, Location.of(str(table))
    for at in range(schema.start(1), schema.end(1), 3):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        file.write_bytes(bytes(damaged))
        try:
            # Not what PyArrow takes from a stream of Rust's: a panic there aborts this process.
            read = small_rows(place, open_delta(place))
        except OSError:
            refused += 1
        else:
            assert read.num_rows == ROWS.num_rows

    assert refused > len(schema[1]) // 6


def test_trap_a_damaged_checkpoint_makes_the_reader_panic(table: Path) -> None:
    DeltaTable(str(table)).create_checkpoint()
    (file,) = (table / "_delta_log").glob("*.checkpoint.parquet")
    whole = file.read_bytes()

    refused = 0
    for at in range(0, len(whole), 29):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        file.write_bytes(bytes(damaged))
        try:
            open_delta(Location.of(str(table)))
        except DeltaError:
            refused += 1

    assert refused > 0


@pytest.mark.parametrize("kind", ["deletion_vectors", "column_mapping"])
def test_trap_rows_of_a_newer_protocol_are_not_those_of_its_files(
    kind: str, tmp_path: Path
) -> None:
    """Whoever turns that on for a store's table: a deleted row came back, or none was found."""
    rows = {}
    for name in (kind, "plain"):
        with ZipFile(Path(__file__).parent / "data" / "tables" / f"{name}.zip") as packed:
            packed.extractall(tmp_path / name)
        (log,) = (tmp_path / name).rglob("_delta_log")
        place = Location.of(str(log.parent))
        found = small_rows(place, open_delta(place)).to_pylist()
        rows[name] = sorted(found, key=lambda row: int(row["n"]))

    assert rows[kind] == rows["plain"]
    assert rows["plain"]


def test_of_many_files_only_those_are_read_that_may_have_a_value(table: Path) -> None:
    more = pa.table({"name": ["zoe"], "n": [3]})
    write_deltalake(str(table), more, mode="append")
    place = Location.of(str(table))
    opened = open_delta(place)

    (file,) = files_with(opened, "name", ["yan", "zoe"])

    assert small_rows(place, opened, ["name"], [file]).to_pydict() == {"name": ["zoe"]}
    assert files_with(opened, "name", ["carl"]) == []
    assert small_rows(place, opened, ["name"], []).to_pydict() == {"name": []}
    assert small_rows(place, opened).sort_by("n").to_pylist() == [
        *ROWS.to_pylist(),
        *more.to_pylist(),
    ]
