"""Files of the store's tables that no version has: gone by `gc`, and missed by nobody."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.moments import utc_now
from savepoints.observe.recorder import recording
from savepoints.operations.maintain import gc
from savepoints.store.tables import checksums, delta_table, dropped_files
from savepoints.store.tables.delta_table import StoreTable

HOURS = 3
COLUMNS: dict[str, pa.DataType] = {"id": pa.string(), "n": pa.int64()}


@pytest.fixture
def table(on_local: Location, monkeypatch: pytest.MonkeyPatch) -> StoreTable:
    monkeypatch.setattr(delta_table, "COMPACT_FILES", 4)
    return StoreTable(on_local / "table", pa.schema(COLUMNS))


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": f"id-{number}", "n": number} for number in numbers]


def filled(table: StoreTable) -> None:
    """Write six rows in as many commits; the fourth file is compacted with those before it."""
    for number in range(6):
        table.append(rows(number))


def age(place: Location, *, but: str = "nothing") -> None:
    """Make files three hours old, but those whose path ends so."""
    then = (utc_now() - timedelta(hours=HOURS)).timestamp()
    for info in place.list():
        if not info.path.endswith(but):
            os.utime(Path(str(place)) / info.path, (then, then))


def found(table: StoreTable) -> list[str]:
    return [one.path for one in dropped_files.find(table.location, utc_now())]


def test_what_compaction_replaced_can_go_and_nobody_misses_it(table: StoreTable) -> None:
    filled(table)
    age(table.location)
    others = StoreTable(table.location, table.schema)
    assert len(others.rows()) == 6

    gone = found(table)
    table.location.delete(gone)

    assert len(gone) == 4
    assert found(table) == []
    assert checksums.problems(table.location) == {}
    for one in (table, others, StoreTable(table.location, table.schema)):
        assert sorted(row["n"] for row in one.rows()) == [0, 1, 2, 3, 4, 5]
    others.append(rows(6))
    assert sorted(row["n"] for row in table.rows()) == [0, 1, 2, 3, 4, 5, 6]


def test_trap_readers_of_the_version_before_a_commit_go_on_with_its_files(
    table: StoreTable,
) -> None:
    filled(table)
    age(
        table.location, but=f"{5:020}.json"
    )  # The compaction: one commit made the table, four wrote.

    assert found(table) == []


def test_trap_a_writer_names_its_files_when_it_commits(table: StoreTable) -> None:
    filled(table)
    age(table.location)
    table.location.delete(found(table))
    table.location.put("part-00000-of-a-writer-c000.snappy.parquet", b"PAR1")

    assert found(table) == []


def test_a_file_that_the_table_has_is_missed(table: StoreTable) -> None:
    filled(table)
    one = min(dropped_files.current(table.location))
    table.location.delete([one])

    assert checksums.problems(table.location) == {one: "is missing"}


def test_trap_the_tables_of_a_store_grow_for_ever(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`gc` deletes what compaction has replaced, after its grace."""
    monkeypatch.setattr(delta_table, "COMPACT_FILES", 4)
    for number in range(6):
        with recording(local_store, "verify", query=f"q{number}"):
            pass
    age(local_store.root)
    before = sorted(local_store.events.all(), key=str)

    kept = gc.plan(local_store, grace=timedelta(hours=HOURS + 1))
    plan = gc.plan(local_store, grace=timedelta(hours=HOURS - 1))
    done = gc.execute(plan, local_store)

    assert kept.orphans == ()
    assert [(one.kind, one.repair) for one in plan.orphans] == [
        ("table", f"delete {done.files} files of events")
    ]
    assert done.files >= 4
    after = [one for one in local_store.events.all() if one.verb != "gc"]
    assert sorted(after, key=str) == before
    assert checksums.problems(local_store.root / "events") == {}
