"""Encode Arrow to UnsafeRow bytes, a whole array of rows at a time: the reverse of `decode`.

The bytes are those that Spark writes, bit for bit: the words of nulls and all padding are zero,
what lies behind the words comes in the order of the fields, and a decimal of more than 18 digits
takes 16 bytes of a row, also if it is null. Source: `UnsafeRowWriter`, `UnsafeArrayWriter`,
`GenerateUnsafeProjection`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from savepoints.checkpoint.state.schema import SparkType, StateField, type_text
from savepoints.errors import IncompatibleError
from savepoints.state.codec import decode
from savepoints.state.codec.layout import (
    Arrays,
    Bytes,
    FieldValues,
    Fixed,
    LargeDecimals,
    MeasuredRows,
    Structs,
    array_header,
    padded,
)  # fmt: skip

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from savepoints.state.codec.decode import Array, Booleans, Integers

_WORD = decode.WORD
_DECIMAL_BYTES = decode.DECIMAL_BYTES
# Arrow counts the bytes of an array of rows in 31 bits.
_MOST_BYTES = (1 << 31) - 1
# Rows per step: few enough that intermediate results stay in the processor's cache.
_ROWS_AT_ONCE = 1 << 14


def encode(
    columns: Sequence[Array],
    fields: Sequence[StateField],
    where: str,
    *,
    canonical_floats: bool = False,
) -> pa.BinaryArray:
    """Encode rows of one schema.

    Args:
        columns: One array per field, of the types that `decode.arrow_fields` says and of one
            length; at least one.
        canonical_floats: Whether to write -0.0 as 0.0 and all NaNs alike, as Spark does for the
            keys of some operators (`float_keys`). It keeps the bits of all other floating-point
            numbers.

    Returns:
        UnsafeRow bytes, no nulls.

    Raises:
        IncompatibleError: If a field's type cannot be encoded, a column is of another type, has a
            null that its field does not allow or a decimal with more digits than its field, or if
            the rows have more than 2 GiB.
    """
    import numpy as np
    import pyarrow as pa

    decode.arrow_fields(fields, where)
    if len(columns) != len(fields):
        raise _refused(where, f"has {len(fields)} fields, but {len(columns)} columns were given")
    count = len(columns[0])
    if any(len(column) != count for column in columns):
        raise _refused(where, "was given columns of different lengths")
    encoder = _Encoder(canonical_floats)
    parts, sizes = [], [np.zeros(1, np.int64)]
    for start in range(0, count, _ROWS_AT_ONCE):
        slices = [column.slice(start, _ROWS_AT_ONCE) for column in columns]
        row = encoder.row(slices, fields, where, min(_ROWS_AT_ONCE, count - start))
        starts = decode.offsets_of(row.sizes)
        out = np.zeros(starts[-1] // _WORD, np.int64)
        row.put(out, starts[:-1])
        parts.append(out)
        sizes.append(row.sizes)
    offsets = np.cumsum(np.concatenate(sizes))
    if offsets[-1] > _MOST_BYTES:
        raise _refused(where, (f"has {offsets[-1]} bytes in one batch, but Arrow's limit is 2 GiB"))
    data = parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.int64), *parts])
    buffers = [None, decode.buffer_of(offsets.astype(np.int32)), decode.buffer_of(data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)  # type: ignore[return-value]


@dataclass(frozen=True)
class _Encoder:
    """Measures values and computes their words."""

    canonical_floats: bool

    def row(
        self, columns: Sequence[Array], fields: Sequence[StateField], where: str, count: int
    ) -> MeasuredRows:
        """Measure rows."""
        import numpy as np

        words = -(-len(fields) // decode.WORD_BITS) + len(fields)
        sizes = np.full(count, words * _WORD, np.int64)
        found = []
        for column, field in zip(columns, fields, strict=True):
            name = f"{where}.{field.name}"
            values = self._values(column, field.type, name, nullable=field.nullable)
            if values.sizes is not None:
                sizes += values.sizes
            found.append(values)
        return MeasuredRows(columns=found, sizes=sizes)

    def _values(
        self,
        column: Array,
        spark_type: SparkType,
        name: str,
        *,
        nullable: bool,
        in_array: bool = False,
    ) -> FieldValues:
        import pyarrow as pa

        nulls = _nulls(column)
        if nulls is not None and not nullable:
            raise _refused(name, "holds a null, which the schema of the state does not allow")
        if isinstance(spark_type, str):
            _expect(column.type == decode.arrow_type(spark_type, name), column, spark_type, name)
            return self._named(column, nulls, spark_type, name, in_array=in_array)
        if spark_type["type"] == "struct":
            _expect(pa.types.is_struct(column.type), column, spark_type, name)
            return self._structs(column, nulls, spark_type, name)
        _expect(pa.types.is_list(column.type), column, spark_type, name)
        return self._arrays(column, nulls, spark_type, name)

    def _named(
        self, column: Array, nulls: Booleans | None, spark_type: str, name: str, *, in_array: bool
    ) -> FieldValues:
        import numpy as np
        import pyarrow as pa

        if spark_type == "void":
            return Fixed(nulls=nulls, sizes=None, values=np.zeros(len(column), np.int64))
        if spark_type in decode.FIXED_BYTES:
            words = self._fixed(column, spark_type)
            words = words if nulls is None else np.where(nulls, 0, words)
            return Fixed(nulls=nulls, sizes=None, values=words)
        if not isinstance(column.type, pa.Decimal128Type):
            return _bytes(column, nulls)
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise _refused(name, f"is a {spark_type}: {error}") from None
        halves = _buffer(column, np.dtype("<i8"), 2).reshape(-1, 2)
        if nulls is not None:
            halves = np.where(nulls[:, None], 0, halves)
        if column.type.precision <= decode.DIGITS_OF_A_LONG:
            return Fixed(nulls=nulls, sizes=None, values=halves[:, 0])
        return _large_decimals(halves, nulls, in_array=in_array)

    def _fixed(self, column: Array, spark_type: str) -> Integers:
        """Return values as words; those of nulls are meaningless."""
        import numpy as np

        if spark_type == "boolean":
            return _bits(column, 1).astype(np.int64)
        width = column.type.bit_width // 8
        if spark_type not in {"float", "double"}:
            # Without a sign: the rest of the word is zero.
            return _buffer(column, np.dtype(f"<u{width}")).astype(np.int64)
        floats = _buffer(column, np.dtype(f"<f{width}"))
        if self.canonical_floats:
            canonical = np.where(np.isnan(floats), floats.dtype.type("nan"), floats)
            floats = np.where(canonical == 0, floats.dtype.type(0), canonical)
        if width == _WORD:
            return floats.view(np.int64)
        return floats.view(np.uint32).astype(np.int64)

    def _structs(
        self, column: Array, nulls: Booleans | None, spark_type: Mapping[str, Any], name: str
    ) -> FieldValues:
        import numpy as np

        fields = decode.fields_of(spark_type)
        _expect(column.type.num_fields == len(fields), column, spark_type, name)
        there = _there(column, nulls)
        # Not `flatten`, which adds nulls where the struct is null.
        structs: Any = column
        children = [structs.field(position) for position in range(len(fields))]
        if nulls is not None:
            children = [child.take(_indices(there)) for child in children]
        row = self.row(children, fields, name, len(there))
        sizes = np.zeros(len(column), np.int64)
        sizes[there] = row.sizes
        return Structs(nulls=nulls, sizes=sizes, lengths=sizes, there=there, row=row)

    def _arrays(
        self, column: Array, nulls: Booleans | None, spark_type: Mapping[str, Any], name: str
    ) -> FieldValues:
        import numpy as np

        there = _there(column, nulls)
        kept: Any = column if nulls is None else column.take(_indices(there))
        offsets = _buffer(kept, np.dtype("<i4"), extra=1).astype(np.int64)
        counts = offsets[1:] - offsets[:-1]
        element = spark_type["elementType"]
        elements = self._values(
            kept.flatten(),
            element,
            f"{name}.element",
            nullable=spark_type["containsNull"],
            in_array=True,
        )
        width = decode.FIXED_BYTES.get(element, _WORD) if isinstance(element, str) else _WORD
        size = array_header(counts) + padded(counts * width)
        if elements.sizes is not None:
            behind = decode.offsets_of(elements.sizes)
            first = decode.offsets_of(counts)
            size += behind[first[1:]] - behind[first[:-1]]
        sizes = np.zeros(len(column), np.int64)
        sizes[there] = size
        return Arrays(
            nulls=nulls,
            sizes=sizes,
            lengths=sizes,
            there=there,
            counts=counts,
            width=width,
            elements=elements,
        )


def _bytes(column: Array, nulls: Booleans | None) -> FieldValues:
    import numpy as np
    import pyarrow as pa

    if nulls is not None:
        # Then nothing lies between the bytes of one value and of the next, either.
        column = column.fill_null(pa.scalar(b"", pa.binary()).cast(column.type))
    offsets = _buffer(column, np.dtype("<i4"), extra=1)
    data = np.frombuffer(memoryview(column.buffers()[2] or b""), np.uint8)
    lengths = np.diff(offsets).astype(np.int64)
    return Bytes(
        nulls=nulls, sizes=padded(lengths), lengths=lengths, data=data[offsets[0] : offsets[-1]]
    )


def _large_decimals(halves: Integers, nulls: Booleans | None, *, in_array: bool) -> FieldValues:
    """Turn Arrow's little-endian integers of 16 bytes into Java's big-endian ones."""
    import numpy as np

    digits = np.ascontiguousarray(halves).view(np.uint8).reshape(-1, _DECIMAL_BYTES)
    sign = np.where(halves[:, 1] < 0, np.uint8(0xFF), np.uint8(0))
    # How many bytes are not just the sign; at least one, and one more if its first bit is not it.
    matters = np.where(digits != sign[:, None], np.arange(1, _DECIMAL_BYTES + 1), 1).max(
        axis=1, initial=1
    )
    first = digits[np.arange(len(digits)), matters - 1]
    lengths = matters + (first >> 7 != sign >> 7)
    order = lengths[:, None] - 1 - np.arange(_DECIMAL_BYTES)
    turned = np.take_along_axis(digits, np.maximum(order, 0), axis=1)
    words = np.where(order >= 0, turned, np.uint8(0)).view("<i8")
    if nulls is not None:
        lengths = np.where(nulls, 0, lengths)
    sizes = padded(lengths) if in_array else np.full(len(lengths), _DECIMAL_BYTES, np.int64)
    return LargeDecimals(
        nulls=nulls, sizes=sizes, lengths=lengths, placed_nulls=not in_array, digits=words
    )


def _there(column: Array, nulls: Booleans | None) -> Integers:
    import numpy as np

    return np.arange(len(column)) if nulls is None else np.flatnonzero(~nulls)


def _indices(there: Integers) -> Array:
    import pyarrow as pa

    return pa.array(there, pa.int64())


def _nulls(column: Array) -> Booleans | None:
    import numpy as np
    import pyarrow as pa

    if not column.null_count:
        return None
    if pa.types.is_null(column.type):
        return np.ones(len(column), np.bool_)
    return ~_bits(column, 0)


def _bits(column: Array, buffer: int) -> Booleans:
    import numpy as np

    data = np.frombuffer(memoryview(column.buffers()[buffer] or b""), np.uint8)
    start, end = column.offset, column.offset + len(column)
    bits = np.unpackbits(data[start // 8 : -(-end // 8)], bitorder="little")
    return bits[start % 8 : start % 8 + len(column)].view(np.bool_)


def _buffer(column: Array, kind: np.dtype[Any], each: int = 1, extra: int = 0) -> NDArray[Any]:
    """Return the buffer after the nulls, with a number of items per value and some extra."""
    import numpy as np

    data = column.buffers()[1]
    if data is None or not data.size:
        return np.zeros(len(column) * each + extra, kind)
    items = np.frombuffer(memoryview(data), np.uint8)
    items = items[: len(items) // kind.itemsize * kind.itemsize].view(kind)
    return items[column.offset * each : (column.offset + len(column)) * each + extra]


def _expect(condition: bool, column: Array, spark_type: SparkType, name: str) -> None:
    if not condition:
        wanted = type_text(spark_type)
        raise _refused(name, f"is of type {wanted}, but the given values are of type {column.type}")


def _refused(name: str, why: str) -> IncompatibleError:
    return IncompatibleError(
        f"{name} {why}",
        hint="use a value that the schema of the state allows; to see the state: savepoints "
        "state SAVEPOINT",
        field=name,
    )
