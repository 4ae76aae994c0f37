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
