"""The archive of Spark's classes: it is used, made once, and nobody needs it."""

from __future__ import annotations

import logging
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


def test_where_none_can_be_made_spark_starts_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    java, jars = find_java(), resolve_jars()
    monkeypatch.setenv("SAVEPOINTS_CACHE", str(tmp_path))
    broken = tmp_path / "load_classes.py"
    broken.write_text("raise SystemExit('no space left')")
    monkeypatch.setattr(classes, "_SCRIPT", broken)

    with caplog.at_level(logging.WARNING):
        assert classes.java_option(java, jars) == ""

    assert "no space left" in caplog.text
    assert [one.name for one in (tmp_path / "classes").iterdir()] == ["lock"]


def test_trap_what_a_process_said_that_took_too_long_is_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Although it was asked for text: Python gives a `TimeoutExpired` what it has read so far."""
    java, jars = find_java(), resolve_jars()
    monkeypatch.setenv("SAVEPOINTS_CACHE", str(tmp_path))
    endless = tmp_path / "load_classes.py"
    endless.write_text(
        "import sys, threading\n"
        "print('at work', file=sys.stderr, flush=True)\n"
        "threading.Event().wait()\n"
    )
    monkeypatch.setattr(classes, "_SCRIPT", endless)
    monkeypatch.setattr(classes, "_SECONDS", 1)

    with caplog.at_level(logging.WARNING):
        assert classes.java_option(java, jars) == ""

    assert "it took more than 1 s; the next start tries again" in caplog.text
    assert "b'" not in caplog.text
