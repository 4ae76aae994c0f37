"""The program of a query as Spark sees it: what an application makes of its inputs."""

from __future__ import annotations

import hashlib
import pickle
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from savepoints.runtime import python_code
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


def digest(program: DataFrame, inputs: Inputs) -> str:
    """Return a digest of what Spark is asked to run and of what outputs take of it.

    It is the same in each process, and another one in other versions of Spark and, if the program
    has Python functions, of Python.
    """
    package = re.split("[.:]", inputs.bound.app, maxsplit=1)[0]
    functions = (_function_text(one, package) for one in private_api.python_functions(program))
    text = "\n".join((private_api.plan_text(program), *functions, repr(inputs.app.outputs)))
    return hashlib.sha256(text.encode()).hexdigest()


def declares_variables(program: DataFrame) -> bool:
    """Return True for `transformWithState`, whose functions declare its state when they run.

    So the layout of its state does not follow from the digest.
    """
    return _WITH_VARIABLES in private_api.plan_text(program)


def _function_text(pickled: bytes, package: str) -> str:
    # Functions refer to anything, and a run must not end for what only a merge warns of.
    with suppress(Exception):
        return python_code.text(pickle.loads(pickled), package)  # noqa: S301  (our own process's)
    return "not readable"


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
