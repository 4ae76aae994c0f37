"""UnsafeRow bytes to Arrow, compared with how Spark decodes the same bytes."""

from __future__ import annotations

import random
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoints.checkpoint.state import schema as state_schema
from savepoints.checkpoint.state.schema import StateField
from savepoints.errors import IncompatibleError
from savepoints.state.codec import decode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 300
NARROW = 60
# Beside what is here, so many more columns that the bits for nulls need two words.
TYPES = {
    "a boolean": "boolean",
    "byte": "byte",
    "short": "short",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "at": "timestamp",
    "at_ntz": "timestamp_ntz",
    "small": "decimal(10,2)",
    "long_digits": "decimal(18,3)",
    "more_digits": "decimal(19,0)",
    "large": "decimal(30,5)",
    "largest": "decimal(38,10)",
    "text": "string",
    "bytes": "binary",
    "nested": "struct<i:int,s:string,deep:struct<d:decimal(38,2),at:timestamp,b:boolean>>",
    "booleans": "array<boolean>",
    "shorts": "array<short>",
    "floats": "array<float>",
    "longs": "array<long>",
    "dates": "array<date>",
    "texts": "array<string>",
    "decimals": "array<decimal(38,2)>",
    "small_decimals": "array<decimal(9,1)>",
    "structs": "array<struct<s:string,x:array<double>>>",
    "nested_arrays": "array<array<int>>",
}


def text(chance: random.Random) -> str:
    return chance.choice(["", "a", "12345678", "käse und 🧀", "x" * chance.randrange(30)])


def value(chance: random.Random, spark_type: Any) -> Any:
    """Make a random value of a type, or null, with the ends of its range among them."""
    from pyspark.sql import types as T

    if chance.random() < 0.15:
        return None
    if isinstance(spark_type, T.StructType):
        return tuple(value(chance, one.dataType) for one in spark_type.fields)
    if isinstance(spark_type, T.ArrayType):
        length = chance.choice([0, 1, 3, 7, 70])
        return [value(chance, spark_type.elementType) for _ in range(length)]
    if isinstance(spark_type, T.DecimalType):
        digits = chance.randrange(1, spark_type.precision + 1)
        unscaled = chance.choice([0, 10**digits - 1, chance.randrange(10**digits)])
        signed = unscaled * chance.choice([1, -1])
        # Not by scaleb, which rounds to 28 digits.
        return Decimal((int(signed < 0), tuple(map(int, str(unscaled))), -spark_type.scale))
    kind = type(spark_type)
    if kind in INTEGERS:
        end = 1 << (INTEGERS[kind] - 1)
        return chance.choice([0, -1, end - 1, -end, chance.randrange(-end, end)])
    day = timedelta(days=chance.randrange(-30_000, 30_000), microseconds=chance.randrange(10**9))
    made: dict[Any, Any] = {
        T.BooleanType: chance.random() < 0.5,
        T.FloatType: struct.unpack("<f", chance.randbytes(3) + b"\x41")[0],
        T.DoubleType: chance.choice([0.5, float("nan"), float("-inf"), chance.random()]),
        T.DateType: date(1970, 1, 1) + day,
        T.TimestampType: datetime(1970, 1, 1, tzinfo=UTC) + day,
        T.TimestampNTZType: datetime(1970, 1, 1) + day,  # noqa: DTZ001
        T.StringType: text(chance),
        T.BinaryType: chance.randbytes(chance.randrange(20)),
    }
    return made[kind]


INTEGERS: dict[Any, int] = {}


