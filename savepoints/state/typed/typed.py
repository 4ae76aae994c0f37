"""Typed reading of the state in a mounted savepoint, for people and for comparisons.

Spark's `statestore` source decodes the rows of both of its providers. It is asked in the way that
each kind of operator needs, and the rows get these columns and `partition_id` (int):

| kind   | what it is                           | columns                                          |
| rows   | the state of most operators          | key, value                                       |
| side   | one side of a join                   | key, value, which has `matched`                  |
| value  | a variable of `transformWithState`   | key, value; with TTL expires_at_ms               |
| list   | one, a row for each element          | key, position from 0, value; expires_at_ms       |
| map    | one, a row for each entry            | key, map_key, value; expires_at_ms               |
| timers | timers that are set                  | key, fires_at_ms                                 |
| store  | a join's store, as Spark lays it out | key, value                                       |

`key`, `map_key` and `value` are structs. Fields of type void hold nothing and are left out, and so
is a struct without fields: `agg()` without keys has no `key`, `dropDuplicates` no `value`. Fields
of one name, as the buffers of two `collect_list` have, get numbers: `buf`, `buf_2`. Columns that
end in `_ms` (long) are milliseconds since 1970. State whose TTL is over may still be there.
Source: `StateDataSource`, `StateSourceOptions`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from savepoints.checkpoint.evolution.findings import unique_names
from savepoints.checkpoint.logs.offset_log import JOIN_FORMAT_KEY, PARTITIONS_KEY
from savepoints.checkpoint.state import operators
from savepoints.errors import RESTORE_SAVEPOINT, IncompatibleError, SavepointsError, message_of
from savepoints.model import Cut
from savepoints.spark import causes
from savepoints.state.storage import read as storage_read
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

VariableKind = Literal["rows", "side", "value", "list", "map", "timers", "store"]

_JOIN = "symmetricHashJoin"
_SIDES = ("left", "right")
# What Spark calls the stores of a side: first that with the rows, then that by which they are
# found. In formats 3 and 4 they are column families, which its reader takes for stores.
_JOIN_STORES = ("keyWithIndexToValue", "keyToNumValues")
_JOIN_STORES_4 = ("keyWithTsToValues", "tsWithKey")
_FIRST_JOIN_FORMAT_BY_TIME = 4
_KINDS: dict[str, VariableKind] = {"ValueState": "value", "ListState": "list", "MapState": "map"}
_TIMERS = "TimerState"


@dataclass(frozen=True)
class Variable:
    """A part of an operator's state that can be read on its own.

    Attributes:
        operator_id: The operator.
        operator_name: Spark's name of the operator.
        kind: Decides which columns it has, see above.
        store: Name of the state store, as Spark's reader takes it.
        name: Name of the state variable, `timers`, or the side of a join; None for the rest.
        ttl: Its values expire.
    """

    operator_id: int
    operator_name: str
    kind: VariableKind
    store: str = "default"
    name: str | None = None
    ttl: bool = False

    def __str__(self) -> str:
        """Name it: `operator 0 (symmetricHashJoin), left`."""
        what = self.store if self.kind == "store" else self.name
        return f"operator {self.operator_id} ({self.operator_name})" + (f", {what}" if what else "")

    @property
    def options(self) -> str:
        """The options of the command line that choose it."""
        if self.kind == "store":
            return f"--operator {self.operator_id} --state-store {self.store}"
        return f"--operator {self.operator_id}" + (f" --variable {self.name}" if self.name else "")


def variables(data: bytes, path: str, conf: Mapping[str, str]) -> tuple[Variable, ...]:
    """List what can be read of an operator, by its metadata file; no JVM."""
    operator = operators.parse(data, path)
    known = (operator.operator_id, operator.name)
    if operator.name == _JOIN:
        by_time = int(conf.get(JOIN_FORMAT_KEY, "2")) >= _FIRST_JOIN_FORMAT_BY_TIME
        stores = _JOIN_STORES_4 if by_time else _JOIN_STORES
        return (
            *(Variable(*known, "side", f"{side}-{stores[0]}", side) for side in _SIDES),
            *(Variable(*known, "store", f"{side}-{store}") for side in _SIDES for store in stores),
        )
    declared = _declared(data, path)
    if declared is None:
        return (Variable(*known, "rows"),)
    found = [
        Variable(*known, _KINDS[declared_type], name=name, ttl=ttl)
        for name, declared_type, ttl in sorted(declared)
        if declared_type in _KINDS
    ]
    # A variable of the processor may be called so, too.
    timers = "timers" if all(one.name != "timers" for one in found) else "$timers"
    if any(declared_type == _TIMERS for _, declared_type, _ in declared):
        found.append(Variable(*known, "timers", name=timers))
    return tuple(found)


def reading_session(spark: SparkSession, cut: Cut) -> SparkSession:
    """Return a session for reading the state of a cut, in which times without a zone are in UTC.

    Its shuffles have as many partitions as the state: Spark's 200 cost seconds of empty tasks.
    """
    own = storage_read.reading_session(spark, cut.checkpoint_format)
    own.conf.set("spark.sql.session.timeZone", "UTC")
    own.conf.set(PARTITIONS_KEY, str(cut.partitions))
    return own


def read_variable(
    spark: SparkSession,
    checkpoint: Uri,
    batch_id: int,
    variable: Variable,
    *,
    whole_lists: bool = False,
) -> DataFrame:
    """Read a variable, in the columns that the table above names.

    Args:
        checkpoint: A checkpoint that nobody writes to: a mounted savepoint, not a live query's. It
            must be there as long as the frame is used.
        whole_lists: Give list state as one row for each key, whose `value` is an array as Spark
            has it.
    """
    from pyspark.sql import functions as F

    reader = (
        spark.read.format("statestore")
        .option("path", checkpoint.hadoop)
        .option("batchId", batch_id)
        .option("operatorId", variable.operator_id)
        .options(**_options(variable))
    )
    with refusals(str(variable)):
        frame = reader.load()
    if variable.kind == "list" and not whole_lists:
        element = F.posexplode("list_value").alias("position", "element")
        frame = frame.select("key", element, "partition_id")
    types = {field.name: field.dataType for field in frame.schema}
    key_fields = -1 if variable.kind == "side" else None
    columns = {"key": _tidy(F.col("key"), types["key"], key_fields)}
    if variable.kind == "timers":
        columns["fires_at_ms"] = F.col("expiration_timestamp_ms")
    elif variable.kind == "list" and whole_lists:
        columns["value"] = F.col("list_value")
    else:
        if variable.kind == "list":
            columns["position"] = F.col("position")
        if variable.kind == "map":
            columns["map_key"] = _tidy(F.col("user_map_key"), types["user_map_key"])
        name = {"list": "element", "map": "user_map_value"}.get(variable.kind, "value")
        columns |= _value(name, types[name], ttl=variable.ttl)
    columns["partition_id"] = F.col("partition_id")
    return frame.select(
        *(column.alias(name) for name, column in columns.items() if column is not None)
    )


@contextmanager
def translated(say: Callable[[Exception], str], hint: str) -> Iterator[None]:
    """Turn whatever Spark raises into our error."""
    try:
        with causes.named():
            yield
    except SavepointsError:
        raise
    except Exception as error:  # Spark's errors have no common root
        raise IncompatibleError(say(error), hint=hint) from error


def refusals(what: str) -> AbstractContextManager[None]:
    """Turn whatever Spark raises while it reads state into our error; see `translated`."""
    return translated(
        lambda error: f"Spark cannot read the state of {what} as typed rows: {reason(error)}",
        "the savepoint itself is complete and can be restored",
    )


def reason(error: Exception) -> str:
    """Return the line that says what is wrong; Spark wraps what happens in tasks."""
    cause = getattr(error, "java_exception", None)
    while cause is not None and cause.getCause() is not None:
        cause = cause.getCause()
    text = message_of(error) if cause is None else str(cause.toString())
    return text.strip().partition("\n")[0]


def _declared(data: bytes, path: str) -> list[tuple[str, str, bool]] | None:
    """Return name, type and TTL of the variables of a `transformWithState`; None for others.

    Source: `TransformWithStateOperatorProperties`.
    """
    try:
        text = json.loads(data.partition(b"\n")[2]).get("operatorPropertiesJson") or "{}"
        declared = json.loads(text).get("stateVariables")
        return declared and [
            (str(one["stateName"]), str(one["stateVariableType"]), bool(one["ttlEnabled"]))
            for one in declared
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise IncompatibleError(
            f"{path} is damaged: it does not list the state variables: {error!r}",
            hint=RESTORE_SAVEPOINT,
            file=path,
        ) from None


def _options(variable: Variable) -> dict[str, Any]:
    """Return the options by which Spark's source reads a variable.

    Not its `joinSide`, which leaves out `matched` and, in format 4, gives wrong times.
    """
    if variable.kind == "timers":
        return {"readRegisteredTimers": "true"}
    if variable.kind in {"side", "store"}:
        return {"storeName": variable.store}
    if variable.kind == "rows":
        return {}
    return {
        "stateVarName": variable.name,
        # Elements of lists are numbered here, since Spark does not.
        "flattenCollectionTypes": str(variable.kind != "list").lower(),
    }


def _value(name: str, data_type: DataType, *, ttl: bool) -> dict[str, Column | None]:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    column = F.col(name)
    if not ttl:
        return {"value": _tidy(column, data_type)}
    assert isinstance(data_type, StructType)
    return {
        "value": _tidy(column["value"], data_type["value"].dataType),
        "expires_at_ms": column["ttlExpirationMs"],
    }


def _tidy(column: Column, data_type: DataType, end: int | None = None) -> Column | None:
    """Return a struct with the first fields up to `end`, without voids and doubled names."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import NullType, StructField, StructType

    assert isinstance(data_type, StructType)
    names = unique_names(data_type.names)
    kept = [
        name
        for name, field in list(zip(names, data_type, strict=True))[:end]
        if not isinstance(field.dataType, NullType)
    ]
    if not kept:
        return None
    if names != data_type.names:
        renamed = [StructField(n, one.dataType) for n, one in zip(names, data_type, strict=True)]
        column = column.cast(StructType(renamed))
    if len(kept) == len(names):
        return column
    return F.struct(*(column[name].alias(name) for name in kept))
