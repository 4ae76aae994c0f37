"""Columns of old state as those of new, compared with what Python makes of them; no JVM."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa
import pytest

from savepoints.checkpoint.evolution import columns
from savepoints.checkpoint.evolution.findings import Column, Start, Words
from savepoints.checkpoint.evolution.operator_pairs import Transfer
from savepoints.checkpoint.evolution.renames import parse
from savepoints.checkpoint.state.schema import SparkType, StateField, StateSchema
from savepoints.errors import IncompatibleError, UsageError
from savepoints.spark.versions import SparkVersion
from savepoints.state.change import column_transforms, migrate
from savepoints.state.codec import decode, encode


def field(text: str, kind: SparkType | None = None, *, nullable: bool = True) -> StateField:
    name, _, named = text.partition(" ")
    return StateField(name, kind or named, nullable)


def changed(
    was: list[StateField], now: list[StateField], *maps: str, **words: Any
) -> tuple[Column, ...]:
    return columns.compare_values(was, now, "", Words(parse(maps), **words)).columns


def carried(was: list[StateField], now: list[StateField], values: list[list[Any]]) -> list[Any]:
    """Encode rows, decode them, make them new, and return what they are after the same again."""
    types = [one.type for one in decode.arrow_fields(was, "old")]
    old = encode.encode(
        [pa.array(one, kind) for one, kind in zip(values, types, strict=True)], was, "old"
    )
    made = column_transforms.make(changed(was, now), decode.decode(old, was, "old"), len(old))
    found = decode.decode(encode.encode(made, now, "new"), now, "new")
    return [one.to_pylist() for one in found]


def test_columns_move_and_widen() -> None:
    was = [field("max integer"), field("sum decimal(10,2)"), field("m float"), field("s string")]
    now = [field("s string"), field("m double"), field("sum decimal(22,4)"), field("max long")]
    some = decimal.Decimal("12345678.91")

    found = carried(was, now, [[1, None, -(2**31)], [some, None, -some], [1.5, None, -0.0],
                               ["a", None, "ü" * 9]])  # fmt: skip

    assert found == [
        ["a", None, "ü" * 9], [1.5, None, -0.0], [some, None, -some], [1, None, -(2**31)],
    ]  # fmt: skip


def test_fields_inside_of_a_struct() -> None:
    def struct(*inner: StateField) -> SparkType:
        return {"type": "struct", "fields": [one.to_json() for one in inner]}

    was = [field("state", struct(field("n integer"), field("s string"))), field("t long")]
    now = [field("state", struct(field("s string"), field("m double"), field("n long"))),
           field("t long")]  # fmt: skip

    found = carried(was, now, [[{"n": 1, "s": "a"}, None, {"n": None, "s": None}], [7, 8, 9]])

    assert found == [
        [{"s": "a", "m": None, "n": 1}, None, {"s": None, "m": None, "n": None}],
        [7, 8, 9],
    ]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [("long", "7", 7), ("double", "1.5", 1.5), ("string", "7", "7"), ("boolean", "true", True),
     ("decimal(10,2)", "1.50", decimal.Decimal("1.50")), ("byte", "-1", -1)],
)  # fmt: skip
def test_a_default_is_of_the_type_of_its_column(kind: str, text: str, value: object) -> None:
    (column,) = changed([], [field(f"x {kind}")], defaults={"x": text})

    assert column_transforms.make([column], [], 2)[0].to_pylist() == [value, value]
    assert column_transforms.make([column], [], 0)[0].to_pylist() == []


@pytest.mark.parametrize(
    ("kind", "text"), [("long", "x"), ("byte", "300"), ("boolean", "?"), ("date", "now")]
)
def test_a_default_that_is_none_is_refused(kind: str, text: str) -> None:
    (column,) = changed([], [field(f"x {kind}")], defaults={"x": text})

    with pytest.raises(UsageError, match=r"--default x=.* does not fit the column"):
        column_transforms.start(column)


def test_aggregates_begin_as_spark_says() -> None:
    now = [field("count long", nullable=False), field("sum decimal(12,2)"), field("buf binary")]
    starts = (Start(0), Start("0.00"), Start(b"\1\2"))
    made = changed([], now, starts=starts, is_aggregate=True)

    found = [one.to_pylist() for one in column_transforms.make(made, [], 1)]

    assert found == [[0], [decimal.Decimal("0.00")], [b"\1\2"]]


def test_a_null_where_the_program_can_have_none_is_refused() -> None:
    made = changed([field("k string")], [field("k string", nullable=False)])

    assert column_transforms.make(made, [pa.array(["a"])], 1)[0].to_pylist() == ["a"]
    with pytest.raises(IncompatibleError, match="k is null in 1 of 2 rows"):
        column_transforms.make(made, [pa.array(["a", None])], 2)


def test_a_null_struct_has_no_null_inside() -> None:
    """A field that cannot be null any more is none where the whole is null."""

    def struct(*inner: StateField) -> SparkType:
        return {"type": "struct", "fields": [one.to_json() for one in inner]}

    was = [field("max", struct(field("n long")))]
    now = [field("max", struct(field("n long", nullable=False)))]

    assert carried(was, now, [[{"n": 1}, None]]) == [[{"n": 1}, None]]
    with pytest.raises(IncompatibleError, match=r"max\.n is null in 1 of 2 rows"):
        carried(was, now, [[{"n": None}, None]])


SCHEMA = StateSchema("default", (field("k string"),), (field("sum long"), field("sum long")))


def given(function: column_transforms.ColumnFunction, count: int = 2) -> list[list[Any]]:
    value = [pa.array([1, 2]), pa.array([3, 4])]
    batch = column_transforms.batch(SCHEMA, [pa.array(["a", "b"])], value)
    made = column_transforms.given(
        function, batch, [field("n long"), field("m double")], "operator 0", count
    )
    return [one.to_pylist() for one in made]


def test_a_function_gets_keys_and_values_by_name_and_gives_columns_in_any_order() -> None:
    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        assert batch.schema.names == ["key.k", "value.sum", "value.sum_2"]
        return pa.RecordBatch.from_arrays(
            [batch.column("value.sum_2").cast(pa.float64()), batch.column("value.sum")],
            names=["m", "n"],
        )

    assert given(function) == [[1, 2], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda _: None, "returned NoneType instead of a RecordBatch"),
        (lambda batch: batch, "instead of a RecordBatch with"),
        (
            lambda _: pa.RecordBatch.from_pydict({"n": [1], "m": [1.0]}),
            "returned 1 row instead of 2",
        ),
        (
            lambda _: pa.RecordBatch.from_pydict({"n": ["x", "y"], "m": [1.0, 2.0]}),
            "returned n with a type other than int64",
        ),
    ],
)
def test_a_function_that_gives_something_else_is_found_out(
    function: column_transforms.ColumnFunction, message: str
) -> None:
    with pytest.raises(IncompatibleError, match=message) as caught:
        given(function)
    assert "operator 0" in caught.value.message


@pytest.mark.parametrize(
    ("value", "was", "now"),
    [
        (0.1, pa.float64(), pa.float32()),
        (1e300, pa.float64(), pa.float32()),
        (0.125, pa.float64(), pa.decimal128(10, 2)),
        (0.3, pa.float64(), pa.bool_()),
        (1.5, pa.float64(), pa.int64()),
        (2, pa.int64(), pa.bool_()),
        # What time it is where, nobody said.
        (0, pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (0, pa.timestamp("us", "UTC"), pa.timestamp("us")),
    ],
)  # fmt: skip
def test_trap_what_a_function_gives_is_not_rounded(
    value: object, was: pa.DataType, now: pa.DataType
) -> None:
    for given_type in (was, pa.list_(was)):
        given_values = pa.array([value, None] if given_type == was else [[value], None], given_type)
        wanted = now if given_type == was else pa.list_(now)
        with pytest.raises((pa.ArrowInvalid, pa.ArrowNotImplementedError)):
            column_transforms.exactly(given_values, wanted)


@pytest.mark.parametrize(
    ("value", "was", "now"),
    [
        (0.5, pa.float64(), pa.float32()),
        (float("nan"), pa.float64(), pa.float32()),
        (0.25, pa.float64(), pa.decimal128(10, 2)),
        (7, pa.int64(), pa.int8()),
        (7, pa.int64(), pa.float64()),
        ("a", pa.large_string(), pa.string()),
        (1000, pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC")),
    ],
)  # fmt: skip
def test_what_a_function_gives_exactly_is_taken(
    value: object, was: pa.DataType, now: pa.DataType
) -> None:
    values: Any = pa.array([value, None], was)

    found: Any = column_transforms.exactly(values, now)

    assert found.type == now
    assert str(found.cast(was).to_pylist()) == str(values.to_pylist())


@pytest.mark.parametrize(
    ("operator", "version", "expected"),
    [
        ("stateStoreSave", "4.0.0", "0.0"),
        ("dedupe", "4.1.2", "-0.0"),
        ("dedupe", "4.2.0", "0.0"),
        ("dedupeWithinWatermark", "4.2.0", "0.0"),
        ("applyInPandasWithState", "4.2.0", "-0.0"),
    ],
)
def test_trap_zeros_of_new_keys_are_as_spark_has_them(
    operator: str, version: str, expected: str
) -> None:
    """An aggregation knows one zero, a function over groups two, a deduplication two up to 4.1."""
    schema = StateSchema("default", (field("k double"),), (field("n long"),))
    transfer = Transfer(0, "default", schema, operator=operator)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([-0.0]), pa.array([1], pa.int32()), pa.array([None], pa.int64()),
         pa.array([b"v"])],
        names=["_0", "key_hash", "ord", "value_bytes"],
    )  # fmt: skip

    made = migrate.encoded_keys(transfer, SparkVersion.of(version), batch)

    encoded: Any = made.column("key_bytes")
    (key,) = decode.decode(encoded, schema.key, "key")
    assert str(key.to_pylist()[0]) == expected


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "America/New_York"])
def test_trap_times_of_new_keys_come_in_the_zone_of_the_session(zone: str) -> None:
    """It is another way to write the same moment; tests whose zone is called UTC never see it."""
    schema = StateSchema("default", (field("at timestamp"),), (field("n long"),))
    transfer = Transfer(0, "default", schema, operator="stateStoreSave")
    moment = 1_793_523_600_123_456
    batch = pa.RecordBatch.from_arrays(
        [pa.array([moment], pa.timestamp("us", zone)), pa.array([1], pa.int32()),
         pa.array([None], pa.int64()), pa.array([b"v"])],
        names=["_0", "key_hash", "ord", "value_bytes"],
    )  # fmt: skip

    made = migrate.encoded_keys(transfer, SparkVersion.of("4.2.0"), batch)

    encoded: Any = made.column("key_bytes")
    (key,) = decode.decode(encoded, schema.key, "key")
    assert key.cast(pa.int64()).to_pylist() == [moment]
