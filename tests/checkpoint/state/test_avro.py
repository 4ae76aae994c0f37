"""Which changes of state in Avro keep each value; each was tried with Spark 4.2."""

from __future__ import annotations

from typing import Any

import pytest

from savepoints.checkpoint.state import avro, layout
from savepoints.checkpoint.state.schema import StateField, StateSchema
from savepoints.errors import LayoutChangedError

KEY = (StateField("k", "string"),)


def struct(**fields: Any) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [{"name": name, "type": one, "nullable": True} for name, one in fields.items()],
    }


def array(of: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": of, "containsNull": True}


def mapping(of: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": "string", "valueType": of, "valueContainsNull": True}


def schema(**fields: Any) -> StateSchema:
    return StateSchema("total", KEY, tuple(StateField(name, one) for name, one in fields.items()))


WAS = schema(
    a="integer",
    b="integer",
    c="float",
    e=struct(x="integer"),
    f=array("integer"),
    m=mapping("float"),
)


@pytest.mark.parametrize(
    "now",
    [
        schema(b="integer", a="integer"),
        schema(a="integer", z="string"),
        schema(a="long"),
        schema(a="double"),
        schema(c="double"),
        schema(e=struct(y="string", x="long")),
        schema(f=array("long")),
        schema(m=mapping("double")),
        schema(),
    ],
)
def test_values_that_are_kept(now: StateSchema) -> None:
    assert avro.differences([WAS], [now]) == []
    (read,) = avro.as_read([WAS], [now])
    assert read.value == now.value


@pytest.mark.parametrize(
    "now",
    [
        # Spark runs all of these without an error, but for the last two.
        schema(a="integer", bb="integer"),
        schema(A="integer", b="integer"),
        schema(a="float"),
        schema(a="date"),
        schema(e=struct(xx="integer")),
        schema(f=array("date")),
        schema(a="short"),
        schema(a="string"),
    ],
)
def test_trap_spark_changes_or_loses_a_value_without_an_error(now: StateSchema) -> None:
    assert len(avro.differences([WAS], [now])) == 1
    assert avro.as_read([WAS], [now]) == (WAS,)
    with pytest.raises(LayoutChangedError, match="read as another value or as null"):
        layout.as_read({(0, "default"): (WAS,)}, {(0, "default"): (now,)}, "m:app")


def test_a_variable_that_is_gone_is_left() -> None:
    assert avro.as_read([WAS], []) == (WAS,)
    assert layout.as_read({(0, "default"): (WAS,)}, {}, "m:app") == {(0, "default"): (WAS,)}
