"""Arrow to UnsafeRow bytes, compared with the bytes that Spark wrote."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import UTC
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoints.checkpoint.state import compression, records
from savepoints.checkpoint.state import schema as state_schema
from savepoints.checkpoint.state.schema import StateField
from savepoints.errors import IncompatibleError
from savepoints.state.codec import decode
from savepoints.state.codec.encode import encode
from tests import draw
from tests.samples import files_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = draw.examples(3_000, 100_000)


def listed(element: Any, *, contains_null: bool = True) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": contains_null}


def struct_of(*fields: StateField) -> dict[str, Any]:
    return {"type": "struct", "fields": [one.to_json() for one in fields]}


# Spark's expressions of one row number, `id`; a seventh of most of them is null.
VALUES = {
    "bool": "id % 3 = 0",
    "tiny": "cast(id % 256 - 128 as tinyint)",
    "small": "cast(hash(id) % 32768 as smallint)",
    "number": "hash(id)",
    "big": "xxhash64(id)",
    "single": "cast(hash(id) / 7 as float)",
    "double": "case id % 5 when 0 then double('NaN') when 1 then -0.0d else hash(id) / 7d end",
    "day": "date_add(date'1970-01-01', hash(id) % 100000)",
    "at": "timestamp_micros(xxhash64(id) div 100)",
    "at_ntz": "cast(timestamp_micros(xxhash64(id) div 100) as timestamp_ntz)",
    "money": "cast(hash(id) / 100 as decimal(18,2))",
    "large": "cast(xxhash64(id) as decimal(38,0)) * element_at(array(1, -1, 0, 4000000000000000), "
    "cast(id % 4 + 1 as int))",
    "text": "repeat(element_at(array('', 'a', 'käse🧀', '12345678'), cast(id % 4 + 1 as int)), "
    "cast(id % 7 as int))",
    "bytes": "unhex(left(sha2(cast(id as string), 256), cast(id % 30 * 2 as int)))",
    "nested": "struct(id % 5 as i, if(id % 2 = 0, null, repeat('x', cast(id % 11 as int))) as s, "
    "struct(if(id % 3 = 0, null, cast(hash(id) as decimal(30,5))) as d, id % 2 = 0 as b) as deep)",
    "numbers": "transform(sequence(1, id % 70), x -> if(x % 4 = 0, null, cast(x * id as int)))",
    "flags": "transform(sequence(0, id % 66), x -> if(x % 5 = 0, null, x % 2 = 0))",
    "decimals": "transform(sequence(0, id % 3), x -> if(x = 1, null, "
    "cast(hash(id + x) as decimal(25,3)) * element_at(array(1, 0, 10000000), cast(x + 1 as int))))",
    "texts": "transform(sequence(0, id % 5), "
    "x -> if(x = 2, null, repeat('y', cast(x * 3 as int))))",
    "structs": "transform(sequence(0, id % 3), x -> if(x = 1, null, "
    "struct(repeat('z', cast(x as int)) as s, array(id, x, null) as l)))",
    "lists": "array(array(1, null), array(), null, array(cast(id % 9 as int)))",
    # So many that the bits for nulls need two words, of which the sign bit is used, too.
    **{f"more{number}": f"if(id % {number + 2} = 0, null, {number})" for number in range(50)},
}


@pytest.mark.spark
def test_rows_have_the_bytes_that_spark_writes(spark: SparkSession, tmp_path: Path) -> None:
    """Buffers of `first`, value and boolean for each; keys whose floats Spark makes canonical."""
    from pyspark.sql import functions as F

    columns = [F.expr(f"if(id % 7 = 6, null, {one})").alias(name) for name, one in VALUES.items()]
    source, checkpoint = str(tmp_path / "in"), tmp_path / "ck"
    keys = ["single", "double", "text", "large", "id"]
    made = spark.range(ROWS).select("id", *columns)
    made.coalesce(1).write.parquet(source)
    query = (
        spark.readStream.schema(made.schema)
        .parquet(source)
        .groupBy(*keys)
        .agg(*(F.first(name).alias(f"of {name}") for name in VALUES))
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    reader = spark.read.format("statestore").option("_readAllColumnFamilies", "true")
    table = reader.load(str(checkpoint)).select("key_bytes", "value_bytes").toArrow()
    table = table.combine_chunks()
    path = state_schema.path(0, "default")
    (schema,) = state_schema.parse((checkpoint / path).read_bytes(), path)
    raw: list[Any] = [table[name].chunk(0) for name in ("value_bytes", "key_bytes")]
    value_bytes, key_bytes = raw
    assert len(value_bytes) == ROWS
    values: list[Any] = decode.decode(value_bytes, schema.value, "value")
    assert encode(values, schema.value, "value").equals(value_bytes)
    assert len(schema.value) > 128
    # Not the key's own floats, which are canonical already, but those of the rows they came from.
    given_floats = [values[2 * list(VALUES).index(name)] for name in ("single", "double")]
    key = decode.decode(key_bytes, schema.key, "key")
    assert encode(key, schema.key, "key").equals(key_bytes)
    raw = [*given_floats, *key[2:]]
    assert encode(raw, schema.key, "key", canonical_floats=True).equals(key_bytes)
    assert not encode(raw, schema.key, "key").equals(key_bytes), "there are no negative zeros"


def state_rows(sample: str) -> Iterator[tuple[list[StateField], pa.BinaryArray]]:
    """Return all keys and all values in the state files of a sample of Spark's default provider."""
    files = files_of(sample)
    path = state_schema.path(0, "default")
    (schema,) = state_schema.parse(files[path], path)
    found: list[tuple[bytes, bytes | None]] = []
    for name, data in files.items():
        if name.endswith((".delta", ".snapshot")):
            stream = compression.open_reader(data, "lz4", name)
            found += [record for batch in records.read(stream, name) for record in batch]
    assert len(found) > 3
    yield list(schema.key), pa.array([key for key, _ in found], pa.binary())
    yield list(schema.value), pa.array([value for _, value in found if value], pa.binary())


