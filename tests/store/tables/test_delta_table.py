"""The tables of the store: many writers, many small files, and rows that know their checksum."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from savepoints.errors import IncompatibleError, SavepointsError, VerificationError
from savepoints.io import Location, storage_options
from savepoints.store.tables import delta_table as tables
from savepoints.store.tables.delta_table import StoreTable
from tests import second_s3

place = second_s3.place

COLUMNS: dict[str, pa.DataType] = {"id": pa.string(), "n": pa.int64(), "x": pa.float64()}
SCHEMA = pa.schema(COLUMNS)


@pytest.fixture
def table(place: Location) -> StoreTable:
    return StoreTable(place / "table", SCHEMA)


def row(number: int) -> dict[str, Any]:
    return {"id": f"id-{number}", "n": number, "x": number / 3}


def by_id(table: StoreTable) -> list[dict[str, Any]]:
    return sorted(table.rows(), key=lambda one: str(one["id"]))


def test_rows_are_read_as_they_were_written(table: StoreTable) -> None:
    assert table.rows() == []

    table.append([row(1), {"id": "id-2", "n": None, "x": None}])

    assert by_id(table) == [row(1), {"id": "id-2", "n": None, "x": None}]


@pytest.mark.s3
def test_rows_are_replaced_and_removed(table: StoreTable) -> None:
    table.append([row(1), row(2), row(3)])

    table.change(("id",), lambda _: [{**row(2), "n": 20}])
    table.remove("id", ["id-1", "id-9"])

    assert by_id(table) == [{**row(2), "n": 20}, row(3)]


def test_columns_that_come_later_do_not_spoil_the_checksums_of_old_rows(place: Location) -> None:
    StoreTable(place / "table", SCHEMA).append([row(1)])
    newer = StoreTable(place / "table", SCHEMA.append(pa.field("new", pa.string())))

    newer.append([{**row(2), "new": "b"}])

    assert by_id(newer) == [{**row(1), "new": None}, {**row(2), "new": "b"}]


@pytest.mark.parametrize(
    ("column", "value", "unknown"),
    [
        (pa.field("new", pa.string()), "b", "new"),
        (
            pa.field("known", pa.list_(pa.struct([("a", pa.int64()), ("b", pa.int64())]))),
            [],
            "known.b",
        ),
    ],
    ids=["column", "field"],
)
def test_trap_what_a_newer_version_added_looks_like_a_bug_or_damage(
    column: pa.Field[Any], value: object, unknown: str, on_local: Location
) -> None:
    """Both work with one store for a while; the older one adds rows and takes none for damaged."""
    known = pa.field("known", pa.list_(pa.struct([("a", pa.int64())])))
    older = StoreTable(on_local / "table", SCHEMA.append(known))
    rest = SCHEMA.append(known) if column.name == "new" else SCHEMA
    newer = StoreTable(on_local / "table", rest.append(column))
    newer.append([{**row(1), column.name: value}])
    decided: list[object] = []

    for use in (older.rows, lambda: older.change(("id",), decided.append)):  # type: ignore[arg-type]
        with pytest.raises(IncompatibleError, match=f"does not know: {unknown}\n") as refused:
            use()

    assert "upgrade savepoints" in refused.value.hint
    assert decided == []
    older.append([row(2)], key="id")
    assert [one["id"] for one in by_id(newer)] == ["id-1", "id-2"]


def test_a_value_that_was_changed_is_found(on_local: Location) -> None:
    """As a flipped bit would, which Parquet without checksums does not notice."""
    table = StoreTable(on_local / "table", SCHEMA)
    table.append([row(1)])
    opened = DeltaTable(str(table.location))
    content = opened.to_pyarrow_table()
    changed = content.set_column(content.column_names.index("n"), "n", pa.array([2], pa.int64()))
    write_deltalake(opened, changed, mode="overwrite")

    with pytest.raises(VerificationError, match="id-1") as found:
        table.rows()
    assert found.value.details["table"] == str(table.location)


@pytest.mark.parametrize("what", ["log", "beginning", "data"])
def test_a_damaged_table_is_named_and_never_made_anew_by_itself(
    table: StoreTable, what: str
) -> None:
    for number in range(3):
        table.append([row(number)])
    names = [info.path for info in table.location.list()]
    if what == "log":
        table.location.put("_delta_log/00000000000000000002.json", b"{ damaged")
    elif what == "beginning":
        table.location.delete(["_delta_log/00000000000000000000.json"])
    else:
        table.location.delete([next(name for name in names if name.endswith(".parquet"))])

    opened = StoreTable(table.location, SCHEMA)  # Who has it open reads on.
    with pytest.raises(VerificationError, match="table"):
        opened.rows()
    if what != "data":
        with pytest.raises(VerificationError):
            opened.append([row(9)])


@pytest.mark.s3
def test_trap_a_table_of_the_user_s_gets_the_rows_of_a_store(table: StoreTable) -> None:
    """`events` is a good name for a table, and Delta merges the columns of both."""
    where, options = str(table.location), storage_options(table.location.uri)
    theirs = pa.table({"event": ["paid", "sent"]})
    write_deltalake(where, theirs, storage_options=options)

    for use in (lambda: table.append([row(1)]), table.rows):
        with pytest.raises(IncompatibleError, match="has a table that savepoints did not make"):
            use()

    now = DeltaTable(where, storage_options=options)
    assert (now.version(), now.to_pyarrow_table()) == (0, theirs)


def test_trap_files_of_the_user_s_become_a_table_of_a_store(table: StoreTable) -> None:
    """A `_delta_log` beside them would make all readers take the directory for a table."""
    table.location.put("day=1/part-0.json", b"{}")

    for use in (lambda: table.append([row(1)]), table.rows):
        with pytest.raises(IncompatibleError, match="has files that savepoints did not write"):
            use()

    assert [info.path for info in table.location.list()] == ["day=1/part-0.json"]


def test_made_anew_the_damaged_files_are_kept_aside(table: StoreTable, place: Location) -> None:
    table.append([row(1)])
    table.location.put("_delta_log/00000000000000000001.json", b"{ damaged")
    before = {info.path: table.location.get(info.path) for info in table.location.list()}

    table.rebuild([row(1), row(2)], place / "aside")

    assert by_id(table) == [row(1), row(2)]
    aside = place / "aside"
    assert {info.path: aside.get(info.path) for info in aside.list()} == before


@dataclasses.dataclass(frozen=True)
class Dying(Location):
    """A place whose process dies after it has deleted files once."""

    def delete(self, paths: Iterable[str]) -> None:
        super().delete(paths)
        raise KeyboardInterrupt


def test_trap_killed_while_the_old_files_go_the_rest_looks_like_somebody_else_s(
    table: StoreTable,
) -> None:
    place = table.location
    table.append([row(1)])
    with pytest.raises(KeyboardInterrupt):
        StoreTable(Dying(place.uri), SCHEMA).rebuild([row(1)], Location.of(f"{place}-first"))

    with pytest.raises(VerificationError):
        StoreTable(place, SCHEMA).rows()
    again = StoreTable(place, SCHEMA)
    again.rebuild([row(1)], Location.of(f"{place}-aside"))

    assert again.rows() == [row(1)]


def test_many_small_files_become_one(table: StoreTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "COMPACT_FILES", 5)
    for number in range(12):
        table.append([row(number)])

    location = table.location
    opened = DeltaTable(str(location), storage_options=storage_options(location.uri))
    assert len(opened.file_uris()) < 5
    assert sorted(one["n"] for one in table.rows()) == list(range(12))


def test_trap_a_full_disk_makes_a_thread_of_rust_panic_on_stderr(
    on_local: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked before whether there is room, and said how to make some."""
    found = StoreTable(on_local / "table", SCHEMA)
    found.append([row(1)])
    full = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)

    with pytest.raises(
        SavepointsError, match="too little free space: 1000 bytes are free"
    ) as refused:
        found.append([row(2)])

    assert "savepoints expire" in refused.value.hint
    assert by_id(found) == [row(1)]


def test_rows_in_python_are_those_that_pyarrow_makes() -> None:
    moments = pa.array([0, -1, None, 1_790_000_000_123_456], pa.timestamp("us", "UTC"))
    rows = pa.table({"at": moments, "names": [["a"], None, [], ["b"]], "n": [1, None, 2, 3]})
    chunked = pa.concat_tables([rows, rows.slice(1, 2), rows.slice(0, 0)])

    assert tables._python_rows(chunked) == chunked.to_pylist()
    assert tables._python_rows(rows.slice(0, 0)) == []
