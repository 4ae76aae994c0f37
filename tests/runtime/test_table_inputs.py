"""Inputs of an application that are tables: where they are bound, and what needs Kafka instead."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from savepoints.config.settings import KafkaSettings, QuerySettings, Settings
from savepoints.errors import IncompatibleError, NotFoundError, UsageError
from savepoints.handle import Store
from savepoints.operations.fork import compared_queries
from savepoints.runtime.app import App, Output, TableInput, load_for
from savepoints.runtime.inputs import Inputs
from savepoints.runtime.runner import run_on_nothing
from savepoints.sources.tables import stream

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from savepoints.io import Location

LINES = TableInput(columns="n long, at timestamp", entity_key="n", event_time="at")
BOUND = QuerySettings(
    app="spark_jobs.medallion.silver:app", checkpoints="c", outputs={"lines": "lines"}
)

app = App("reads", {"lines": LINES}, lambda inputs: inputs["lines"], {"out": Output("append")})


def test_an_input_that_is_a_table_needs_one() -> None:
    with pytest.raises(UsageError, match="'orders' of silver is a table") as raised:
        load_for("silver", BOUND)
    assert '[queries.silver.tables] in the settings: orders = "s3://' in raised.value.hint


@pytest.mark.parametrize(
    ("bound", "hint"),
    [
        ({"tables": {"order": "/bronze"}}, "rename order to orders in [queries.silver.tables]"),
        (
            {"tables": {"orders": "/bronze"}, "outputs": {"line": "/lines"}},
            "rename line to lines in [queries.silver.outputs]",
        ),
        (
            {"tables": {"orders": "/bronze"}, "outputs": {"other": "/lines"}},
            'name it in [queries.silver.outputs] in the settings: lines = "s3://bucket/path"',
        ),
    ],
)
def test_a_misspelt_name_of_a_table_is_named(bound: dict[str, dict[str, str]], hint: str) -> None:
    """The hint asked to add what was there already, but for a letter."""
    with pytest.raises(UsageError) as raised:
        load_for("silver", BOUND.model_copy(update=bound))
    assert raised.value.hint.startswith(hint)


def test_its_table_is_that_of_the_settings() -> None:
    bound = BOUND.model_copy(update={"tables": {"orders": "s3://lake/bronze"}})
    assert (
        Inputs(load_for("silver", bound), bound, KafkaSettings()).table("orders")
        == "s3://lake/bronze"
    )


def test_what_needs_a_topic_names_the_input() -> None:
    inputs = Inputs(app, BOUND, KafkaSettings())
    for asks in (
        lambda: inputs.topics,
        lambda: inputs.topic("lines"),
        lambda: inputs.decoding("lines"),
    ):
        with pytest.raises(UsageError, match="the input lines of reads is a table"):
            asks()


def test_compare_of_a_query_that_reads_a_table_names_what_compares_it(local_store: Store) -> None:
    local_store.generations.begin("silver", 1, local_store.root / "1", by="run")
    bound = BOUND.model_copy(update={"tables": {"orders": "s3://lake/bronze"}})
    settings = Settings(queries={"silver": bound})

    with pytest.raises(UsageError, match="but silver reads from Delta: orders") as raised:
        compared_queries.compared_query(local_store, "silver", settings)

    assert "savepoints pipeline compare QUERY NAME" in raised.value.hint


def test_the_change_data_feed_has_more_columns() -> None:
    assert LINES.schema == "n long, at timestamp"
    assert replace(LINES, changes=True).schema.startswith("n long, at timestamp, _change_type ")


@pytest.mark.spark
@pytest.mark.nightly
def test_a_table_that_does_not_fit_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    with pytest.raises(NotFoundError, match="cannot be read"):
        stream.read(spark, uri, LINES.schema)
    spark.range(1).selectExpr("cast(id as int) as n").write.format("delta").save(uri)
    with pytest.raises(
        IncompatibleError, match=r"n bigint \(it has int\), at timestamp \(it has no such column\)"
    ):
        stream.read(spark, uri, LINES.schema)


@pytest.mark.spark
@pytest.mark.nightly
def test_it_runs_on_nothing(spark: SparkSession, on_local: Location) -> None:
    changes = replace(app, inputs={"lines": replace(LINES, changes=True)})
    assert run_on_nothing(spark, changes, on_local / "scratch").exception() is None