@pytest.mark.parametrize("sample", ["hdfs", "hdfs_snapshot"])
def test_rows_of_samples_are_encoded_as_they_were(sample: str) -> None:
    for fields, written in state_rows(sample):
        assert encode(decode.decode(written, fields, "row"), fields, "row").equals(written)


LEAVES = {
    "boolean": st.booleans(),
    "byte": st.integers(-128, 127),
    "short": st.integers(-(1 << 15), (1 << 15) - 1),
    "integer": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    "binary": st.binary(max_size=40),
    "decimal(18,4)": st.integers(1 - 10**18, 10**18 - 1).map(lambda n: Decimal(n).scaleb(-4)),
    "decimal(38,0)": st.integers(-(1 << 126), 1 << 126).map(Decimal),
    "void": st.none(),
}
TYPES = st.recursive(
    st.sampled_from(sorted(LEAVES)),
    lambda inner: st.one_of(
        inner.map(listed),
        st.lists(inner, min_size=1, max_size=4).map(
            lambda found: struct_of(*(StateField(f"f{n}", one) for n, one in enumerate(found)))
        ),
    ),
    max_leaves=6,
)


def value_of(spark_type: Any) -> st.SearchStrategy[Any]:
    if isinstance(spark_type, str):
        return st.none() | LEAVES[spark_type]
    if spark_type["type"] == "array":
        return st.none() | st.lists(value_of(spark_type["elementType"]), max_size=4)
    fields = {one["name"]: value_of(one["type"]) for one in spark_type["fields"]}
    return st.none() | st.fixed_dictionaries(fields)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[StateField], list[pa.Array[Any]]]:
    types = draw(st.lists(TYPES, min_size=1, max_size=5))
    fields = [StateField(f"c{n}", one) for n, one in enumerate(types)]
    count = draw(st.integers(0, 6))
    wanted = [one.type for one in decode.arrow_fields(fields, "row")]
    return fields, [
        pa.array(draw(st.lists(value_of(one), min_size=count, max_size=count)), arrow)
        for one, arrow in zip(types, wanted, strict=True)
    ]


@given(tables(), st.integers(0, 3))
def test_what_was_encoded_is_decoded_as_it_was(
    table: tuple[list[StateField], list[pa.Array[Any]]], start: int
) -> None:
    fields, columns = table
    columns = [column.slice(start) for column in columns]

    encoded = encode(columns, fields, "row")

    encoded.validate(full=True)
    decoded = decode.decode(encoded, fields, "row")
    assert [one.to_pylist() for one in decoded] == [one.to_pylist() for one in columns]
    one_by_one = [
        encode([c.slice(n, 1) for c in columns], fields, "row") for n in range(len(encoded))
    ]
    assert [part[0] for part in one_by_one] == list(encoded)


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def test_trap_a_null_decimal_of_many_digits_keeps_its_place_in_a_row_and_not_in_a_list() -> None:
    """As in `UnsafeRowWriter` and `UnsafeArrayWriter`."""
    spark_type = "decimal(30,0)"
    null: pa.Array[Any] = pa.array([None], pa.decimal128(30, 0))
    nulls: pa.Array[Any] = pa.array([[None]], pa.list_(pa.decimal128(30, 0)))

    (row,) = encode([null], [StateField("d", spark_type)], "r").to_pylist()
    (of_list,) = encode([nulls], [StateField("a", listed(spark_type))], "r").to_pylist()

    assert row == words(1, 16 << 32, 0, 0)
    assert of_list == words(0, 16 << 32 | 24, 1, 1, 0)


