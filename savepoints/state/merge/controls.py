"""Control entities: their replayed state compared with what the live query has of them.

No late event touches them, so they have to come out as they are. Rows are compared by their bytes,
and elements of a list by their place. The rows that a join has buffered are compared as a multiset
for each key: under which index one lies depends on the order in which they came.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from savepoints.checkpoint.evolution.findings import unique_names
from savepoints.checkpoint.state.layout import Layout
from savepoints.checkpoint.state.operators import Operator
from savepoints.checkpoint.state.schema import StateSchema
from savepoints.errors import IncompatibleError
from savepoints.state.codec import decode
from savepoints.state.merge import splice
from savepoints.state.merge.splice import EntityFields
from savepoints.state.storage.row_sources import SavedRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

_BUFFERED = "keyWithIndexToValue"
_IDENTITY = ("operator_id", "store", "column_family", "entity", "identity", "place")
SAMPLE = 5


@dataclass(frozen=True)
class ControlDifference:
    """A row of a control that did not come out as it is."""

    operator_id: int
    store: str
    column_family: str
    entity: str
    live: str | None
    replayed: str | None


@dataclass(frozen=True)
class StateControls:
    """What became of the state of the controls."""

    rows: int
    different: int
    tolerated: int
    sample: tuple[ControlDifference, ...]

    @property
    def equal(self) -> bool:
        """Whether all came out as they are, or nearly so where that was allowed."""
        return not self.different


def compare_states(
    live: SavedRows,
    replayed: SavedRows,
    operators: Sequence[Operator],
    fields: EntityFields,
    entities: DataFrame,
    *,
    layout: Layout,
    tolerance: float = 0.0,
) -> StateControls:
    """Compare the state of entities, in one job.

    Args:
        entities: The controls: entity (string). All rows of theirs that differ come to the driver.
        layout: Schemas of their rows; what has none is shown as bytes, and not tolerated.
        tolerance: Most by which floating-point numbers may differ, as a share of the larger one.
    """
    from pyspark.sql import functions as F

    mine = _of_all(live, operators, fields, entities, 1)
    both = mine.unionAll(_of_all(replayed, operators, fields, entities, -1))
    surplus = both.groupBy(*_IDENTITY, "value_bytes").agg(
        F.sum("side").alias("surplus"), F.count_if(F.col("side") > 0).alias("rows")
    )
    differs = F.when(F.col("surplus") != 0, F.struct(*_IDENTITY, "value_bytes", "surplus"))
    found = surplus.agg(
        F.coalesce(F.sum("rows"), F.lit(0)).alias("rows"), F.collect_list(differs).alias("differ")
    ).collect()[0]
    by_identity: dict[tuple[Any, ...], list[Row]] = {}
    for row in found["differ"]:
        by_identity.setdefault(tuple(row[name] for name in _IDENTITY), []).append(row)
    tolerated, different = 0, 0
    sample: list[ControlDifference] = []
    for one in sorted(by_identity, key=repr):
        families = layout.get((one[0], one[1]), ())
        schema = next((each for each in families if each.column_family == one[2]), None)
        sides = _Sides.of(by_identity[one], schema)
        if sides.are_close(tolerance):
            tolerated += sides.count
            continue
        different += sides.count
        if len(sample) < SAMPLE:
            operator_id, store, family, entity = one[:4]
            sample.append(
                ControlDifference(
                    operator_id, store, family, entity, sides.first(1), sides.first(-1)
                )
            )
    return StateControls(int(found["rows"]), different, tolerated, tuple(sample))


@dataclass(frozen=True)
class _Sides:
    """The values of one key that only one side has, decoded where that is possible."""

    live: tuple[Any, ...]
    replayed: tuple[Any, ...]
    decoded: bool

    @classmethod
    def of(cls, found: Sequence[Row], schema: StateSchema | None) -> _Sides:
        def values(side: int) -> list[bytes]:
            many = ((bytes(row["value_bytes"]), row["surplus"] * side) for row in found)
            return [value for value, times in many for _ in range(max(0, times))]

        live, replayed = values(1), values(-1)
        if schema is not None:
            # What cannot be decoded here is shown as bytes: a type, or a time after the year 9999.
            with suppress(IncompatibleError, OverflowError, ValueError):
                return cls(_decoded(live, schema), _decoded(replayed, schema), decoded=True)
        return cls(
            tuple(one.hex() for one in live), tuple(one.hex() for one in replayed), decoded=False
        )

    @property
    def count(self) -> int:
        return len(self.live) + len(self.replayed)

    def first(self, side: int) -> str | None:
        values = self.live if side > 0 else self.replayed
        return str(values[0]) if values else None

    def are_close(self, tolerance: float) -> bool:
        if not (tolerance and self.decoded) or len(self.live) != len(self.replayed):
            return False
        return _close(sorted(self.live, key=repr), sorted(self.replayed, key=repr), tolerance)


def _of_all(
    saved: SavedRows,
    operators: Sequence[Operator],
    fields: EntityFields,
    entities: DataFrame,
    side: int,
) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    frames = []
    for operator in operators:
        field = fields[operator.operator_id]
        for store in operator.stores:
            found = saved.rows(operator.operator_id, store)
            mine = splice.of_entities(found, field, entities)
            in_list = Window.partitionBy("column_family", "key_bytes").orderBy("ord")
            place = F.row_number().over(in_list) if operator.has_column_families else F.lit(1)
            # A store of format 2 of joins, or a column family of format 3.
            is_buffer = F.concat(F.lit(f"{store} "), "column_family").contains(_BUFFERED)
            key = F.to_json("key")
            frames.append(
                mine.select(
                    F.lit(operator.operator_id).alias("operator_id"),
                    F.lit(store).alias("store"),
                    "column_family",
                    splice.entity(field).alias("entity"),
                    F.when(is_buffer, key).otherwise(F.hex("key_bytes")).alias("identity"),
                    F.when(is_buffer, F.lit(0)).otherwise(place).alias("place"),
                    "value_bytes",
                    F.lit(side).alias("side"),
                )
            )
    return reduce(lambda one, other: one.unionAll(other), frames)


def _decoded(values: Sequence[bytes], schema: StateSchema) -> tuple[Any, ...]:
    import pyarrow as pa

    where = f"the state in {schema.column_family}"
    columns = decode.decode(pa.array(values, pa.binary()), schema.value, where)
    # Two sums are `sum` and `sum_2`, or one of them would not be compared.
    names = unique_names([one.name for one in schema.value])
    found = zip(*(column.to_pylist() for column in columns), strict=True)
    return tuple(dict(zip(names, one, strict=True)) for one in found)


def _close(one: Any, other: Any, tolerance: float) -> bool:  # noqa: ANN401  (any decoded value)
    if isinstance(one, float) and isinstance(other, float):
        same = one == other or (math.isnan(one) and math.isnan(other))
        return same or math.isclose(one, other, rel_tol=tolerance)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            _close(one[name], other[name], tolerance) for name in one
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(
            _close(*pair, tolerance) for pair in zip(one, other, strict=True)
        )
    return bool(one == other)
