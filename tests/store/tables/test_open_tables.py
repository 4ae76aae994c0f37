"""Tables that a process has open: what others commit is seen, and another table is no mistake."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from savepoints.io import Location
from savepoints.store.tables.delta_table import StoreTable
from savepoints.store.tables.open_tables import OpenTables
from tests import second_s3

place = second_s3.place

SCHEMA = pa.schema([pa.field("id", pa.string())])


@pytest.fixture
def table(place: Location) -> StoreTable:
    return StoreTable(place / "table", SCHEMA)


def of_another_process(table: StoreTable) -> StoreTable:
    return replace(table, tables=OpenTables())


def ids(table: StoreTable) -> list[Any]:
    return sorted(row["id"] for row in table.rows())


@pytest.mark.s3
def test_what_others_have_written_is_seen(table: StoreTable) -> None:
    other = of_another_process(table)
    table.append([{"id": "a"}])
    assert ids(table) == ["a"]

    for one in "bcd":
        other.append([{"id": one}])
        assert ids(table) == ids(other) == sorted("abcd"[: "abcd".index(one) + 1])
    other.remove("id", ["b"])

    assert ids(table) == ["a", "c", "d"]
    table.append([{"id": "e"}])
    assert ids(other) == ["a", "c", "d", "e"]


def test_files_that_were_read_before_are_not_read_again_and_those_that_went_are_forgotten(
    table: StoreTable,
) -> None:
    wider = replace(table, schema=SCHEMA.append(pa.field("more", pa.int64())))
    table.append([{"id": "a"}])
    table.append([{"id": "b"}])
    assert ids(table) == ["a", "b"]

    wider.append([{"id": "c", "more": 1}])
    wider.change(("id",), lambda _: [{"id": "a"}, {"id": "d"}])
    wider.remove("id", ["b"])

    of_others = of_another_process(wider).rows()
    assert sorted(wider.rows(), key=str) == sorted(of_others, key=str)
    assert [(one["id"], one["more"]) for one in sorted(of_others, key=lambda one: one["id"])] == [
        ("a", None), ("c", 1), ("d", None)
    ]  # fmt: skip
    there = {info.path for info in table.location.list() if info.path.endswith(".parquet")}
    kept = set(table.tables.files(table.location))
    assert kept < there, "those of older versions are gone"
    table.location.delete(there - kept)
    assert ids(of_another_process(wider)) == ["a", "c", "d"]


@pytest.mark.s3
def test_trap_a_table_that_was_made_anew_has_the_same_versions(
    table: StoreTable, place: Location
) -> None:
    """As `check --rebuild-catalog` makes it, in another process: no version of it is newer."""
    other = of_another_process(table)
    for one in "abc":
        table.append([{"id": one}])
    assert ids(table) == ["a", "b", "c"]

    other.rebuild([{"id": "a"}], place / "aside-1")
    for one in "xyz":
        other.append([{"id": one}])
    assert ids(table) == ["a", "x", "y", "z"]

    table.append([{"id": "here"}])
    other.rebuild([{"id": "a"}], place / "aside-2")

    assert ids(table) == ["a"]


def test_trap_delta_removes_the_commit_that_a_table_was_opened_at(table: StoreTable) -> None:
    """After a checkpoint of later ones, thirty days on; the table is opened again."""
    table.append([{"id": "a"}])
    assert ids(table) == ["a"]
    other = of_another_process(table)
    for one in range(101):  # Delta makes a checkpoint each hundred commits.
        other.append([{"id": str(one)}])
    table.location.delete(f"_delta_log/{old:020}.json" for old in range(50))

    assert len(ids(table)) == 102


def test_a_snapshot_stays_as_it_was_but_for_what_is_written_through_it(table: StoreTable) -> None:
    table.append([{"id": "a"}])
    seen = replace(table, tables=table.tables.snapshot())
    assert ids(seen) == ["a"]

    table.append([{"id": "b"}])
    assert (ids(seen), ids(table)) == (["a"], ["a", "b"])

    seen.append([{"id": "c"}])
    assert ids(seen) == ids(table) == ["a", "b", "c"]


def test_trap_credentials_change_while_a_query_runs(
    on_s3: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a role expire after an hour, and deltalake keeps what it was given."""
    table = StoreTable(on_s3 / "table", SCHEMA)
    table.append([{"id": "a"}])
    opened: list[Mapping[str, str]] = []

    def look() -> None:
        table.tables.newest(table.location, opened.append)

    assert ids(table) == ["a"]
    look()
    assert opened == []

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-next-hour")
    look()

    assert "of-the-next-hour" in opened[0].values()


def test_each_thread_opens_its_own(table: StoreTable) -> None:
    table.append([{"id": "a"}])
    here = table.tables.newest(table.location, lambda _: None)
    found: list[object] = []

    thread = threading.Thread(
        target=lambda: found.append(table.tables.newest(table.location, lambda _: None))
    )
    thread.start()
    thread.join()

    assert here is not None
    assert found == [None]


def test_a_copy_of_a_snapshot_shows_what_was_read(table: StoreTable) -> None:
    table.append([{"id": "a"}])
    seen = replace(table, tables=OpenTables().snapshot())
    assert ids(seen) == ["a"]
    there = pickle.loads(pickle.dumps(seen))
    table.append([{"id": "b"}])

    assert ids(there) == ["a"]
    assert ids(pickle.loads(pickle.dumps(table))) == ids(table)
    assert len(ids(table)) == 2
