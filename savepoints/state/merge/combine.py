"""State of a query combined with what late events gave alone, by functions of the application.

Rows under a key that only one of the two has stay as they are; where both have one, a function
makes one of them. So only operators can be combined that keep one row under a whole key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from savepoints.checkpoint.evolution.operator_pairs import WITH_PLAIN_KEYS
from savepoints.checkpoint.state.layout import Layout
from savepoints.checkpoint.state.operators import Operator
from savepoints.checkpoint.state.schema import StateSchema
from savepoints.errors import IncompatibleError
from savepoints.spark.arrow_functions import arrow_function
from savepoints.state.change import column_transforms
from savepoints.state.codec import decode, encode
from savepoints.state.storage.row_sources import COLUMNS, SavedRows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

# Given by a program, see `savepoints.runtime.app`.
CombineStates: TypeAlias = "Callable[[pa.RecordBatch, pa.RecordBatch], pa.RecordBatch]"

_KEY, _LATE = "key_bytes", "__late"


@dataclass(frozen=True)
class Combined:
    """How the rows of an operator are combined."""

    schema: StateSchema
    function: CombineStates
    where: str


@dataclass(frozen=True)
class CombinedRows:
    """The state of a query with what late events gave alone; see `SavedRows`.

    Attributes:
        late: The state of a run that began with nothing and read the late events only.
    """

    live: SavedRows
    late: SavedRows
    operators: Mapping[int, Combined]

    def rows(self, operator_id: int, store: str) -> DataFrame:
        """Return the rows of a store; see `SavedRows`."""
        from pyspark.sql import functions as F

        live = self.live.rows(operator_id, store)
        late = F.broadcast(self.late.rows(operator_id, store))
        mine = late.select(_KEY, F.col("value_bytes").alias(_LATE))
        combine = _function(self.operators[operator_id])
        made = combine(F.col(_KEY), F.col("value_bytes"), F.col(_LATE))
        both = live.join(mine, _KEY).withColumn("value_bytes", made).select(*COLUMNS)
        known = F.broadcast(both.select(_KEY))
        return (
            live.join(mine, _KEY, "left_anti")
            .select(*COLUMNS)
            .unionByName(both)
            .unionByName(late.join(known, _KEY, "left_anti").select(*COLUMNS))
        )


def required(
    operators: Sequence[Operator], layout: Layout, functions: Mapping[str, CombineStates]
) -> dict[int, Combined]:
    """Return how each operator is combined.

    Args:
        functions: By Spark's name or the number of an operator, which goes before.
    """
    found = {}
    for one in operators:
        where = f"operator {one.operator_id} ({one.name})"
        if one.name not in WITH_PLAIN_KEYS:
            raise IncompatibleError(
                f"{where} keeps more than one row per key, which no function can combine",
                hint="replay the events instead: savepoints merge without --policy, or with "
                "--policy replay-all",
                operator_id=one.operator_id,
            )
        function = functions.get(str(one.operator_id), functions.get(one.name))
        if function is None:
            raise IncompatibleError(
                f"the application does not define how to combine two states of {where}",
                hint=f"define a function: App(…, merge=MergeFunctions(states={{{one.name!r}: …}}, "
                "rows=…)), as in docs/merging.md; or merge without --policy",
                operator_id=one.operator_id,
            )
        (schema,) = layout[one.operator_id, one.stores[0]]
        found[one.operator_id] = Combined(schema, function, where)
    return found


def _function(one: Combined) -> Callable[..., Column]:
    def combined(keys, live, late):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  (Spark reads hints)
        return _combine(one, keys, live, late)

    return arrow_function(combined, "binary")


def _combine(
    one: Combined, keys: pa.BinaryArray, live: pa.BinaryArray, late: pa.BinaryArray
) -> pa.BinaryArray:
    """Return the bytes of the values that two rows under one key become."""
    key = decode.decode(keys, one.schema.key, one.where)
    before, alone = (
        column_transforms.batch(one.schema, key, decode.decode(values, one.schema.value, one.where))
        for values in (live, late)
    )
    what = f"combining states of {one.where}"
    new = column_transforms.given(
        lambda known: one.function(known, alone), before, one.schema.value, what, len(keys)
    )
    return encode.encode(new, one.schema.value, one.where)