@pytest.mark.parametrize(
    "number", [0, 1, -1, 127, 128, 255, 256, -128, -129, -256, 1 << 63, 1 << 126]
)
def test_decimals_have_as_few_bytes_as_java_gives_them(number: int) -> None:
    """`BigInteger.toByteArray`: the bits of the number and one for its sign."""
    size = max(number, ~number).bit_length() // 8 + 1
    column: pa.Array[Any] = pa.array([Decimal(number)], pa.decimal128(38, 0))

    (row,) = encode([column], [StateField("d", "decimal(38,0)")], "r").to_pylist()

    content = number.to_bytes(size, "big", signed=True).ljust(16, b"\0")
    assert row == words(0, 16 << 32 | size) + content


def test_trap_what_lies_under_nulls_is_not_written() -> None:
    """Arrow leaves there whatever was there before."""
    valid = pa.py_buffer(b"\x02")
    text = pa.Array.from_buffers(
        pa.string(), 2, [valid, pa.py_buffer(struct.pack("<3i", 0, 4, 5)), pa.py_buffer(b"leftx")]
    )
    number = pa.Array.from_buffers(pa.int64(), 2, [valid, pa.py_buffer(words(7, 8))])
    fields = [StateField("t", "string"), StateField("n", "long")]

    encoded = encode([text, number], fields, "row").to_pylist()

    assert encoded == [words(3, 0, 0), words(0, 24 << 32 | 1, 8, ord("x"))]


def test_more_rows_than_are_laid_out_at_once() -> None:
    count = 40_000
    fields = [StateField("s", "string"), StateField("n", "long")]
    columns: list[pa.Array[Any]] = [
        pa.array(["x" * (n % 20) for n in range(count)]),
        pa.array(range(count)),
    ]

    decoded = decode.decode(encode(columns, fields, "row"), fields, "row")

    assert all(was.equals(now) for was, now in zip(columns, decoded, strict=True))


@pytest.mark.parametrize(
    ("field", "column", "why"),
    [
        (
            StateField("v", "long"),
            pa.array([1], pa.int32()),
            "long, but the given values are of type int32",
        ),
        (
            StateField("v", "string"),
            pa.array([1]),
            "string, but the given values are of type int64",
        ),
        (
            StateField("v", "timestamp"),
            pa.array([1], pa.timestamp("us")),
            "timestamp, but the given values",
        ),
        (StateField("v", "long", nullable=False), pa.array([1, None]), "v holds a null"),
        (
            StateField("v", listed("long", contains_null=False)),
            pa.array([[1, None]]),
            r"v\.element holds a null",
        ),
        (
            StateField("v", struct_of(StateField("w", "long", nullable=False))),
            pa.array([{"w": None}], pa.struct([("w", pa.int64())])),
            r"v\.w holds a null",
        ),
        (StateField("v", struct_of(StateField("w", "long"))), pa.array([1]), "struct<w:long>"),
        (StateField("v", listed("long")), pa.array([1]), "array<long>"),
        (StateField("v", "interval"), pa.array([1]), "interval, which cannot be decoded"),
        (
            StateField("v", "decimal(3,0)"),
            pa.Array.from_buffers(pa.decimal128(3, 0), 1, [None, pa.py_buffer(words(1000, 0))]),
            "does not fit in precision",
        ),
    ],
)
def test_other_values_are_refused_with_their_field(
    field: StateField, column: pa.Array[Any], why: str
) -> None:
    with pytest.raises(IncompatibleError, match=why):
        encode([column], [field], "the value")


def test_columns_that_do_not_fit_are_refused() -> None:
    fields = [StateField("a", "long"), StateField("b", "long")]
    with pytest.raises(IncompatibleError, match="2 fields, but 1 columns"):
        encode([pa.array([1])], fields, "row")
    with pytest.raises(IncompatibleError, match="was given columns of different lengths"):
        encode([pa.array([1]), pa.array([1, 2])], fields, "row")
