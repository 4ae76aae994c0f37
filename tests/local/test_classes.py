"""The archive of Spark's classes: it is used, made once, and nobody needs it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.local import LocalWorld, classes
from savepoints.local.jars import resolve_jars
from savepoints.local.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_sparks_java_maps_it(spark: SparkSession, world: LocalWorld) -> None:
    option = world.environment["SPARK_SUBMIT_OPTS"].split()[-1]
    archive = option.removeprefix("-XX:SharedArchiveFile=")
    assert Path(archive).is_file()

    gateway = spark.sparkContext._gateway
    assert gateway is not None
    maps = Path(f"/proc/{gateway.proc.pid}/maps").read_text()

    assert archive in maps


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
