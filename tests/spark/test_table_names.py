"""Tables by name: resolved to their locations where a session is, refused where none is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import savepoints
from savepoints.errors import NotFoundError, UsageError
from savepoints.spark import table_names
from savepoints.uri import Uri, is_table_name
from tests.e2e.plain_driver import Driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("text", "is_name"),
    [
        ("main.sales.orders", True),
        ("spark_catalog.sales.orders_2", True),
        ("sales.orders", False),
        ("./main.sales.orders", False),
        ("lake/main.sales.orders", False),
        ("s3://main.sales.orders", False),
        ("orders.v1.2", False),
    ],
)
def test_a_name_has_three_parts(text: str, is_name: bool) -> None:
    assert is_table_name(text) is is_name
    if is_name:
        with pytest.raises(
            UsageError, match="is a table name, but a location is needed"
        ) as refused:
            Uri.parse(text)
        assert f"DESCRIBE DETAIL {text}" in refused.value.hint
    else:
        Uri.parse(text)


@pytest.mark.spark
@pytest.mark.nightly
def test_of_a_query_that_writes_a_table_by_name_the_location_is_saved(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Found by the sink of `toTable`, or given by name."""
    driver = Driver(spark, tmp_path, "append")
    name = "spark_catalog.sales_by_name.numbers"
    spark.sql(f"CREATE DATABASE sales_by_name LOCATION '{tmp_path / 'sales'}'")
    try:
        spark.sql(f"CREATE TABLE {name} (n BIGINT, v BIGINT) USING delta LOCATION '{driver.table}'")
        for named in (False, True):
            driver.add(1, 2)
            rows = driver._read().selectExpr("n", "n as v")
            writer = rows.writeStream.option("checkpointLocation", driver.checkpoint)
            query = writer.queryName("numbers").format("delta").toTable(name)
            driver.started.append(query)
            with pytest.raises(UsageError, match="must give each table a name"):
                savepoints.attach(spark, query, every="1h", outputs=name)  # type: ignore[arg-type]
            attached = savepoints.attach(
                spark,
                query,
                every="1h",
                store=driver.store,
                forms=("native",),
                outputs={"numbers": name} if named else None,
            )
            query.processAllAvailable()
            saved = attached.stop()
            assert saved is not None
            assert [one.uri for one in saved.outputs] == [driver.table]
        with pytest.raises(NotFoundError, match="the session has no table"):
            table_names.located(spark, {"x": "main.sales.nothing"})
    finally:
        for one in driver.started:
            one.stop()
        spark.sql("DROP DATABASE sales_by_name CASCADE")
