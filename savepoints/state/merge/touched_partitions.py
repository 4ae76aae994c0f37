"""State partitions that have rows of some entities; a merge leaves the others alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from savepoints.checkpoint.state.operators import HDFS_PROVIDER
from savepoints.checkpoint.state_partitions import Partitions
from savepoints.io import Location
from savepoints.model import OperatorState
from savepoints.state.merge import splice
from savepoints.state.merge.splice import EntityFields
from savepoints.state.storage.row_sources import CheckpointRows, SavedRows
from savepoints.state.storage.write import home

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

# Where no partition has any, since a reader wants at least one.
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
    if (some := _few(entities, partitions)) is None:
        return None
    frames = []
    for one in operators:
        for store in one.stores:
            saved = live.rows(one.operator_id, store)
            if (kind := _whole_key(saved)) is not None:
                places = [_hashes(some, kind)]
            else:
                both = (saved, replayed.rows(one.operator_id, store))
                places = [splice.of_entities(rows, fields[one.operator_id], some) for rows in both]
            frames += [_numbered(rows, one.operator_id) for rows in places]
    return _by_operator(frames, [one.operator_id for one in operators], partitions)


def narrowed(saved: SavedRows, entities: DataFrame, place: Location) -> SavedRows:
    """Return state that has all rows of some entities, read from few state partitions if possible.

    To open a store of RocksDB takes longer than to read few rows from it.

    Args:
        entities: entity (string).
        place: An empty directory for the files that are read.

    Returns:
        What was given, where the keys do not say in which partitions these entities are, or where
        they are in most.
    """
    if not isinstance(saved, CheckpointRows):
        return saved
    files, partitions = saved.files, saved.files.cut.partitions or 1
    operators = files.operators
    is_laid_out = files.cut.provider != HDFS_PROVIDER and operators
    if not is_laid_out or any(one.has_column_families for one in operators):
        return saved
    # Before any store is opened for them.
    if (some := _few(entities, partitions)) is None:
        return saved
    stores = [(one.operator_id, name) for one in operators for name in one.stores]
    kinds = {one: kind for one in stores if (kind := _whole_key(saved.rows(*one))) is not None}
    if len(kinds) < len(stores):
        return saved
    frames = [_numbered(_hashes(some, kind), operator) for (operator, _), kind in kinds.items()]
    touched = _by_operator(frames, [one.operator_id for one in operators], partitions)
    return saved.among(touched, place)


def _few(entities: DataFrame, partitions: int) -> DataFrame | None:
    """Return the entities; None if there are so many that most partitions have some of them."""
    most = partitions // 2
    some = entities.limit(most + 1)
    return None if some.count() > most else some


def _whole_key(rows: DataFrame) -> DataType | None:
    """Return the type of the key's only field, if the text of an entity says its value."""
    from pyspark.sql.types import StructType

    key = rows.schema["key"].dataType
    if not isinstance(key, StructType) or len(key) != 1:
        return None
    return key[0].dataType if key[0].dataType.typeName() in _READ_BACK else None


def _hashes(entities: DataFrame, kind: DataType) -> DataFrame:
    """Return `key_hash` of entities that are whole keys of a type."""
    from pyspark.sql import functions as F

    known = entities.select(F.col(splice.ENTITY).try_cast(kind).alias("key"))
    return known.select(F.hash("key").alias("key_hash"))


def _numbered(rows: DataFrame, operator_id: int) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.select(F.lit(operator_id).alias("operator"), "key_hash")


def _by_operator(
    frames: Sequence[DataFrame], operators: Sequence[int], partitions: int
) -> Partitions:
    found = reduce(lambda one, other: one.unionAll(other), frames)
    rows = found.select("operator", home(partitions).alias("at")).distinct().collect()
    return {
        one: frozenset(row["at"] for row in rows if row["operator"] == one) or _ANY
        for one in operators
    }
