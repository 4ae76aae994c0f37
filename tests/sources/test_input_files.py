"""Files that were read, looked for again: those that were removed or written again are named."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from savepoints.checkpoint.logs.file_log import ReadFile
from savepoints.io import Location
from savepoints.moments import epoch_ms
from savepoints.sources import input_files
from savepoints.sources.input_files import Unlike

THEN = 1_795_271_810_650


def read(directory: Path, *names: str) -> list[ReadFile]:
    """Write files as if long ago, and return what a log would say of them."""
    found = []
    for name in names:
        place = directory / name
        place.parent.mkdir(exist_ok=True)
        place.write_text("x")
        os.utime(place, ns=(THEN * 1_000_000,) * 2)
        found.append(ReadFile(f"file://{place}", THEN))
    return found


def test_what_is_gone_or_was_written_again_is_named(tmp_path: Path) -> None:
    files = read(tmp_path, "a/0.json", "a/1.json", "b/0.json", "b/2.json", "b/3.json")
    (tmp_path / "a/1.json").unlink()
    (tmp_path / "b/0.json").unlink()
    (tmp_path / "b/2.json").write_text("x")

    assert input_files.look(files) == Unlike(
        (f"file://{tmp_path}/a/1.json", f"file://{tmp_path}/b/0.json"),
        (f"file://{tmp_path}/b/2.json",),
    )


@pytest.mark.parametrize(
    "name", ["a b.json", "d=2026-11-20", "ü.csv", "50%25.json", "a#b?c", "a+b"]
)
def test_names_have_any_characters(tmp_path: Path, name: str) -> None:
    (file,) = read(tmp_path, name)
    assert input_files.look([file]) == Unlike((), ())
    (tmp_path / name).unlink()
    assert input_files.look([file]).gone == (file.path,)


def test_of_many_files_a_list_is_enough(tmp_path: Path) -> None:
    """It has no files without bytes, which were read like all others."""
    files = read(tmp_path, *(f"{number:03}.json" for number in range(150)))
    (tmp_path / "007.json").write_text("")
    os.utime(tmp_path / "007.json", ns=(THEN * 1_000_000,) * 2)
    (tmp_path / "149.json").unlink()

    assert input_files.look(files) == Unlike((f"file://{tmp_path}/149.json",), ())


def test_trap_a_store_says_times_in_whole_seconds_and_in_milliseconds(tmp_path: Path) -> None:
    """As MinIO does, of one file in two answers: each would look changed."""
    (file,) = read(tmp_path, "a.json")
    at = THEN // 1000 * 1000
    assert input_files.look([replace(file, modified_ms=at)]) == Unlike((), ())
    assert input_files.look([replace(file, modified_ms=at - 1)]) == Unlike((), (file.path,))


@pytest.mark.s3
def test_files_are_found_in_a_bucket(s3_bucket: str, s3_environment: None) -> None:
    place = Location.of(f"s3://{s3_bucket}/input-files")
    place.put("a b.json", b"x")
    at = epoch_ms(place.head("a b.json").last_modified)
    files = [ReadFile(f"s3a://{s3_bucket}/input-files/{one}.json", at) for one in ("a b", "c")]
    assert input_files.look(files) == Unlike((files[1].path,), ())
