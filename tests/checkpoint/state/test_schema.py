"""State schema files, and what changed between two of them."""

from __future__ import annotations

import dataclasses
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoints.checkpoint.state import schema as state_schema
from savepoints.checkpoint.state.schema import StateField, StateSchema
from savepoints.errors import IncompatibleError
from tests.samples import files_of

LONG_K = StateField("k", "long")


def field(name: str, spark_type: Any = "long", *, nullable: bool = True) -> dict[str, Any]:
    return {"name": name, "type": spark_type, "nullable": nullable, "metadata": {}}


def struct_json(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "struct", "fields": list(fields)}, ensure_ascii=False)


def utf(text: str) -> bytes:
    """Write as Java's DataOutputStream.writeUTF, character by character."""
    out = b""
    halves = struct.iter_unpack("<H", text.encode("utf-16-le"))
    for (unit,) in halves:
        if 0 < unit < 0x80:
            out += bytes([unit])
        elif unit < 0x800:
            out += bytes([0xC0 | unit >> 6, 0x80 | unit & 0x3F])
        else:
            out += bytes([0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F])
    return struct.pack(">H", len(out)) + out


def chunks(text: str, size: int = 20_000) -> bytes:
    """Write as Spark's writeJsonSchema, whose pieces have 65535 characters of ASCII at most."""
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    return struct.pack(">i", len(pieces)) + b"".join(utf(piece) for piece in pieces)


def version_2(key: str, value: str, size: int = 20_000) -> bytes:
    return utf("v2") + chunks(key, size) + chunks(value, size)


def names(fields: tuple[StateField, ...] | None) -> list[tuple[str, Any]]:
    return [(one.name, one.type) for one in fields or ()]


def of_sample(name: str, path: str) -> dict[str, StateSchema]:
    """Parse the schema file of a sample whose path begins so."""
    files = {found: data for found, data in files_of(name).items() if found.startswith(path)}
    (found, data), *more = files.items()
    assert not more
    return {one.column_family: one for one in state_schema.parse(data, found)}


def test_an_aggregate_that_spark_wrote() -> None:
    schema = of_sample("rocksdb", state_schema.path(0, "default"))["default"]

    assert schema == StateSchema(
        column_family="default",
        key=(LONG_K,),
        value=(StateField("count", "long", nullable=False), StateField("sum", "long")),
    )


def test_an_aggregate_without_keys_has_none() -> None:
    assert of_sample("grand_total", state_schema.path(0, "default"))["default"].key == ()


def test_each_store_of_a_join_has_a_file() -> None:
    schema = of_sample("join", state_schema.path(0, "right-keyWithIndexToValue"))["default"]

    assert names(schema.key) == [("field0", "long"), ("index", "long")]
    assert names(schema.value) == [("k", "long"), ("w", "long"), ("matched", "boolean")]


def test_nested_types_are_kept_as_spark_has_them() -> None:
    window, *_ = of_sample("session", state_schema.path(0, "default"))["default"].value

    assert isinstance(window.type, dict)
    assert [one["name"] for one in window.type["fields"]] == ["start", "end"]
    assert state_schema.type_text(window.type) == "struct<start:timestamp,end:timestamp>"
    assert window.to_json()["metadata"] == window.metadata
    assert StateField.from_json(window.to_json()) == window


def test_column_families_are_in_one_file_of_version_3() -> None:
    schemas = of_sample("transform_with_state", "state/0/_stateSchema/default/")

    assert {"total", "seen", "counts", "$rowCounter_seen"} < set(schemas)
    counts = schemas["counts"]
    assert [one.name for one in counts.key] == ["key", "userKey"]
    assert names(counts.value) == [("n", "long")]
    assert names(counts.user_key) == [("digit", "long")]
    assert counts.key_encoder == {
        "keyStateEncoderType": "PrefixKeyScanStateEncoderSpec",
        "numColsPrefixKey": 1,
    }
    assert schemas["total"].user_key is None
    assert (counts.key_id, counts.value_id) == (0, 0)


def test_version_1_has_one_text_for_the_key_and_one_for_the_value() -> None:
    data = utf("v1") + utf(struct_json(field("k"))) + utf(struct_json(field("n", "integer")))

    (schema,) = state_schema.parse(data, "schema")

    assert (schema.key, schema.value) == ((LONG_K,), (StateField("n", "integer"),))


def test_version_3_counts_how_often_a_schema_changed() -> None:
    column_family = (
        utf("total")
        + struct.pack(">h", 1)
        + chunks(struct_json(field("k")))
        + struct.pack(">h", 2)
        + chunks(struct_json(field("v")))
        + chunks('{"keyStateEncoderType":"NoPrefixKeyStateEncoderSpec"}')
        + chunks("{    }")
    )

    (schema,) = state_schema.parse(utf("v3") + struct.pack(">i", 1) + column_family, "schema")

    assert (schema.key_id, schema.value_id, schema.user_key) == (1, 2, None)


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters='"\\'), max_size=10), max_size=20
    ),
    st.integers(1, 50),
)
def test_names_have_any_characters_and_long_schemas_many_pieces(
    texts: list[str], size: int
) -> None:
    """Java writes characters beyond 16 bits in its own way."""
    fields = [field(text) for text in texts]

    (schema,) = state_schema.parse(version_2(struct_json(*fields), struct_json(), size), "schema")

    assert [one.name for one in schema.key] == texts


