"""Where given rows have a null that the state does not allow, also inside of a value.

Files and tables say of everything that it may be null. Spark would read such a null as a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from savepoints.checkpoint.state.schema import SparkType, StateField
from savepoints.state.codec.decode import fields_of
from savepoints.state.seed.visible import Visible

if TYPE_CHECKING:
    from pyspark.sql import Column

    # Whether a value has such a null; never null itself.
    _Test: TypeAlias = "Callable[[Column], Column]"


def found(visible: Visible) -> Iterator[tuple[str, Column]]:
    """Yield each place that may have no null, such as `value.count`, and which rows have one."""
    from pyspark.sql import functions as F

    for part, fields in visible.structs.items():
        for one in fields:
            for place, test in _of_field(one, f"{part}.{one.name}"):
                yield place, test(F.col(part)[one.name])
    for name in visible.numbers:
        yield name, F.col(name).isNull()


def _of_field(field: StateField, place: str) -> Iterator[tuple[str, _Test]]:
    if not field.nullable:
        yield place, lambda value: value.isNull()
    for one, in_it in _parts(field.type):
        for inside, test in _of_field(one, f"{place}.{one.name}"):
            yield inside, partial(in_it, test)


def _parts(kind: SparkType) -> Iterator[tuple[StateField, Callable[[_Test, Column], Column]]]:
    """Yield what is inside of values of a type, and how a test of it becomes one of the values."""
    if isinstance(kind, str):
        return
    if kind["type"] == "struct":
        yield from ((one, partial(_in_field, one.name)) for one in fields_of(kind))
    elif kind["type"] == "array":
        yield StateField("element", kind["elementType"], kind["containsNull"]), _in_elements
    elif kind["type"] == "map":
        yield StateField("key", kind["keyType"]), partial(_in_entries, "map_keys")
        value = StateField("value", kind["valueType"], kind["valueContainsNull"])
        yield value, partial(_in_entries, "map_values")


def _in_field(name: str, test: _Test, value: Column) -> Column:
    return value.isNotNull() & test(value[name])


def _in_elements(test: _Test, value: Column) -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(F.exists(value, test), F.expr("false"))


def _in_entries(part: str, test: _Test, value: Column) -> Column:
    from pyspark.sql import functions as F

    return _in_elements(test, F.call_function(part, value))
