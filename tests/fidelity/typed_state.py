"""The state of a checkpoint as Spark's own typed reader gives it: the truth that is compared."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Rows of one part of the state, each as JSON with its state partition, and how often.
State = dict[str, Counter[tuple[int, str]]]


def read(session: SparkSession, checkpoint: Path, batch_id: int, clock: tuple[str, ...]) -> State:
    """Read all state after a batch, in one job.

    Args:
        session: With the settings of the query.
        checkpoint: Where nothing runs.
        batch_id: A committed batch.
        clock: Columns to leave out, since they hold the time of the machine.

    Returns:
        Rows by part: operator, and side of a join or variable of transformWithState.
    """
    from pyspark.sql import functions as F

    # The reader needs what only the manager of streaming queries makes.
    _ = session.streams
    metadata = session.read.format("state-metadata").load(str(checkpoint)).collect()
    parts = {
        f"{row.operatorId} {row.operatorName} {' '.join(options.values())}".strip(): {
            "operatorId": str(row.operatorId),
            **options,
        }
        for row in metadata
        for options in _parts(row.operatorName, row.operatorProperties)
    }
    frames: list[DataFrame] = []
    for part, options in parts.items():
        reader = session.read.format("statestore").options(**options).option("batchId", batch_id)
        rows = reader.load(str(checkpoint))
        frames.append(rows.select(F.lit(part).alias("part"), "partition_id", _as_json(rows)))
    union = frames[0]
    for frame in frames[1:]:
        union = union.unionAll(frame)
    state: State = {part: Counter() for part in parts}
    for row in union.collect():
        state[row.part][row.partition_id, _without(row.row, clock)] += 1
    return state


def without_partitions(state: State) -> dict[str, Counter[str]]:
    """Leave out in which state partition a row lies."""
    merged: dict[str, Counter[str]] = {part: Counter() for part in state}
    for part, rows in state.items():
        for (_, row), count in rows.items():
            merged[part][row] += count
    return merged


def _parts(operator: str, properties: str | None) -> Iterator[dict[str, str]]:
    """Give the reader's options for each part of an operator that it can read."""
    if operator == "symmetricHashJoin":
        yield from ({"joinSide": side} for side in ("left", "right"))
    elif operator.startswith("transformWithState"):
        for variable in json.loads(properties or "{}")["stateVariables"]:
            kind, name = variable["stateVariableType"], variable["stateName"]
            if kind == "TimerState":
                yield {"readRegisteredTimers": "true"}
            else:
                # Lists as one value, so that their order counts; maps have no order.
                flat = str(kind != "ListState").lower()
                yield {"stateVarName": name, "flattenCollectionTypes": flat}
    else:
        yield {}


def _as_json(rows: DataFrame) -> Column:
    """Return all columns but the partition, as JSON.

    Structs are made anew: rows of joins have one field more than the reader's schema says. Where
    names occur twice, as in the state of a sum and an average, that cannot be done.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    columns = []
    for field in rows.schema:
        column = F.col(field.name)
        if isinstance(field.dataType, StructType):
            names = field.dataType.fieldNames()
            if len(set(names)) == len(names):
                column = F.struct(*(column[name].alias(name) for name in names)).alias(field.name)
        if field.name != "partition_id":
            columns.append(column)
    return F.to_json(F.struct(*columns)).alias("row")


def _without(row: str, names: tuple[str, ...]) -> str:
    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(one) for key, one in value.items() if key not in names}
        return [strip(one) for one in value] if isinstance(value, list) else value

    return json.dumps(strip(json.loads(row)), sort_keys=True)
