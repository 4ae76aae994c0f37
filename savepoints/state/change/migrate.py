"""Make the rows of a changed program's state stores from a savepoint's canonical rows.

Rows that need no change pass through unchanged. Others are decoded, changed and encoded in Arrow,
and keep their keys' bytes and so their partitions, unless a function makes new keys: then Spark's
own hash of the new key places a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING, Protocol, cast

from savepoints.checkpoint.evolution.operator_pairs import Transfer
from savepoints.checkpoint.state.schema import StateField
from savepoints.errors import IncompatibleError, SavepointsError
from savepoints.model import OperatorState
from savepoints.spark import arrow_batches
from savepoints.spark.versions import SparkVersion
from savepoints.state.change import column_transforms
from savepoints.state.change.column_transforms import ColumnFunction
from savepoints.state.codec import decode, encode, float_keys

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_CARRIED = ("key_hash", "ord", "key_bytes", "value_bytes")
_CARRIED_TYPES = "key_hash int, ord long, key_bytes binary, value_bytes binary"
# A struct can repeat a name, a frame cannot.
_KEY = "_{}"


class KeyFunctions(Protocol):
    """How new keys are made; see `savepoints.runtime.app.KeyMigration`."""

    @property
    def keys(self) -> ColumnFunction:
        """Makes the key columns."""

    @property
    def merge(self) -> ColumnFunction | None:
        """Merges the rows that got the same key."""


@dataclass(frozen=True)
class Migration:
    """How all stores of a program get their rows.

    Attributes:
        values: Functions for values, by the names that transfers have for them.
    """

    transfers: tuple[Transfer, ...]
    values: Mapping[str, ColumnFunction] = field(default_factory=dict)
    keys: Mapping[str, KeyFunctions] = field(default_factory=dict)
    merged: dict[int, int] = field(default_factory=dict)
    _kept: dict[tuple[int, str, str], DataFrame] = field(default_factory=dict)

    def rows_of(self, table: DataFrame, operator: OperatorState, store: str) -> DataFrame:
        """Return the rows of a program's store, not yet placed.

        Returns:
            The columns key_hash, ord, key_bytes, value_bytes and column_family.
        """
        from pyspark.sql import functions as F

        mine = [
            one
            for one in self.transfers
            if (one.operator_id, one.store) == (operator.operator_id, store) and one.source
        ]
        frames = [*_as_they_are(table, mine), *self._changed(table, mine)]
        if not frames:
            # A condition that Spark cannot fold: it would write no store for a frame that it
            # knows to be empty.
            return table.where(F.col("operator_id") == -1).select(*_CARRIED, "column_family")
        return reduce(lambda one, other: one.unionByName(other), frames)

    def release(self) -> None:
        """Release the rows that are cached while they are written."""
        for one in self._kept.values():
            one.unpersist()
        self._kept.clear()

    def _changed(self, table: DataFrame, mine: Sequence[Transfer]) -> Iterator[DataFrame]:
        from pyspark.sql import functions as F

        for one in mine:
            if _is_as_it_is(one):
                continue
            assert one.source is not None
            operator_id, old_store, old_name = one.source
            found = _saved(table, operator_id, old_store, [old_name]).select(*_CARRIED)
            if one.key_function:
                found = self._with_new_keys(found, one, self.keys[one.key_function])
            elif not one.is_untouched:
                change = partial(_values, one, self.values.get(one.function or ""))
                found = arrow_batches.mapped(found, change, _CARRIED_TYPES)
            # Spark requires the column to be nullable, which a literal is not.
            name = F.nullif(F.lit(one.schema.column_family), F.lit(""))
            yield found.select(*_CARRIED, name.alias("column_family"))

    def _with_new_keys(self, found: DataFrame, one: Transfer, made: KeyFunctions) -> DataFrame:
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F

        fields = one.schema.key
        decoded = partial(_keys, one, made.keys, self.values.get(one.function or ""))
        keyed = arrow_batches.mapped(found, decoded, _keyed_type(fields))
        names = [_KEY.format(position) for position in range(len(fields))]
        placed = keyed.withColumn("key_hash", F.hash(*(F.col(name) for name in names)))
        place = (one.operator_id, one.store, one.schema.column_family)
        if place not in self._kept:
            version = SparkVersion.of(found.sparkSession.version)
            encoded_with = partial(encoded_keys, one, version)
            made_keys = arrow_batches.mapped(placed, encoded_with, _CARRIED_TYPES)
            # Once: a function that returned another key the second time would lose or duplicate
            # rows.
            self._kept[place] = made_keys.persist()
            try:
                self.merged[one.operator_id] = made_keys.select("key_bytes").distinct().count()
            except PySparkException as error:
                raise SavepointsError(
                    f"Spark could not compute the keys of {_where(one)}: {error}",
                    hint="correct the program's migrate={…} and run the command again",
                ) from error
        encoded = self._kept[place]
        shared = encoded.groupBy("key_bytes").count().where("count > 1").select("key_bytes")
        if made.merge is None:
            if shared.head() is not None:
                raise IncompatibleError(
                    f"the function for the keys of {_where(one)} returns the same new key for "
                    "several rows",
                    hint="combine these rows: KeyMigration(keys=…, merge=…)",
                )
            return encoded
        merge = made.merge

        def merged(table):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  (Spark reads hints)
            return _merged(one, merge, table)

        alone = encoded.join(shared, "key_bytes", "left_anti").select(*_CARRIED)
        several = encoded.join(shared, "key_bytes", "left_semi").select(*_CARRIED)
        return alone.unionByName(several.groupBy("key_bytes").applyInArrow(merged, _CARRIED_TYPES))


def _is_as_it_is(one: Transfer) -> bool:
    """Return True if rows pass through unchanged, under their own name."""
    return one.is_untouched and one.source is not None and one.source[2] == one.schema.column_family


def _as_they_are(table: DataFrame, mine: Sequence[Transfer]) -> Iterator[DataFrame]:
    """Return the rows of all unchanged column families, in as few scans as possible."""
    by_place: dict[tuple[int, str], list[str]] = {}
    for one in mine:
        if one.source is not None and _is_as_it_is(one):
            by_place.setdefault(one.source[:2], []).append(one.source[2])
    for place, names in by_place.items():
        yield _saved(table, *place, names)


def _saved(table: DataFrame, operator_id: int, store: str, families: Sequence[str]) -> DataFrame:
    """Return the saved rows of column families."""
    from pyspark.sql import functions as F

    return table.where(
        (F.col("operator_id") == operator_id)
        & (F.col("store_name") == store)
        & F.col("column_family").isin(list(families))
    ).select(*_CARRIED, "column_family")


def counted(table: DataFrame) -> dict[tuple[int, str, str], int]:
    """Count the rows of a savepoint by operator, store and column family."""
    found = table.groupBy("operator_id", "store_name", "column_family").count().collect()
    return {(row[0], row[1], row[2]): int(row[3]) for row in found}


def _bytes(batch: pa.RecordBatch, name: str) -> pa.BinaryArray:
    return cast("pa.BinaryArray", batch.column(name))


def _where(one: Transfer) -> str:
    return f"operator {one.operator_id}, {one.store}, {one.schema.column_family}"


def _made_values(
    one: Transfer, function: ColumnFunction | None, batch: pa.RecordBatch
) -> pa.BinaryArray:
    """Return the new value bytes of a batch."""
    assert one.was is not None
    where = _where(one)
    old = decode.decode(_bytes(batch, "value_bytes"), one.was.value, where)
    if function is None:
        new = column_transforms.make(one.columns, old, batch.num_rows)
    else:
        key = decode.decode(_bytes(batch, "key_bytes"), one.was.key, where)
        whole = column_transforms.batch(one.was, key, old)
        new = column_transforms.given(function, whole, one.schema.value, where, batch.num_rows)
    return encode.encode(new, one.schema.value, where)


def _values(
    one: Transfer, function: ColumnFunction | None, batch: pa.RecordBatch
) -> pa.RecordBatch:
    import pyarrow as pa

    columns = [batch.column(name) for name in _CARRIED[:-1]]
    made = _made_values(one, function, batch)
    return pa.RecordBatch.from_arrays([*columns, made], names=list(_CARRIED))


def _keyed_type(fields: Sequence[StateField]) -> StructType:
    """Return the type of rows with decoded new keys, whose exact types Spark's hash depends on."""
    from pyspark.sql.types import BinaryType, LongType, StructField, StructType

    json = [{**one.to_json(), "nullable": True, "metadata": {}} for one in fields]
    keys = [StructField.fromJson(one) for one in json]
    return StructType(
        [
            *(
                StructField(_KEY.format(position), one.dataType)
                for position, one in enumerate(keys)
            ),
            StructField("ord", LongType()),
            StructField("value_bytes", BinaryType()),
        ]
    )