def test_a_schema_of_many_fields() -> None:
    fields = [field(f"a_column_with_quite_a_long_name_{number}") for number in range(3000)]

    (schema,) = state_schema.parse(version_2(struct_json(field("k")), struct_json(*fields)), "s")

    assert [one.name for one in schema.value] == [one["name"] for one in fields]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("rocksdb", "state/0/0/_metadata/schema"),
        ("transform_with_state", "state/0/_stateSchema/default/"),
    ],
)
def test_a_file_that_ends_early_is_refused_and_named(name: str, path: str) -> None:
    ((found, data),) = [one for one in files_of(name).items() if one[0].startswith(path)]
    for size in range(len(data)):
        with pytest.raises(IncompatibleError) as refused:
            state_schema.parse(data[:size], found)
        assert refused.value.details == {"file": found}


@pytest.mark.parametrize(
    "data",
    [
        utf("v4") + chunks(struct_json()) * 2,
        version_2(struct_json(), struct_json()) + b"more",
        version_2("[]", struct_json()),
        version_2('{"type":"map","keyType":"long","valueType":"long"}', struct_json()),
        version_2(struct_json({"name": "k"}), struct_json()),
        b"v2",
        b"\0\2\xff\xff",
    ],
)
def test_what_spark_would_not_write_is_refused(data: bytes) -> None:
    with pytest.raises(IncompatibleError, match="state/0/0/_metadata/schema"):
        state_schema.parse(data, "state/0/0/_metadata/schema")


def aggregate(*values: StateField, key: tuple[StateField, ...] = (LONG_K,)) -> list[StateSchema]:
    return [StateSchema("default", key, values)]


MAX, MIN = StateField("max", "long"), StateField("min", "long")


def said(was: list[StateSchema], now: list[StateSchema]) -> list[str]:
    return [str(one) for one in state_schema.differences(was, now)]


def test_trap_aggregates_that_changed_places_differ() -> None:
    """Spark compares types only, and would go on with each other's state."""
    (first, second) = state_schema.differences(aggregate(MAX, MIN), aggregate(MIN, MAX))

    assert (first.part, first.position, first.was, first.now) == (
        "value",
        0,
        "max long",
        "min long",
    )
    assert (second.position, second.was, second.now) == (1, "min long", "max long")


def test_what_is_new_and_what_is_gone() -> None:
    assert said(aggregate(MAX), aggregate(MAX, MIN)) == ["value field 1 is new: 'min long'"]
    assert said(aggregate(MAX, MIN), aggregate(MIN)) == [
        "value field 0 was 'max long' and is now 'min long'",
        "value field 1 was removed: 'min long'",
    ]


def test_names_and_types_of_keys_count_too() -> None:
    renamed = aggregate(MAX, key=(StateField("id", "long"),))
    retyped = aggregate(MAX, key=(StateField("k", "integer"),))

    assert said(aggregate(MAX), renamed) == ["key field 0 was 'k long' and is now 'id long'"]
    assert said(aggregate(MAX), retyped) == ["key field 0 was 'k long' and is now 'k integer'"]


def test_names_inside_of_structs_count() -> None:
    def nested(name: str) -> StateField:
        inner = {"type": "struct", "fields": [field(name)]}
        array = {"type": "array", "elementType": inner, "containsNull": True}
        return StateField(
            "v", {"type": "map", "keyType": "string", "valueType": array, "valueContainsNull": True}
        )

    (found,) = state_schema.differences(aggregate(nested("a")), aggregate(nested("b")))

    assert found.was == "v map<string,array<struct<a:long>>>"
    assert found.now == "v map<string,array<struct<b:long>>>"


def test_nullability_and_metadata_are_left_to_spark() -> None:
    changed = StateField("max", "long", nullable=False, metadata={"spark.watermarkDelayMs": 1})

    assert said(aggregate(MAX), aggregate(changed)) == []


def test_column_families_are_found_by_their_names() -> None:
    a, b = StateSchema("a", (LONG_K,), (MAX,)), StateSchema("b", (LONG_K,), (MIN,))

    assert said([a, b], [b, a]) == []
    assert said([a], [a, b]) == [
        "b, key field 0 is new: 'k long'",
        "b, value field 0 is new: 'min long'",
    ]
    assert said([a, b], [a, dataclasses.replace(b, value=(MAX,))]) == [
        "b, value field 0 was 'min long' and is now 'max long'"
    ]
