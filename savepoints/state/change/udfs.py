"""Functions over Spark columns that decode, change and encode rows in Python workers.

Values pass through Arrow, because pandas confuses null and NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from savepoints.checkpoint.evolution.findings import unique_names
from savepoints.checkpoint.state.schema import SparkType, StateField
from savepoints.spark.arrow_functions import arrow_function
from savepoints.state.change import column_transforms
from savepoints.state.codec import decode as codec_decode
from savepoints.state.codec.encode import encode
from savepoints.texts import count_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

    from savepoints.state.codec.decode import Array

Columnwise: TypeAlias = "Callable[[Column], Column]"
# Takes and returns a batch with the columns of the state; keys unchanged, row for row.
RowFunction: TypeAlias = "Callable[[pa.RecordBatch], pa.RecordBatch]"


def decoder(fields: Sequence[StateField], where: str) -> Columnwise | None:
    """Return a decoder of rows into a struct without voids; None if it would be empty."""
    import pyarrow as pa

    names = unique_names([one.name for one in fields])
    arrow = codec_decode.arrow_fields(fields, where)
    kept = [place for place, one in enumerate(fields) if one.type != "void"]
    if not kept:
        return None
    result = [arrow[place].with_name(names[place]).with_nullable(nullable=True) for place in kept]

    def decode(found: Array) -> Array:
        decoded = codec_decode.decode(cast("pa.BinaryArray", found), fields, where)
        return pa.StructArray.from_arrays([decoded[place] for place in kept], fields=result)

    return arrow_function(decode, _struct_type(fields, names))


def encoder(fields: Sequence[StateField], where: str) -> Columnwise:
    """Return an encoder of values; null stays null."""
    import pyarrow as pa

    arrow = codec_decode.arrow_fields(fields, where)

    def encode_values(found: Array) -> Array:
        there = found.is_valid()
        values: Any = found.filter(there)
        given = iter(range(values.type.num_fields))
        parts = [
            pa.nulls(len(values))
            if one.type == "void"
            # Restores names and nullability of nested fields; values are unchanged.
            else column_transforms.exactly(values.field(next(given)), form.type)
            for one, form in zip(fields, arrow, strict=True)
        ]
        encoded = encode(parts, fields, where)
        return _spread(encoded, there)

    return arrow_function(encode_values, "binary")


def changer(function: RowFunction, frozen: frozenset[str], value_type: DataType) -> Columnwise:
    """Return a function over structs of a row's columns that returns the new values."""

    def change(found: Array) -> Array:
        import pyarrow as pa

        there = found.is_valid()
        batch = pa.RecordBatch.from_struct_array(cast("pa.StructArray", found.filter(there)))
        made = function(batch)
        _require_same_rows(batch, made, frozen)
        new = column_transforms.exactly(made.column("value"), batch.schema.field("value").type)
        return _spread(new, there)

    return arrow_function(change, value_type)


def _spread(values: Array, there: Array) -> Array:
    """Put values back where they came from; null everywhere else."""
    import pyarrow as pa
    from pyarrow import compute

    place = compute.subtract(compute.cumulative_sum(there.cast(pa.int64())), 1)
    found: Any = values
    spread: Array = found.take(compute.if_else(there, place, pa.scalar(None, pa.int64())))
    return spread


def _require_same_rows(given: Any, made: Any, frozen: frozenset[str]) -> None:  # noqa: ANN401
    """Check what a function returned: the same rows, and nothing but values changed."""
    import pyarrow as pa

    if not isinstance(made, pa.RecordBatch) or made.schema.names != given.schema.names:
        has = made.schema.names if isinstance(made, pa.RecordBatch) else type(made).__name__
        raise ValueError(
            f"the function returned {has} instead of a RecordBatch with the columns "
            f"{given.schema.names}"
        )
    if made.num_rows != given.num_rows:
        returned = count_text(made.num_rows, "row")
        raise ValueError(f"the function returned {returned} instead of {given.num_rows:,}")
    pairs = [(name, given.column(name), made.column(name)) for name in given.schema.names[:-1]]
    before: Any = given.column("value")
    after: Any = made.column("value")
    pairs += [(name, before.field(name), after.field(name)) for name in sorted(frozen)]
    for name, was, now in pairs:
        # As text, because NaN does not equal itself.
        if not was.equals(now) and str(was.to_pylist()) != str(now.to_pylist()):
            raise ValueError(f"the function changed {name}, which must stay unchanged")


def _struct_type(fields: Sequence[StateField], names: Sequence[str]) -> StructType:
    """Return the type of a decoded row: without voids, everything nullable."""
    from pyspark.sql.types import StructType

    found = [
        # Without metadata, such as watermark delays, which Arrow drops.
        {"name": name, "type": _nullable(one.type), "nullable": True, "metadata": {}}
        for one, name in zip(fields, names, strict=True)
        if one.type != "void"
    ]
    return StructType.fromJson({"type": "struct", "fields": found})


def _nullable(spark_type: SparkType) -> SparkType:
    if isinstance(spark_type, str):
        return spark_type
    if spark_type["type"] == "array":
        return {
            **spark_type, "elementType": _nullable(spark_type["elementType"]), "containsNull": True
        }  # fmt: skip
    inner: list[Mapping[str, Any]] = [
        {"name": one["name"], "type": _nullable(one["type"]), "nullable": True, "metadata": {}}
        for one in spark_type["fields"]
    ]
    return {**spark_type, "fields": inner}
