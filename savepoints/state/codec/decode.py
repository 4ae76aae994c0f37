"""Decode UnsafeRow bytes to Arrow, a whole array of rows at a time.

An UnsafeRow is a bit per field that says it is null, in words of 64 bits, then a word per field:
the value itself, or offset << 32 | size of a value behind the words. Offsets count from the start
of the row, of the nested row, or of the array that the word stands in, and all parts begin at
multiples of 8 bytes. Integers are little-endian. Source: `UnsafeRow`, `UnsafeArrayData`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from savepoints.checkpoint.state.schema import SparkType, StateField, type_text
from savepoints.errors import OTHER_BATCH, SAVE_NATIVE, IncompatibleError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Booleans = NDArray[np.bool_]

    # pyarrow's stubs require the values' type, which only the schema has.
    Array = pa.Array[Any]

# Types that are kept in their word, and the bytes that an element of an array takes.
FIXED_BYTES = {
    "boolean": 1,
    "byte": 1,
    "short": 2,
    "integer": 4,
    "long": 8,
    "float": 4,
    "double": 8,
    "date": 4,
    "timestamp": 8,
    "timestamp_ntz": 8,
}
WORD = 8
WORD_BITS = 64
DECIMAL_BYTES = 16
# Decimals of at most so many digits are kept as a long.
DIGITS_OF_A_LONG = 18
_COLLATIONS = "__COLLATIONS"


def arrow_type(spark_type: SparkType, field: str) -> pa.DataType:
    """Return the Arrow type that Spark uses for a type.

    Args:
        spark_type: Spark's JSON of the type.
    """
    import pyarrow as pa

    if isinstance(spark_type, str):
        if found := _named_types().get(spark_type):
            return found
        if spark_type.startswith("decimal("):
            digits, scale = spark_type.removeprefix("decimal(").removesuffix(")").split(",")
            return pa.decimal128(int(digits), int(scale))
    elif spark_type["type"] == "struct":
        return pa.struct(arrow_fields(fields_of(spark_type), field))
    elif spark_type["type"] == "array":
        element = arrow_type(spark_type["elementType"], f"{field}.element")
        return pa.list_(pa.field("element", element, nullable=spark_type["containsNull"]))
    raise IncompatibleError(
        f"{field} is of type {type_text(spark_type)}, which cannot be decoded",
        hint=SAVE_NATIVE,
        field=field,
        type=type_text(spark_type),
    )


@lru_cache(maxsize=1)
def _named_types() -> dict[str, pa.DataType]:
    import pyarrow as pa

    return {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "string": pa.string(),
        "binary": pa.binary(),
        "void": pa.null(),
    }


def arrow_fields(fields: Sequence[StateField], where: str) -> list[pa.Field[Any]]:
    """Return the Arrow fields of a state key or value."""
    import pyarrow as pa

    found = []
    for one in fields:
        name = f"{where}.{one.name}"
        if _COLLATIONS in one.metadata:
            raise IncompatibleError(
                f"{name} is a string with the collation "
                f"{', '.join(one.metadata[_COLLATIONS].values())}, which cannot be decoded",
                hint=SAVE_NATIVE,
                field=name,
                type="string",
            )
        found.append(pa.field(one.name, arrow_type(one.type, name), nullable=one.nullable))
    return found


def decode(rows: pa.BinaryArray, fields: Sequence[StateField], where: str) -> list[Array]:
    """Decode rows of one schema.

    Args:
        rows: UnsafeRow bytes, no nulls.

    Returns:
        One array per field, of the types that `arrow_fields` says.
    """
    import numpy as np

    types = [field.type for field in arrow_fields(fields, where)]
    _, offsets_buffer, data_buffer = rows.buffers()
    offsets = np.frombuffer(memoryview(offsets_buffer or b""), np.int32)
    offsets = offsets[rows.offset : rows.offset + len(rows) + 1]
    data = np.frombuffer(memoryview(data_buffer or b""), np.uint8)
    starts, sizes = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    if (offsets % WORD).any():
        raise _misfit(where, "a row's size is not a multiple of 8 bytes")
    words = data[: len(data) // WORD * WORD].view("<i8")
    decoder = _Decoder(data, words, where)
    return decoder.row(_Spans(starts, sizes), [one.type for one in fields], types)


@dataclass(frozen=True)
class _Spans:
    """Positions of rows, arrays or values in the data: first bytes and sizes."""

    starts: Integers
    sizes: Integers

    def take(self, indices: Integers) -> _Spans:
        return _Spans(self.starts[indices], self.sizes[indices])


@dataclass(frozen=True)
class _Decoder:
    """Decodes values from one buffer."""

    data: NDArray[np.uint8]
    words: Integers
    where: str

    def row(
        self, rows: _Spans, spark_types: Sequence[SparkType], types: Sequence[pa.DataType]
    ) -> list[Array]:
        """Decode the fields of rows."""
        nulls_words = -(-len(types) // WORD_BITS)
        if (rows.sizes < (nulls_words + len(types)) * WORD).any():
            raise _misfit(self.where, f"a row is too short for {len(types)} fields")
        first = rows.starts // WORD
        columns = []
        for position, (spark_type, one) in enumerate(zip(spark_types, types, strict=True)):
            bits = self.words[first + position // WORD_BITS]
            nulls = (bits >> (position % WORD_BITS) & 1).astype(bool)
            slots = self.words[first + nulls_words + position]
            columns.append(self._column(slots, nulls, rows, spark_type, one))
        return columns

    def _column(
        self,
        slots: Integers,
        nulls: Booleans,
        inside: _Spans,
        spark_type: SparkType,
        one: pa.DataType,
    ) -> Array:
        """Decode one field from its words and the rows or arrays around them."""
        import pyarrow as pa

        if isinstance(spark_type, str):
            return self._named(slots, nulls, inside, spark_type, one)
        spans = self._spans(slots, nulls, inside)
        if isinstance(one, pa.StructType):
            return self._structs(spans, nulls, spark_type, one)
        return self._arrays(spans, nulls, spark_type["elementType"], one)

    def _named(
        self, slots: Integers, nulls: Booleans, inside: _Spans, spark_type: str, one: pa.DataType
    ) -> Array:
        import pyarrow as pa

        if spark_type in FIXED_BYTES:
            return _fixed(slots, nulls, spark_type, one)
        if spark_type == "void":
            return pa.nulls(len(nulls))
        if not isinstance(one, pa.Decimal128Type):
            return self._bytes(self._spans(slots, nulls, inside), nulls, one)
        if one.precision <= DIGITS_OF_A_LONG:
            return _decimals(slots, slots >> (WORD_BITS - 1), nulls, one)
        return self._large_decimals(self._spans(slots, nulls, inside), nulls, one)

    def _spans(self, slots: Integers, nulls: Booleans, inside: _Spans) -> _Spans:
        """Return the positions of the values behind the words; those of nulls are empty."""
        import numpy as np

        offsets = np.where(nulls, 0, slots >> 32)
        sizes = np.where(nulls, 0, slots & 0xFFFFFFFF)
        if (offsets < 0).any() or (offsets + sizes > inside.sizes).any():
            raise _misfit(self.where, "a value lies outside its row")
        return _Spans(inside.starts + offsets, sizes)

    def _bytes(self, values: _Spans, nulls: Booleans, one: pa.DataType) -> Array:
        import numpy as np
        import pyarrow as pa

        offsets = offsets_of(values.sizes)
        shift = np.repeat(values.starts - offsets[:-1], values.sizes)
        gathered = self.data[shift + np.arange(len(shift))]
        buffers = [_validity(nulls), buffer_of(offsets.astype(np.int32)), buffer_of(gathered)]
        return pa.Array.from_buffers(one, len(nulls), buffers)

    def _large_decimals(self, values: _Spans, nulls: Booleans, one: pa.DataType) -> Array:
        """Turn Java's big-endian integers of up to 16 bytes into Arrow's little-endian ones."""
        import numpy as np

        if (values.sizes > DECIMAL_BYTES).any() or (values.sizes[~nulls] == 0).any():
            raise _misfit(self.where, "a decimal does not have 1 to 16 bytes")
        place = np.minimum(values.starts, max(len(self.data) - 1, 0))
        sign = np.where(self.data[place] & 0x80, np.uint8(0xFF), np.uint8(0))
        digits = np.empty((len(nulls), DECIMAL_BYTES), np.uint8)
        for position in range(DECIMAL_BYTES):
            there = position < values.sizes
            at = np.where(there, values.starts + values.sizes - 1 - position, place)
            digits[:, position] = np.where(there, self.data[at], sign)
        halves = digits.view("<i8")
        return _decimals(halves[:, 0], halves[:, 1], nulls, one)

    def _structs(
        self, values: _Spans, nulls: Booleans, spark_type: Mapping[str, Any], one: pa.StructType
    ) -> Array:
        import numpy as np
        import pyarrow as pa

        self._expect_words(values)
        there = np.flatnonzero(~nulls)
        fields = [one.field(position) for position in range(one.num_fields)]
        columns = self.row(
            values.take(there),
            [field.type for field in fields_of(spark_type)],
            [field.type for field in fields],
        )
        found = pa.StructArray.from_arrays(columns, fields=fields)
        if len(there) == len(nulls):
            return found
        order = np.zeros(len(nulls), np.int64)
        order[there] = np.arange(len(there))
        return found.take(pa.array(order, pa.int64(), mask=nulls))

    def _arrays(
        self, values: _Spans, nulls: Booleans, element: SparkType, one: pa.DataType
    ) -> Array:
        """Decode arrays: their length, a bit per element that says it is null, the elements."""
        import numpy as np
        import pyarrow as pa

        self._expect_words(values)
        there = np.flatnonzero(~nulls)
        if (values.sizes[there] < WORD).any():
            raise _misfit(self.where, "an array has no length")
        lengths = np.zeros(len(nulls), np.int64)
        lengths[there] = self.words[values.starts[there] // WORD]
        width = FIXED_BYTES.get(element, WORD) if isinstance(element, str) else WORD
        # A damaged length must not overflow what is computed of it.
        plausible = np.clip(lengths, 0, values.sizes)
        header = WORD * (1 + -(-plausible // WORD_BITS))
        too_long = (lengths != plausible) | (header + plausible * width > values.sizes)
        if too_long[there].any():
            raise _misfit(self.where, "an array is longer than its bytes")
        offsets = offsets_of(lengths)
        # For each element: its array, and its position there.
        array = np.repeat(np.arange(len(nulls)), lengths)
        position = np.arange(offsets[-1]) - offsets[array]
        inside = values.take(array)
        bits = self.words[inside.starts // WORD + 1 + position // WORD_BITS]
        element_nulls = (bits >> (position % WORD_BITS) & 1).astype(bool)
        at = inside.starts + header[array] + position * width
        slots = self.data[at[:, None] + np.arange(width)].view(f"<i{width}")[:, 0].astype(np.int64)
        elements = self._column(slots, element_nulls, inside, element, one.field(0).type)
        return pa.Array.from_buffers(
            one,
            len(nulls),
            [_validity(nulls), buffer_of(offsets.astype(np.int32))],
            children=[elements],
        )

    def _expect_words(self, values: _Spans) -> None:
        if ((values.starts | values.sizes) % WORD).any():
            raise _misfit(self.where, "a nested value does not lie at a multiple of 8 bytes")


def _fixed(slots: Integers, nulls: Booleans, spark_type: str, one: pa.DataType) -> Array:
    """Extract values that are smaller than a word."""
    import numpy as np
    import pyarrow as pa

    values: NDArray[Any]
    if spark_type == "boolean":
        values = (slots & 0xFF) != 0
    elif spark_type == "float":
        values = slots.astype(np.int32).view(np.float32)
    elif spark_type == "double":
        values = slots.view(np.float64)
    else:
        values = slots.astype(f"i{one.bit_width // 8}")
    found: Array = pa.array(values, mask=nulls)
    return found if found.type == one else found.view(one)


def _decimals(low: Integers, high: Integers, nulls: Booleans, one: pa.DataType) -> Array:
    import numpy as np
    import pyarrow as pa

    both = np.ascontiguousarray(np.stack([low, high], axis=1))
    return pa.Array.from_buffers(one, len(nulls), [_validity(nulls), buffer_of(both)])


def offsets_of(sizes: Integers) -> Integers:
    """Return the start of each size, and the end of the last."""
    import numpy as np

    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def _validity(nulls: Booleans) -> pa.Buffer | None:
    import numpy as np

    return buffer_of(np.packbits(~nulls, bitorder="little")) if nulls.any() else None


def buffer_of(values: NDArray[Any]) -> pa.Buffer:
    """Return numbers as an Arrow buffer, without a copy."""
    import pyarrow as pa

    return pa.py_buffer(values.data)


def fields_of(struct_type: Mapping[str, Any]) -> list[StateField]:
    """Return the fields of a struct type, given as Spark's JSON."""
    return [StateField.from_json(one) for one in struct_type["fields"]]


def _misfit(where: str, why: str) -> IncompatibleError:
    return IncompatibleError(
        f"{where} does not match the schema in the checkpoint: {why}", hint=OTHER_BATCH
    )
