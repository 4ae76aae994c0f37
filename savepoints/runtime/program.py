"""The program of a query as Spark sees it: what an application makes of its inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from savepoints.runtime.app import App, TableInput
from savepoints.runtime.inputs import Inputs
from savepoints.sources.kafka.spark_options import reader_options
from savepoints.sources.tables import stream
from savepoints.spark import private_api

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# In the names of the nodes of `transformWithState`.
_WITH_VARIABLES = "TransformWithState"


def frame(spark: SparkSession, inputs: Inputs) -> DataFrame:
    """Return what an application makes of what Kafka and its tables give, without running it."""
    return built(inputs.app, {name: _read(spark, inputs, name) for name in inputs.app.inputs})


def built(app: App, records: Mapping[str, DataFrame]) -> DataFrame:
    """Return what an application makes of the records of its inputs."""
    return app.build({name: app.inputs[name].decode(one) for name, one in records.items()})


def digest(program: DataFrame) -> str | None:
    """Return a digest of what Spark is asked to run, for the same program always the same.

    None where the state's layout does not follow from it: Python functions, of which a plan has
    only the name, declare the variables of `transformWithState`.
    """
    text = private_api.plan_text(program)
    return None if _WITH_VARIABLES in text else hashlib.sha256(text.encode()).hexdigest()


def _read(spark: SparkSession, inputs: Inputs, name: str) -> DataFrame:
    one = inputs.app.inputs[name]
    if isinstance(one, TableInput):
        return stream.read(spark, inputs.table(name), one.schema, changes=one.changes)
    reader = (
        spark.readStream.format("kafka")
        .options(**reader_options(inputs.kafka))
        .option("subscribe", inputs.topic(name))
        .option("startingOffsets", "earliest")
    )
    if inputs.bound.max_offsets_per_trigger:
        reader = reader.option("maxOffsetsPerTrigger", inputs.bound.max_offsets_per_trigger)
    return reader.load()
