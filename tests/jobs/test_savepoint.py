"""The job for schedulers, in the native form, which needs no JVM."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.jobs import savepoint
from savepoints.store.locks import lease
from tests.samples import query_id, unpack


def run(store: Store, checkpoint: Location) -> tuple[int, str]:
    out = io.StringIO()
    words = ["--store", str(store.root), "--checkpoint", str(checkpoint), "--name", "clicks"]
    return savepoint.main([*words, "--format", "native"], out), out.getvalue()


def test_it_takes_a_savepoint_and_names_it(store: Store, place: Location) -> None:
    code, out = run(store, unpack("rocksdb", place / "live"))

    (taken,) = store.catalog.all()
    assert code == 0
    assert taken.id in out
    assert taken.query == "clicks"


def test_overlapping_runs_the_later_one_skips_with_exit_0(store: Store, place: Location) -> None:
    live = unpack("rocksdb", place / "live")
    with lease.hold_files(store.root, query_id("rocksdb"), "clicks", "create"):
        code, out = run(store, live)

    assert code == 0
    assert "skipped" in out
    assert store.catalog.all() == []


def test_a_failure_has_the_exit_code_of_its_error(store: Store, place: Location) -> None:
    code, out = run(store, place / "nowhere")

    assert code == 10
    assert "nowhere" in out


def test_trap_without_a_store_one_was_made_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SAVEPOINTS_STORE", raising=False)
    out = io.StringIO()

    code = savepoint.main(["--name", "clicks"], out)

    assert (code, "no store was given" in out.getvalue()) == (2, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        (["s3://bucket/clicks"], "is not in the form NAME=URI"),
        (["a=s3://bucket/a", "a=s3://bucket/b"], "is given twice"),
    ],
)
def test_tables_that_are_not_told_apart_by_name_are_refused(
    tables: list[str], problem: str, tmp_path: Path
) -> None:
    out = io.StringIO()
    words = [word for table in tables for word in ("--table", table)]

    code = savepoint.main(["--store", str(tmp_path / "store"), *words], out)

    assert (code, problem in out.getvalue()) == (2, True)
