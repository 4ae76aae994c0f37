"""Entities chosen by chance from the footers of an archive, whose rows are known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.sources.archive import archive, sample_entities
from savepoints.sources.events.events import EVENT_SCHEMA
from tests.sources.json_input import add_late

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.drawn(2)]

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def events(spark: SparkSession, entities: list[str], first: int, part: int = 0) -> DataFrame:
    rows = [
        (None, b"", "t", part, at, _BEGIN, 0, None, one, _BEGIN + timedelta(seconds=at), f"e{at}")
        for at, one in enumerate(entities, first)
    ]
    return spark.createDataFrame(rows, EVENT_SCHEMA)


def test_controls_are_chosen_among_what_arrived(spark: SparkSession, tmp_path: Path) -> None:
    """Never among those that are touched, though whole files have no others."""
    uri = str(tmp_path / "archive")
    archive.make(spark, uri)
    arrived = [f"c{at:03d}" for at in range(300) for _ in range(10)]
    archive.append(uri, events(spark, arrived, 0), begin={}, end={"t": {0: len(arrived)}})
    touched = spark.createDataFrame([("c000",), ("late",)], "entity string")
    for merge in range(5):
        add_late(spark, uri, events(spark, ["late"], 0, part=-1), f"m{merge}")
    for seed in ("one", "other"):
        few = sample_entities.entities(spark, uri, count=2, without=touched, seed=seed)
        many = sample_entities.entities(spark, uri, count=50, without=touched, seed=seed)
        assert len(set(few)) == 2, "three row groups of a thousand rows name three entities"
        assert len(set(many)) == 50, "then the rows are looked at"
        assert {*few, *many} <= set(arrived) - {"c000"}


def test_an_archive_without_arrivals_has_none(spark: SparkSession, tmp_path: Path) -> None:
    """The events of merges are of touched entities."""
    uri = str(tmp_path / "archive")
    nobody = spark.createDataFrame([], "entity string")
    assert sample_entities.entities(spark, uri, count=5, without=nobody, seed="s") == []
    add_late(spark, uri, events(spark, ["late"], 0, part=-1), "m1")
    assert sample_entities.entities(spark, uri, count=5, without=nobody, seed="s") == []
