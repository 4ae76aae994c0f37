"""Checksums of the tables' files: written after each commit, compared by `check`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from savepoints.io import Location
from savepoints.store.tables import checksums, dropped_files
from savepoints.store.tables.catalog import Catalog
from savepoints.store.tables.delta_table import StoreTable
from tests.processes import at_once
from tests.samples import savepoint

TEXT: pa.DataType = pa.string()
NUMBER: pa.DataType = pa.int64()
SCHEMA = pa.schema([("id", TEXT), ("number", NUMBER)])


def table(place: Location, commits: int) -> StoreTable:
    made = StoreTable(place / "table", SCHEMA)
    for number in range(commits):
        made.append([{"id": str(number), "number": number}])
    return made


@pytest.mark.s3
def test_every_commit_and_its_files_have_checksums(place: Location) -> None:
    made = table(place, 3)
    made.change(("id",), lambda _: [{"id": "1", "number": 9}])
    made.remove("id", ["0"])

    files = [info.path for info in made.location.list()]

    commits = [path for path in files if path.startswith("_delta_log/")]
    assert len([path for path in files if path.startswith("_sums/")]) == len(commits) == 6
    assert checksums.problems(made.location) == {}
    assert sorted(row["number"] for row in made.rows()) == [2, 9]


def test_a_checkpoint_that_a_commit_made_has_one_too(on_local: Location) -> None:
    made = table(on_local, 1)
    uri = str(made.location)
    DeltaTable(uri).alter.set_table_properties({"delta.checkpointInterval": "2"})
    for number in range(4):
        made.append([{"id": "x", "number": number}])
    (path, *_) = [
        info.path for info in made.location.list() if info.path.endswith(".checkpoint.parquet")
    ]
    assert checksums.problems(made.location) == {}

    data = made.location.get(path)
    made.location.put(path, data[:-9] + b"x" + data[-8:])

    assert checksums.problems(made.location) == {
        path: "its SHA-256 does not match the recorded one"
    }


def test_a_writer_that_died_is_made_up_for_by_the_next(on_local: Location) -> None:
    made = table(on_local, 4)
    made.location.delete([f"_sums/{version:020}.json" for version in (3, 4)])
    assert set(checksums.problems(made.location)) == {
        f"_delta_log/{version:020}.json" for version in (3, 4)
    }

    made.append([{"id": "next", "number": 1}])

    assert checksums.problems(made.location) == {}


def test_a_table_that_has_none_is_given_them_by_the_next_commit(on_local: Location) -> None:
    made = table(on_local, 3)
    made.location.delete([info.path for info in made.location.list("_sums")])
    assert set(checksums.problems(made.location)) == {
        f"_delta_log/{version:020}.json" for version in range(4)
    }

    made.append([{"id": "next", "number": 1}])

    assert checksums.problems(made.location) == {}
    assert len(made.location.list("_sums")) == 5


def test_what_delta_cleaned_up_itself_is_not_missed(
    on_local: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = table(on_local, 5)
    DeltaTable(str(made.location)).create_checkpoint()
    made.append([{"id": "next", "number": 1}])
    gone = f"_delta_log/{2:020}.json"
    made.location.delete([gone])
    assert checksums.problems(made.location) == {gone: "is missing"}

    later = datetime.now(UTC) + timedelta(days=31)
    monkeypatch.setattr(checksums, "utc_now", lambda: later)

    assert checksums.problems(made.location) == {}
    made.location.delete([f"_delta_log/{6:020}.json"])
    assert list(checksums.problems(made.location)) == [f"_delta_log/{6:020}.json"]


def test_trap_checksums_of_what_delta_cleaned_up_stay_for_ever(
    on_local: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One a commit: `gc` takes those of which nothing is left, and nothing is missed then."""
    monkeypatch.setattr("savepoints.store.tables.delta_table.COMPACT_FILES", 4)
    made = table(on_local, 5)
    delta = DeltaTable(str(made.location))
    delta.create_checkpoint()
    made.append([{"id": "next", "number": 1}])
    made.location.delete([f"_delta_log/{version:020}.json" for version in range(delta.version())])
    later = datetime.now(UTC) + timedelta(days=31)
    assert checksums.outdated(made.location, later) == [], "Delta would have missed them"

    monkeypatch.setattr(checksums, "utc_now", lambda: later)
    monkeypatch.setattr(dropped_files, "utc_now", lambda: later)
    made.location.delete([one.path for one in dropped_files.find(made.location, later)])
    gone = [one.path for one in checksums.outdated(made.location, later)]
    rows = sorted(map(str, made.rows()))
    made.location.delete(gone)

    assert gone
    assert checksums.outdated(made.location, later) == []
    assert checksums.problems(made.location) == {}
    one = min(dropped_files.current(made.location))
    made.location.delete([one])
    assert checksums.problems(made.location) == {one: "is missing"}
    made.location.put(one, b"other rows")
    assert one in checksums.problems(made.location)
    assert len(rows) == 6


def test_compaction_has_checksums_too(on_local: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("savepoints.store.tables.delta_table.COMPACT_FILES", 4)
    made = table(on_local, 6)

    assert len(made.rows()) == 6
    assert checksums.problems(made.location) == {}
    logs, known = (len(made.location.list(one)) for one in ("_delta_log", "_sums"))
    assert logs == known


def test_several_writers_at_once_leave_none_out(on_local: Location) -> None:
    work = "Store(Location.of(uri)).catalog.add(savepoint(number, query=f'q{number}'))"
    with at_once(work, str(on_local), 4) as processes:
        assert processes.end() == (0, "")

    location = on_local / "catalog"
    found = checksums.problems(location)

    assert [path for path in found if "_sums" in path] == []
    assert all(problem.startswith(checksums.UNKNOWN) for problem in found.values())
    Catalog(on_local).add(savepoint(9))
    assert checksums.problems(location) == {}
