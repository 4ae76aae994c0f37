"""The job for schedulers, in the native form, which needs no JVM."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from savepoints.config import secrets
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.jobs import archive, savepoint
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


@pytest.mark.parametrize("option", ["--store", "--checkpoint", "--name"])
def test_trap_a_job_takes_a_variable_that_is_not_set_for_an_omitted_option(
    option: str, store: Store, place: Location
) -> None:
    """Without its name a query got that of its id, and refused its own from then on."""
    given = {
        "--store": str(store.root),
        "--checkpoint": str(unpack("rocksdb", place / "live")),
        "--name": "clicks",
        option: "",
    }
    out = io.StringIO()

    code = savepoint.main([*(word for one in given.items() for word in one)], out)

    assert (code, f"{option} is empty" in out.getvalue()) == (2, True)
    assert store.catalog.all() == []


def test_trap_what_the_commands_mask_is_in_the_log_of_a_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schedulers keep and show what a job prints."""
    monkeypatch.setattr(secrets, "_known", set())
    file = tmp_path / "savepoints.toml"
    file.write_text('[kafka.options]\n"sasl.password" = "planted-secret"\n')

    words = ["--store", str(tmp_path / "store"), "--config", str(file), "--format", "native"]
    checkpoint = ["--checkpoint", str(tmp_path / "planted-secret"), "--name", "clicks"]

    code = savepoint.main([*words, *checkpoint], sys.stdout)
    refused = archive.main(["planted-secret", "events", "--config", str(file)])

    shown = "".join(capsys.readouterr())
    assert (code, refused) == (10, 2)
    assert "there is no Spark checkpoint" in shown
    assert "is not in the settings" in shown
    assert "planted-secret" not in shown
