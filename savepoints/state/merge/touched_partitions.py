"""State partitions in which a splice changes something; the files of the others are copied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, cast

from savepoints.checkpoint.state_partitions import Partitions
from savepoints.model import OperatorState
from savepoints.state.merge import splice
from savepoints.state.merge.splice import EntityFields
from savepoints.state.storage.row_sources import SavedRows
from savepoints.state.storage.write import home

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

# Written where nothing changes, since a reader wants at least one.
_ANY = frozenset({0})
# Types whose text becomes the same value again.
_READ_BACK = frozenset({"string", "byte", "short", "integer", "long"})


def find(
    live: SavedRows,
    replayed: SavedRows,
    operators: Sequence[OperatorState],
    fields: EntityFields,
    entities: DataFrame,
    partitions: int,
) -> Partitions | None:
    """Return, by operator, the partitions that have rows of some entities, before or after.

    Where the entity is the whole key, its hash says the partition; else all rows are looked at.

    Args:
        live: The state into which theirs is spliced.
        replayed: Their state from now on.
        entities: entity (string).
        partitions: How many there are.

    Returns:
        None if there are so many entities that most partitions have some of them.
    """
    most = partitions // 2
    some = entities.limit(most + 1)
    if some.count() > most:
        return None
    frames = [
        frame
        for one in operators
        for store in one.stores
        for frame in _places(live, replayed, one, store, fields[one.operator_id], some)
    ]
    found = reduce(lambda one, other: one.unionAll(other), frames)
    rows = found.select("operator", home(partitions).alias("at")).distinct().collect()
    return {
        one.operator_id: frozenset(row["at"] for row in rows if row["operator"] == one.operator_id)
        or _ANY
        for one in operators
    }


def _places(
    live: SavedRows,
    replayed: SavedRows,
    operator: OperatorState,
    store: str,
    field: str,
    entities: DataFrame,
) -> Iterator[DataFrame]:
    """Return operator (int) and `key_hash` of what a store has of some entities."""
    from pyspark.sql import functions as F

    saved = live.rows(operator.operator_id, store)
    number = F.lit(operator.operator_id).alias("operator")
    key = cast("StructType", saved.schema["key"].dataType)
    if len(key) == 1 and (kind := key[0].dataType).typeName() in _READ_BACK:
        known = entities.select(F.col(splice.ENTITY).try_cast(kind).alias("key"))
        yield known.select(number, F.hash("key").alias("key_hash"))
        return
    for rows in (saved, replayed.rows(operator.operator_id, store)):
        yield splice.of_entities(rows, field, entities).select(number, "key_hash")