@pytest.mark.spark
def test_keys_are_decoded_as_spark_decodes_them(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import types as T

    INTEGERS.update({T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64})
    chance = random.Random(7)
    columns = {**TYPES, **{f"narrow{number}": "int" for number in range(NARROW)}}
    # A name with a space cannot stand in such a text without quotes.
    schema = T._parse_datatype_string(
        ", ".join(f"`{name}` {spark_type}" for name, spark_type in columns.items())
    )
    assert isinstance(schema, T.StructType)
    made = [tuple(value(chance, one.dataType) for one in schema.fields) for _ in range(ROWS)]
    source, checkpoint = str(tmp_path / "in"), tmp_path / "ck"
    spark.createDataFrame(made, schema).coalesce(1).write.parquet(source)
    query = (
        spark.readStream.schema(schema)
        .parquet(source)
        .dropDuplicates(list(columns))
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    reader = spark.read.format("statestore").option("_readAllColumnFamilies", "true")
    table = reader.load(str(checkpoint)).select("partition_key", "key_bytes").toArrow()
    path = state_schema.path(0, "default")
    (key,) = state_schema.parse((checkpoint / path).read_bytes(), path)
    where = "the key"
    key_bytes: Any = table["key_bytes"].combine_chunks()
    decoded = decode.decode(key_bytes, key.key, where)

    expected: Any = table["partition_key"].combine_chunks()
    assert len(decoded) == len(columns)
    assert len(expected) > ROWS * 0.99, "hardly any two rows are equal"
    for position, (name, found) in enumerate(zip(columns, decoded, strict=True)):
        found.validate(full=True)
        assert found.type == decode.arrow_fields(key.key, where)[position].type
        # As text, since NaN is not itself.
        assert repr(found.to_pylist()) == repr(expected.field(position).to_pylist()), name
        assert found.null_count > 0, name


def packed(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


LONGS = [StateField("a", "long"), StateField("b", "long")]


def test_rows_of_a_slice_are_decoded_alone() -> None:
    data = [packed(0, number, -number) for number in range(10)] + [packed(2, 7, 0)]
    array = pa.array(data, pa.binary())

    assert [one.to_pylist() for one in decode.decode(array.slice(7), LONGS, "k")] == [
        [7, 8, 9, 7],
        [-7, -8, -9, None],
    ]
    assert [len(one) for one in decode.decode(array.slice(11), LONGS, "k")] == [0, 0]


def test_the_first_fields_of_longer_rows_are_decoded() -> None:
    array = pa.array([packed(0, 1, 2, 3)], pa.binary())

    (first, second) = decode.decode(array, LONGS, "k")

    assert (first.to_pylist(), second.to_pylist()) == ([1], [2])


@pytest.mark.parametrize(
    ("spark_type", "named"),
    [
        ("interval", "interval"),
        ("interval day to second", "interval day to second"),
        ("variant", "variant"),
        ("time(6)", "time(6)"),
        (
            {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
            "map<string,long>",
        ),
        ({"type": "udt", "class": "a.B", "sqlType": "long"}, "udt"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_other_types_are_refused_with_their_field(
    spark_type: Any, named: str, nested: bool
) -> None:
    field = StateField("v", spark_type)
    if nested:
        inner = {"type": "struct", "fields": [field.to_json()]}
        field = StateField("s", {"type": "array", "elementType": inner, "containsNull": True})

    with pytest.raises(IncompatibleError) as refused:
        decode.arrow_fields([*LONGS, field], "the key of operator 0")

    assert named in refused.value.message
    assert refused.value.details["field"] == (
        "the key of operator 0.s.element.v" if nested else "the key of operator 0.v"
    )
    assert "--format native" in refused.value.hint


def test_trap_strings_with_a_collation_are_refused() -> None:
    """In Spark's JSON they are of type string: only the metadata says more."""
    field = StateField("s", "string", metadata={"__COLLATIONS": {"s": "icu.UNICODE_CI"}})

    with pytest.raises(
        IncompatibleError, match=r"key\.s is a string with the collation.*UNICODE_CI"
    ):
        decode.arrow_fields([field], "key")


NESTED = [
    StateField("s", "string"),
    StateField("d", "decimal(38,2)"),
    StateField(
        "n",
        {
            "type": "struct",
            "fields": [
                StateField("t", "binary").to_json(),
                StateField(
                    "a", {"type": "array", "elementType": "short", "containsNull": True}
                ).to_json(),
            ],
        },
    ),
]


@given(
    st.lists(
        st.lists(st.one_of(st.integers(0, 64), st.integers(-(1 << 63), (1 << 63) - 1)), max_size=14)
    )
)
def test_damaged_rows_raise_nothing_else(words: list[list[int]]) -> None:
    array = pa.array([packed(*row) for row in words], pa.binary())
    try:
        for found in decode.decode(array, NESTED, "the key"):
            assert len(found) == len(words)
    except IncompatibleError as error:
        assert error.message.startswith("the key does not match the schema")  # noqa: PT017


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (b"1234567", "multiple of 8"),
        (packed(0, 1), "too short"),
        (packed(0, 1, 2)[:-4], "multiple of 8"),
    ],
)
def test_rows_of_another_schema_are_refused(row: bytes, why: str) -> None:
    with pytest.raises(IncompatibleError, match=why):
        decode.decode(pa.array([row], pa.binary()), LONGS, "k")


def test_a_value_that_lies_outside_of_its_row_is_refused() -> None:
    fields = [StateField("s", "string")]
    inside, outside = packed(0, 16 << 32 | 8, 65), packed(0, 16 << 32 | 9, 65)

    assert decode.decode(pa.array([inside], pa.binary()), fields, "k")[0].to_pylist() == [
        "A\0\0\0\0\0\0\0"
    ]
    with pytest.raises(IncompatibleError, match="outside its row"):
        decode.decode(pa.array([outside, inside], pa.binary()), fields, "k")


ARRAYS = [StateField("a", {"type": "array", "elementType": "long", "containsNull": True})]


@pytest.mark.parametrize("length", [2, 3, 1 << 20, (1 << 63) - 1, -1, -(1 << 63)])
def test_an_array_that_is_longer_than_its_bytes_is_refused(length: int) -> None:
    """A word for the length, one for nulls, and one element."""
    row = packed(0, 16 << 32 | 24, length, 0, 7)

    with pytest.raises(IncompatibleError, match="an array is longer than its bytes"):
        decode.decode(pa.array([row], pa.binary()), ARRAYS, "k")


def test_arrays_are_as_long_as_they_say() -> None:
    data = [packed(0, 16 << 32 | 24, 1, 0, 7), packed(1, 0), packed(0, 16 << 32 | 24, 0, 0, 7)]

    (found,) = decode.decode(pa.array(data, pa.binary()), ARRAYS, "k")

    assert found.to_pylist() == [[7], None, []]
