"""The program of a query as Spark sees it: what an application makes of its inputs."""

from __future__ import annotations

import hashlib
import io
import pickle
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from savepoints.runtime import python_code
from savepoints.runtime.app import App, TableInput
from savepoints.runtime.inputs import Inputs
from savepoints.sources.kafka.spark_options import reader_options
from savepoints.sources.tables import stream
from savepoints.spark import private_api
from savepoints.spark.private_api import PythonFunction

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


def text(program: DataFrame) -> str:
    """Return the plan of a program as text, the same in each process."""
    return private_api.plan_text(program)


def digest(plan: str, program: DataFrame, inputs: Inputs) -> str:
    """Return a digest of what Spark is asked to run and of what outputs take of it.

    It is the same in each process, and another one in other versions of Spark and, if the program
    has Python functions, of Python.

    Args:
        plan: The program's `text`.
    """
    package = re.split("[.:]", inputs.bound.app, maxsplit=1)[0]
    functions = (_function_text(one, package) for one in private_api.python_functions(program))
    lines = "\n".join((plan, *functions, repr(inputs.app.outputs)))
    return hashlib.sha256(lines.encode()).hexdigest()


def declares_variables(plan: str) -> bool:
    """Return True for `transformWithState`, whose functions declare its state when they run.

    So the layout of its state does not follow from the digest.

    Args:
        plan: Its `text`.
    """
    return _WITH_VARIABLES in plan


@dataclass(frozen=True)
class _Broadcast:
    """A broadcast variable in place of its value; not a tuple, whose values would be read."""

    number: int


class _Unpickler(pickle.Unpickler):
    """Reads functions of this process, which have broadcast variables in executors only."""

    def find_class(self, module: str, name: str) -> object:
        """Return what a pickled function refers to."""
        if name == "_from_id" and module.endswith(".broadcast"):
            return _Broadcast
        return super().find_class(module, name)


def _function_text(function: PythonFunction, package: str) -> str:
    # Functions refer to anything, and a run must not end for what only a merge warns of.
    with suppress(Exception):
        found = _Unpickler(io.BytesIO(function.pickled)).load()
        if isinstance(found, _Broadcast):
            pickled = pickle.loads(Path(function.broadcast(found.number)).read_bytes())  # noqa: S301
            found = _Unpickler(io.BytesIO(pickled)).load()
        return python_code.text(found, package)
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