def _keys(
    one: Transfer, function: ColumnFunction, values: ColumnFunction | None, batch: pa.RecordBatch
) -> pa.RecordBatch:
    """Return decoded new keys, with the rest."""
    import pyarrow as pa

    assert one.was is not None
    where = _where(one)
    key = decode.decode(_bytes(batch, "key_bytes"), one.was.key, where)
    old = decode.decode(_bytes(batch, "value_bytes"), one.was.value, where)
    whole = column_transforms.batch(one.was, key, old)
    new = column_transforms.given(
        function, whole, one.schema.key, f"keys of {where}", batch.num_rows
    )
    made = _made_values(one, values, batch)
    names = [*(_KEY.format(position) for position in range(len(new))), "ord", "value_bytes"]
    return pa.RecordBatch.from_arrays([*new, batch.column("ord"), made], names=names)


def encoded_keys(one: Transfer, version: SparkVersion, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with new keys as a version of Spark encodes those of the operator."""
    import pyarrow as pa

    # Spark gives times in the session's zone, which is only another way to write the same.
    fields = decode.arrow_fields(one.schema.key, _where(one))
    key = [
        column_transforms.exactly(batch.column(_KEY.format(position)), field.type)
        for position, field in enumerate(fields)
    ]
    canonical = float_keys.are_canonical(one.operator, version)
    encoded = encode.encode(key, one.schema.key, _where(one), canonical_floats=canonical)
    columns = [batch.column("key_hash"), batch.column("ord"), encoded, batch.column("value_bytes")]
    return pa.RecordBatch.from_arrays(columns, names=list(_CARRIED))


def _merged(one: Transfer, function: ColumnFunction, table: pa.Table) -> pa.Table:
    """Merge the rows with one key into one."""
    import pyarrow as pa

    where = _where(one)
    (batch,) = table.combine_chunks().to_batches()
    key = decode.decode(_bytes(batch, "key_bytes"), one.schema.key, where)
    value = decode.decode(_bytes(batch, "value_bytes"), one.schema.value, where)
    whole = column_transforms.batch(one.schema, key, value)
    new = column_transforms.given(function, whole, one.schema.value, f"merging keys of {where}", 1)
    encoded = encode.encode(new, one.schema.value, where)
    first = [batch.column(name).slice(0, 1) for name in _CARRIED[:-1]]
    return pa.Table.from_arrays([*first, encoded], names=list(_CARRIED))
