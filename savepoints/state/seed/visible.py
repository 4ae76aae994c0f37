"""The columns in which state is given, variable by variable: those in which it is also read.

They are the columns of `savepoints.state.typed.typed`, without `partition_id`. Names and types come
from the schemas that the program's state has; no JVM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.checkpoint.evolution.findings import unique_names
from savepoints.checkpoint.evolution.program_layout import OperatorShape
from savepoints.checkpoint.state.schema import StateField, StateSchema, type_text
from savepoints.state.typed.typed import Variable

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

KEY, MAP_KEY, VALUE = "key", "map_key", "value"
POSITION, EXPIRES, FIRES = "position", "expires_at_ms", "fires_at_ms"
SESSIONS = "sessionWindowStateStoreSaveExec"
DEFAULT = "default"
# Column families of timers begin with a `$` and say which time they go by.
_BY_KEY = "Timers_keyToTimestamp"


@dataclass(frozen=True)
class Visible:
    """The columns of a variable.

    Attributes:
        structs: Fields of `key`, `map_key` and `value`, as far as it has them, without voids. Names
            are unique.
        numbers: Its other columns, whole numbers that are never null, and their types.
    """

    variable: Variable
    structs: Mapping[str, tuple[StateField, ...]]
    numbers: Mapping[str, str]

    @property
    def columns(self) -> tuple[str, ...]:
        """Each column with its type, as people read it: `key.k string not null`."""
        fields = [
            f"{part}.{one.name} {type_text(one.type)}{'' if one.nullable else ' not null'}"
            for part, inner in self.structs.items()
            for one in inner
        ]
        return (*fields, *(f"{name} {kind} not null" for name, kind in self.numbers.items()))

    @property
    def types_by_name(self) -> Mapping[str, DataType]:
        """The types of what may stand for itself, by names in lower case."""
        from pyspark.sql.types import LongType

        inner = {
            one.name.casefold(): one.dataType for part in self.structs for one in self.type_of(part)
        }
        return {**dict.fromkeys(self.numbers, LongType()), **inner}

    def type_of(self, part: str) -> StructType:
        """Return the type of a struct, in which everything may be null, as in files and tables."""
        from pyspark.sql.types import StructType

        fields = [{**one.to_json(), "metadata": {}} for one in self.structs[part]]
        return StructType.fromJson({"type": "struct", "fields": fields}).toNullable()


def of(variable: Variable, operator: OperatorShape) -> Visible:
    """Return the columns of a variable of a program's operator."""
    schema = schema_of(variable, operator)
    key, value = schema.key, schema.value
    structs: dict[str, tuple[StateField, ...]] = {KEY: key, VALUE: value}
    numbers: dict[str, str] = {}
    if variable.kind == "side":
        structs[KEY] = key[:-1]  # Without the number of a row among those of its key.
    if variable.kind == "map":
        structs = {KEY: _inner(key[0]), MAP_KEY: _inner(key[1]), VALUE: value}
    if variable.kind == "timers":
        return Visible(variable, {KEY: _unique(_inner(key[0]))}, {FIRES: "long"})
    if variable.kind == "list":
        numbers[POSITION] = "integer"
    if variable.ttl:
        structs[VALUE] = _inner(value[0])
        numbers[EXPIRES] = "long"
    kept = {part: _unique(fields) for part, fields in structs.items()}
    return Visible(variable, {part: fields for part, fields in kept.items() if fields}, numbers)


def schema_of(variable: Variable, operator: OperatorShape) -> StateSchema:
    """Return the schema of the column family that has the rows of a variable."""
    families = families_of(operator)
    if variable.kind == "timers":
        return next(one for name, one in families.items() if name.endswith(_BY_KEY))
    if variable.kind == "side":
        return families[variable.store]
    return families[DEFAULT if variable.kind == "rows" else str(variable.name)]


def families_of(operator: OperatorShape) -> dict[str, StateSchema]:
    """Return the schemas of an operator by column family; of a join by what Spark calls a store.

    Up to format 2 a join has stores of these names, since format 3 column families.
    """
    return {
        one.column_family if len(operator.stores) == 1 else store: one
        for store, schemas in operator.stores.items()
        for one in schemas
    }


def _inner(field: StateField) -> tuple[StateField, ...]:
    assert not isinstance(field.type, str)
    return tuple(StateField.from_json(one) for one in field.type["fields"])


def _unique(fields: tuple[StateField, ...]) -> tuple[StateField, ...]:
    """Leave out voids and number repeated names, as the reader of state does."""
    names = unique_names([one.name for one in fields])
    return tuple(
        StateField(name, one.type, one.nullable)
        for name, one in zip(names, fields, strict=True)
        if one.type != "void"
    )
