"""The archive of Spark's classes: it is used, made once, and nobody needs it."""

from __future__ import annotations

import dataclasses
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.local import LocalWorld, classes
from savepoints.local.jars import resolve_jars
from savepoints.local.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def archive_of(world: LocalWorld) -> str:
    (option,) = (
        one for one in world.environment["SPARK_SUBMIT_OPTS"].split() if "SharedArchive" in one
    )
    return option.removeprefix("-XX:SharedArchiveFile=")


@pytest.mark.spark
def test_sparks_java_maps_it(spark: SparkSession, world: LocalWorld) -> None:
    archive = archive_of(world)
    assert Path(archive).is_file()

    gateway = spark.sparkContext._gateway
    assert gateway is not None
    maps = Path(f"/proc/{gateway.proc.pid}/maps").read_text()

    assert archive in maps


@pytest.mark.spark
def test_trap_java_warns_on_stdout_of_an_archive_of_another_class_path(
    world: LocalWorld, tmp_path: Path
) -> None:
    """`-o json` was preceded by it, where a Spark of another installation was started."""
    java = [str(find_java().home / "bin" / "java"), "-cp", str(tmp_path), "-version"]
    options = world.environment["SPARK_SUBMIT_OPTS"].split()

    done = subprocess.run([java[0], *options, *java[1:]], capture_output=True, check=True)

    assert done.stdout == b""


def test_trap_archives_of_environments_that_are_gone_filled_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 MB each: after a day with many environments it was 4 GB, with parts of killed ones."""
    java, jars = find_java(), resolve_jars()
    monkeypatch.setenv("SAVEPOINTS_CACHE", str(tmp_path))
    script = tmp_path / "load_classes.py"
    script.write_text("import sys; open(sys.argv[1], 'w').close()")
    monkeypatch.setattr(classes, "_SCRIPT", script)
    directory = tmp_path / "classes"
    directory.mkdir()
    (directory / "killed.part").touch()
    for used in range(12):
        (directory / f"{used}.jsa").touch()
        os.utime(directory / f"{used}.jsa", (used, 100 - used))

    option = classes.java_option(java, jars)

    kept = {one.name for one in directory.iterdir()}
    mine = {Path(word.partition("=")[2]).name for word in option.split() if "Shared" in word}
    assert kept == {"lock", *mine, *(f"{used}.jsa" for used in range(3, 12))}


Fails = Callable[[str], str]


@pytest.fixture
def fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Fails:
    """Give what lets a script make the archive, which it must not, and returns what was said."""
    java, jars = find_java(), resolve_jars()
    monkeypatch.setenv("SAVEPOINTS_CACHE", str(tmp_path))
    script = tmp_path / "load_classes.py"
    monkeypatch.setattr(classes, "_SCRIPT", script)

    def said(program: str) -> str:
        script.write_text(program)
        with caplog.at_level(logging.WARNING):
            assert classes.java_option(java, jars) == ""
        return caplog.text

    return said


def test_where_none_can_be_made_spark_starts_as_ever(fails: Fails, tmp_path: Path) -> None:
    said = fails("raise SystemExit('no space left')")

    assert "no space left" in said
    assert [one.name for one in (tmp_path / "classes").iterdir()] == ["lock"]


def test_trap_in_a_cache_that_cannot_be_written_to_there_is_no_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may have the jars, in an image that another user runs: Spark starts as ever."""
    java, jars = find_java(), resolve_jars()
    monkeypatch.setenv("SAVEPOINTS_CACHE", str(tmp_path))
    (tmp_path / "classes").touch()

    assert classes.java_option(java, jars) == ""
    assert f"cannot write to {tmp_path / 'classes'}" in caplog.text


def test_trap_a_java_without_an_archive_of_its_own_was_asked_at_each_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Images made with `jlink` have none: Spark was run for nothing, and a rename failed."""
    java, jars = dataclasses.replace(find_java(), home=tmp_path), resolve_jars()
    monkeypatch.setenv("SAVEPOINTS_CACHE", str(tmp_path))

    assert classes.java_option(java, jars) == ""
    assert f"lacks Java's own archive, {tmp_path / 'lib' / 'server' / 'classes.jsa'}" in caplog.text
    assert f"{java.executable} -Xshare:dump" in caplog.text


def test_trap_the_workers_of_the_script_were_the_first_python_of_the_path(
    fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of another version, where the environment is not activated: there was no archive."""
    monkeypatch.setenv("PYSPARK_PYTHON", "python2")

    said = fails("import os; raise SystemExit(os.environ['PYSPARK_PYTHON'])")

    assert sys.executable in said


def test_trap_what_a_process_said_that_took_too_long_is_bytes(
    fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although it was asked for text: Python gives a `TimeoutExpired` what it has read so far."""
    monkeypatch.setattr(classes, "_SECONDS", 1)

    said = fails(
        "import sys, threading\n"
        "print('at work', file=sys.stderr, flush=True)\n"
        "threading.Event().wait()\n"
    )

    assert "it took more than 1 s; the next start tries again" in said
    assert "b'" not in said
