"""Splicing state: all rows of a live query but those of some entities, and theirs from a replay.

Which entity a row belongs to is a field of its key. It is found by its name; where the name says
nothing, as in the state of joins, by the columns of the join, or else by the rows of a replay whose
entities are known. Operators that are not kept by the entity cannot be spliced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

from savepoints.checkpoint.state.operators import Operator
from savepoints.errors import IncompatibleError
from savepoints.model import OperatorState
from savepoints.spark.columns import quoted, text_sql
from savepoints.state.storage.key_names import fit_name
from savepoints.state.storage.row_sources import SavedRows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# By operator, the field of its rows' `key` that is the entity.
EntityFields: TypeAlias = "Mapping[int, str]"
# The columns that a join goes by, left and right, by position of its key.
JoinKeys: TypeAlias = "Mapping[int, tuple[tuple[str, str], ...]]"

ENTITY = "entity"
_CARRIED = ("column_family", "key_hash", "ord", "key_bytes", "value_bytes")
_JOIN = "symmetricHashJoin"
_HINT = (
    "replay all events with savepoints merge --policy replay-all, or move the part of the "
    "query after this operator to a query of its own"
)


@dataclass(frozen=True)
class OperatorKey:
    """The key of an operator's rows.

    Attributes:
        named: Those of them that are called as an entity key of the application.
    """

    operator_id: int
    operator_name: str
    fields: tuple[str, ...]
    named: tuple[str, ...]

    def refused(self, why: str) -> IncompatibleError:
        """Return the error that says that an operator is not kept by the entity."""
        return IncompatibleError(
            f"the state of operator {self.operator_id} ({self.operator_name}) is not keyed by "
            f"the entity: {why}",
            hint=_HINT,
            operator_id=self.operator_id,
            operator_name=self.operator_name,
        )


def keys(
    saved: SavedRows,
    operators: Sequence[Operator],
    entity_keys: Collection[str],
    join_keys: JoinKeys,
) -> list[OperatorKey]:
    """Return the key of each operator.

    Args:
        entity_keys: The columns that the application's inputs call their entity key.
        join_keys: What is known of the columns of its joins.

    Raises:
        IncompatibleError: If an operator has no key at all.
    """
    from pyspark.sql.types import StructType

    wanted = {fit_name(one).lower() for one in entity_keys}
    found = []
    for one in operators:
        key_type = saved.rows(one.operator_id, one.stores[0]).schema["key"].dataType
        fields = tuple(key_type.names) if isinstance(key_type, StructType) else ()
        names = [{field.lower()} for field in fields]
        if one.name == _JOIN:
            columns = join_keys.get(one.operator_id, ())
            names = [{fit_name(name).lower() for name in pair} for pair in columns]
        named = tuple(
            field for field, called in zip(fields, names, strict=False) if called & wanted
        )
        key = OperatorKey(one.operator_id, one.name, fields, named)
        if not fields:
            raise key.refused("it has one state for all rows")
        found.append(key)
    return found


def named_fields(found: Sequence[OperatorKey]) -> dict[int, str]:
    """Return the entity field of each operator as far as names say it, before any row is known."""
    fields = {}
    for key in found:
        candidates = key.named or (key.fields if len(key.fields) == 1 else ())
        if len(candidates) != 1:
            raise key.refused(
                f"its rows are keyed by {', '.join(key.fields)}, and it is unclear which of "
                "these is the entity"
            )
        fields[key.operator_id] = candidates[0]
    return fields


def entity_fields(
    found: Sequence[OperatorKey],
    saved: SavedRows,
    operators: Sequence[Operator],
    entities: DataFrame,
) -> dict[int, str]:
    """Return the entity field of each operator, proved by rows of known entities.

    Args:
        entities: All entities that were replayed: entity (string).

    Raises:
        IncompatibleError: If an operator has rows that are of none of these entities, or which
            field is the entity cannot be told.
    """
    strangers = _strangers(found, saved, operators, entities)
    fields: dict[int, str] = {}
    for key in found:
        candidates = key.named or key.fields
        if key.operator_id not in strangers:
            fields |= named_fields([key])
            continue
        fitting = [one for one in candidates if not strangers[key.operator_id][one]]
        if len(fitting) != 1:
            kept_by = f"its rows are keyed by {', '.join(key.fields)}, and "
            raise key.refused(
                kept_by + f"{' and '.join(fitting)} could each be the entity"
                if fitting
                else kept_by
                + (
                    f"the values of {' and '.join(candidates)} are not the entities "
                    "whose events were replayed"
                )
            )
        fields[key.operator_id] = fitting[0]
    return fields


def spliced(
    live: SavedRows, replayed: SavedRows, fields: EntityFields, entities: DataFrame
) -> Callable[[OperatorState, str], DataFrame]:
    """Return what gives the rows of a store: those of some entities replayed, the others live.

    Args:
        replayed: The state of the replay, which may have other entities besides.
        entities: The entities that are replaced: entity (string).
    """

    def rows(operator: OperatorState, store: str) -> DataFrame:
        field = fields[operator.operator_id]
        others = of_entities(
            live.rows(operator.operator_id, store), field, entities, how="left_anti"
        )
        mine = of_entities(replayed.rows(operator.operator_id, store), field, entities)
        return others.select(*_CARRIED).unionByName(mine.select(*_CARRIED))

    return rows


def all_of(replayed: SavedRows) -> Callable[[OperatorState, str], DataFrame]:
    """Return what gives the rows of a store: those of a replay of all entities."""
    return lambda operator, store: replayed.rows(operator.operator_id, store).select(*_CARRIED)


def seeded(
    bases: Sequence[tuple[DataFrame, SavedRows]], fields: EntityFields
) -> Callable[[OperatorState, str], DataFrame]:
    """Return what gives the rows of a store, each entity from the cut that it begins from.

    Args:
        bases: Entities (entity string), and the state that theirs are taken from.
    """

    def rows(operator: OperatorState, store: str) -> DataFrame:
        field = fields[operator.operator_id]
        frames = [
            of_entities(saved.rows(operator.operator_id, store), field, entities).select(*_CARRIED)
            for entities, saved in bases
        ]
        return reduce(lambda one, other: one.unionByName(other), frames)

    return rows


def of_entities(
    rows: DataFrame, field: str, entities: DataFrame, *, how: str = "left_semi"
) -> DataFrame:
    """Return the rows of some entities, or with `left_anti` all others."""
    from pyspark.sql import functions as F

    wanted = F.broadcast(entities.select(F.col(ENTITY).alias("__wanted")))
    return rows.join(wanted, entity(field) == F.col("__wanted"), how)


def entity(field: str) -> Column:
    """Return the entity of a row as text."""
    from pyspark.sql import functions as F

    return F.expr(text_sql(f"key.{quoted(field)}"))


def _strangers(
    found: Sequence[OperatorKey],
    saved: SavedRows,
    operators: Sequence[Operator],
    entities: DataFrame,
) -> dict[int, dict[str, int]]:
    """Count, for each operator with rows, those whose field has a value that is no entity."""
    from pyspark.sql import functions as F

    by_id = {one.operator_id: one for one in operators}
    frames = []
    for key in found:
        candidates = key.named or key.fields
        values = F.map_from_arrays(
            F.array(*(F.lit(one) for one in candidates)),
            F.array(*(entity(one) for one in candidates)),
        )
        for store in by_id[key.operator_id].stores:
            rows = saved.rows(key.operator_id, store)
            frames.append(
                rows.select(
                    F.lit(key.operator_id).alias("operator_id"),
                    F.explode(values).alias("field", "value"),
                )
            )
    known = F.broadcast(entities.select(F.col(ENTITY).alias("__wanted"), F.lit(1).alias("known")))
    counted = (
        reduce(lambda one, other: one.unionAll(other), frames)
        .join(known, F.col("value") == F.col("__wanted"), "left")
        .groupBy("operator_id", "field")
        .agg(F.count_if(F.col("known").isNull()).alias("strangers"))
        .collect()
    )
    strangers: dict[int, dict[str, int]] = {}
    for row in counted:
        strangers.setdefault(row["operator_id"], {})[row["field"]] = int(row["strangers"])
    return strangers
