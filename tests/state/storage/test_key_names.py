"""Names of key fields that every reader and writer of canonical rows accepts."""

from __future__ import annotations

from savepoints.checkpoint.state.schema import StateField, type_text
from savepoints.state.storage.key_names import fit_fields


def test_trap_fields_of_one_name_are_numbered_wherever_they_are() -> None:
    """Case does not tell names apart, and a number may be the name of another field."""
    inner = {
        "type": "struct",
        "fields": [
            {"name": name, "type": "long", "nullable": True, "metadata": {}}
            for name in ("x", "X", "a.b")
        ],
    }
    many = {"type": "array", "elementType": inner, "containsNull": True}
    given = [
        StateField("x", "string", nullable=False), StateField("x_2", "date"),
        StateField("X", inner), StateField("a b", many, metadata={"m": 1}),
        StateField("a=b", {"type": "map", "keyType": "string", "valueType": inner}),
    ]  # fmt: skip

    found = fit_fields(given)

    fitted = "struct<x:long,X_2:long,a_b:long>"
    assert [(one.name, type_text(one.type)) for one in found] == [
        ("x", "string"), ("x_2", "date"), ("X_3", fitted), ("a_b", f"array<{fitted}>"),
        ("a_b_2", f"map<string,{fitted}>"),
    ]  # fmt: skip
    assert [(one.nullable, one.metadata) for one in found[:4:3]] == [(False, {}), (True, {"m": 1})]


def test_fit_names_stay() -> None:
    given = (StateField("customer_id", "long"), StateField("größe", "string"))

    assert fit_fields(given) == given
