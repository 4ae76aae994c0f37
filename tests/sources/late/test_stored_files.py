"""Given rows: their format, and that all files at a place are read, or none."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from savepoints.errors import NotFoundError, UsageError
from savepoints.sources.late import stored_files

ROWS = pa.table({"order_id": ["o1"]})


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["a.parquet", "b.parquet"], "parquet"),
        (["a.json.gz", "b.jsonl"], "json"),
        (["A.CSV"], "csv"),
        (["_SUCCESS", ".x.crc", "part-0.parquet"], "parquet"),
    ],
)
def test_the_format_is_known_from_names(tmp_path: Path, names: list[str], kind: str) -> None:
    for name in names:
        (tmp_path / name).write_text("x")

    assert stored_files.find(str(tmp_path)).kind == kind
    assert stored_files.find(f"{tmp_path}/*.{kind}").kind == kind
    assert stored_files.find(str(tmp_path / names[-1])).kind == kind


def test_a_delta_table_is_known_from_its_log(tmp_path: Path) -> None:
    for _ in range(2):
        write_deltalake(tmp_path / "late", ROWS, mode="append")

    found = stored_files.find(f"{tmp_path}/late/")

    assert (found.kind, found.options) == ("delta", {"versionAsOf": "1"})


def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("x")
    (tmp_path / "b.json").write_text("x")

    with pytest.raises(UsageError, match="different formats: json, parquet"):
        stored_files.find(str(tmp_path))
    with pytest.raises(UsageError, match="cannot tell the format"):
        stored_files.find(f"{tmp_path}/*.txt")
    with pytest.raises(NotFoundError, match="there are no files"):
        stored_files.find(str(tmp_path / "c.json"))


def test_trap_directories_in_directories_are_passed_over(tmp_path: Path) -> None:
    """`InMemoryFileIndex`: without partitions, only the files of the directory itself count."""
    for name in ("a.json", "2026/11/b.json"):
        _written(tmp_path, name)

    assert stored_files.find(str(tmp_path)).options == {"recursiveFileLookup": "true"}


def test_partitions_are_columns(tmp_path: Path) -> None:
    """Also those of a name for which a file would be hidden."""
    for name in ("_day=1/op=remove/a.json", "_day=2/op=insert/b.json"):
        _written(tmp_path, name)

    assert stored_files.find(str(tmp_path)).options == {}


@pytest.mark.parametrize(
    "others", [["a.json"], ["hour=1/a.json"], ["day=1/more/a.json"], ["more/a.json"]]
)
def test_trap_files_beside_partitions_are_passed_over(tmp_path: Path, others: list[str]) -> None:
    for name in ("day=1/x.json", *others):
        _written(tmp_path, name)

    with pytest.raises(UsageError, match="not all in directories of the same partitions"):
        stored_files.find(str(tmp_path))


@pytest.mark.parametrize("log", ["orders/_delta_log", "orders/_spark_metadata", ".hoodie"])
def test_trap_files_that_a_table_no_longer_has_count_as_rows(tmp_path: Path, log: str) -> None:
    _written(tmp_path, f"{log}/0.json")
    _written(tmp_path, "orders/a.parquet")

    with pytest.raises(UsageError, match=f"is a table, .*as {Path(log).name} says"):
        stored_files.find(str(tmp_path))


def _written(root: Path, name: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
