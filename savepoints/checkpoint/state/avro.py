"""Values in Avro, which Spark reads by the names of their fields (`AvroStateEncoder`).

Each value has the number of the schema that it was written with. A changed program gets the fields
that it names: those that are new are null, and those that are gone are passed over. Spark does that
also where it changes a value without an error: one whose field was renamed is lost, and the days of
a date become the microseconds of a timestamp. What is allowed here keeps each value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from savepoints.checkpoint.state.operators import ENCODING_KEY, UNSAFE_ROW
from savepoints.checkpoint.state.schema import (
    SchemaDifference,
    SparkType,
    StateField,
    StateSchema,
    field_text,
    type_text,
)

# Types that Avro widens, where each value stays what it is.
_WIDENED = {("integer", "long"), ("integer", "double"), ("float", "double")}


def is_used(conf: Mapping[str, str]) -> bool:
    """Return True if a checkpoint with these settings has state in Avro."""
    return conf.get(ENCODING_KEY, UNSAFE_ROW).lower() != UNSAFE_ROW


def is_evolved(schemas: Sequence[StateSchema]) -> bool:
    """Return True if rows of a store may be of several schemas."""
    return any(one.key_id or one.value_id for one in schemas)


def as_read(was: Sequence[StateSchema], now: Sequence[StateSchema]) -> tuple[StateSchema, ...]:
    """Return the schemas of a store with the values that a program reads from them.

    A column family of which a value would be changed or lost is left as it was.
    """
    after = {one.column_family: one for one in now}
    changed = {one.column_family for one in differences(was, now)}
    return tuple(
        replace(one, value=after[one.column_family].value)
        if one.column_family in after.keys() - changed
        else one
        for one in was
    )


def differences(was: Sequence[StateSchema], now: Sequence[StateSchema]) -> list[SchemaDifference]:
    """Return which values of a store a program would read otherwise than they were."""
    after = {one.column_family: one for one in now}
    return [
        SchemaDifference(one.column_family, "value", place, field_text(old), field_text(new))
        for one in was
        if one.column_family in after
        for place, old, new in _pairs(one.value, after[one.column_family].value)
        if old.name != new.name or not _is_kept(old.type, new.type)
    ]


def _pairs(
    was: Sequence[StateField], now: Sequence[StateField]
) -> list[tuple[int, StateField, StateField]]:
    """Pair fields by name; one that is new may be one of its type that is gone, renamed."""
    before, names = {one.name: one for one in was}, {one.name for one in now}
    gone = [one for one in was if one.name not in names]
    found = []
    for place, new in enumerate(now):
        alike = (one for one in gone if type_text(one.type) == type_text(new.type))
        old = before.get(new.name) or next(alike, None)
        if old is not None:
            found.append((place, old, new))
    return found


def _is_kept(was: SparkType, now: SparkType) -> bool:
    if isinstance(was, str) or isinstance(now, str):
        return was == now or (was, now) in _WIDENED
    if was["type"] != now["type"]:
        return False
    if was["type"] == "struct":
        return all(
            old.name == new.name and _is_kept(old.type, new.type)
            for _, old, new in _pairs(_fields(was), _fields(now))
        )
    inner = "elementType" if was["type"] == "array" else "valueType"
    return was.get("keyType") == now.get("keyType") and _is_kept(was[inner], now[inner])


def _fields(struct: Mapping[str, Any]) -> list[StateField]:
    return [StateField.from_json(one) for one in struct["fields"]]
