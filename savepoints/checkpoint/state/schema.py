"""State schemas: which fields the keys and values of a state store have.

`state/<op>/0/[<store>/]_metadata/schema` (versions 1 and 2: one key and one value) and
`state/<op>/_stateSchema/<store>/<batch>_<uuid>` (version 3: one of each per column family). Text
is written as Java's `writeUTF`. Source: `StateSchemaCompatibilityChecker`, `SchemaHelper`.
"""

from __future__ import annotations

import io
import itertools
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from savepoints.errors import RESTORE_SAVEPOINT, IncompatibleError

DEFAULT_COLUMN_FAMILY = "default"
DEFAULT_STORE = "default"

# Spark's JSON of a type: a name such as `long`, or an object for structs, arrays and maps.
SparkType: TypeAlias = "str | Mapping[str, Any]"

# Everything that damaged bytes raise below.
_NOT_A_SCHEMA = (
    struct.error, UnicodeError, KeyError, ValueError, TypeError, AttributeError,
)  # fmt: skip


@dataclass(frozen=True)
class StateField:
    """A field of a state key or value.

    Attributes:
        type: Its type as Spark's JSON.
        metadata: What else Spark records, such as collations.
    """

    name: str
    type: SparkType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StateField:
        """Read one of the `fields` of a struct type."""
        return cls(
            str(data["name"]), data["type"], bool(data["nullable"]), dict(data.get("metadata", {}))
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as one of the `fields` of a struct type."""
        return {
            "name": self.name,
            "type": self.type,
            "nullable": self.nullable,
            "metadata": dict(self.metadata),
        }


@dataclass(frozen=True)
class StateSchema:
    """The schema of one column family.

    Attributes:
        column_family: Its name; `default` in stores without column families.
        key_encoder: How the key is laid out, as JSON; None in versions 1 and 2.
        user_key: Fields of the key of a map state; None for everything else.
        key_id: Number of the key's schema among those the column family has had.
    """

    column_family: str
    key: tuple[StateField, ...]
    value: tuple[StateField, ...]
    key_encoder: Mapping[str, Any] | None = None
    user_key: tuple[StateField, ...] | None = None
    key_id: int = 0
    value_id: int = 0


@dataclass(frozen=True)
class SchemaDifference:
    """A place at which two schemas of a store differ.

    Attributes:
        part: `key` or `value`.
        position: Which field, from 0.
        was: Name and type before, such as `max long`; None for a field that is new.
        now: Name and type now; None for a field that is gone.
    """

    column_family: str
    part: Literal["key", "value"]
    position: int
    was: str | None
    now: str | None

    def __str__(self) -> str:
        """Describe it: `value field 0 was 'max long' and is now 'min long'`."""
        place = f"{self.part} field {self.position}"
        if self.column_family != DEFAULT_COLUMN_FAMILY:
            place = f"{self.column_family}, {place}"
        if self.was is None:
            return f"{place} is new: {self.now!r}"
        if self.now is None:
            return f"{place} was removed: {self.was!r}"
        return f"{place} was {self.was!r} and is now {self.now!r}"


def below_partition(store: str, name: str) -> str:
    """Return a file's path below the directory of its state partition."""
    return name if store == DEFAULT_STORE else f"{store}/{name}"


def path(operator_id: int, store: str) -> str:
    """Return the path of a store's schema in a checkpoint, versions 1 and 2."""
    return f"state/{operator_id}/0/{below_partition(store, '_metadata/schema')}"


def parse(data: bytes, path: str) -> tuple[StateSchema, ...]:
    """Read a state schema file: one schema per column family, in its order."""
    reader = _Reader(data)
    try:
        version = reader.text()
        if version in {"v1", "v2"}:
            text = reader.text if version == "v1" else reader.chunks
            found = [StateSchema(DEFAULT_COLUMN_FAMILY, _fields(text()), _fields(text()))]
        elif version == "v3":
            found = [_column_family(reader) for _ in range(reader.number(">i"))]
        else:
            raise IncompatibleError(
                f"{path}: state schema version {version[:40]!r} is not supported; v1 to v3 are",
                hint="take the savepoint in the native form: --format native",
                file=path,
            )
        reader.expect_end()
        return tuple(found)
    except _NOT_A_SCHEMA as error:
        raise IncompatibleError(
            f"{path} is not a state schema in Spark's format: {error!r}",
            hint=RESTORE_SAVEPOINT,
            file=path,
        ) from None


def differences(was: Sequence[StateSchema], now: Sequence[StateSchema]) -> list[SchemaDifference]:
    """Compare two schemas of one store by name, type and position.

    Spark compares types only, so two aggregates of one type that swap places continue with each
    other's state. Spark itself compares nullability.

    Returns:
        Where they differ; a column family that only one of them has differs in all its fields.
    """
    before = {schema.column_family: schema for schema in was}
    after = {schema.column_family: schema for schema in now}
    found: list[SchemaDifference] = []
    for family in dict.fromkeys([*before, *after]):
        old, new = before.get(family), after.get(family)
        found += _part(family, "key", old.key if old else (), new.key if new else ())
        found += _part(family, "value", old.value if old else (), new.value if new else ())
    return found


def _part(
    family: str, part: Literal["key", "value"], was: Sequence[StateField], now: Sequence[StateField]
) -> list[SchemaDifference]:
    before, after = ([field_text(one) for one in fields] for fields in (was, now))
    return [
        SchemaDifference(family, part, position, old, new)
        for position, (old, new) in enumerate(itertools.zip_longest(before, after))
        if old != new
    ]


def field_text(one: StateField) -> str:
    """Write a field's name and type on one line: `max long`."""
    return f"{one.name} {type_text(one.type)}"


def type_text(spark_type: SparkType) -> str:
    """Write a type on one line, without nullability: `struct<start:timestamp,end:timestamp>`."""
    return _text(spark_type, lambda _: "")


def exact_text(spark_type: SparkType) -> str:
    """Write a type on one line, with the nullability of inner fields and elements."""
    return _text(spark_type, lambda nullable: "" if nullable else " not null")


def _text(spark_type: SparkType, mark: Callable[[object], str]) -> str:
    if isinstance(spark_type, str):
        return spark_type
    kind = spark_type["type"]
    if kind == "struct":
        inner = (
            f"{one['name']}:{_text(one['type'], mark)}{mark(one.get('nullable', True))}"
            for one in spark_type["fields"]
        )
        return f"struct<{','.join(inner)}>"
    if kind == "array":
        element = _text(spark_type["elementType"], mark)
        return f"array<{element}{mark(spark_type.get('containsNull', True))}>"
    if kind == "map":
        key, value = (_text(spark_type[one], mark) for one in ("keyType", "valueType"))
        return f"map<{key},{value}{mark(spark_type.get('valueContainsNull', True))}>"
    return json.dumps(spark_type, sort_keys=True)


def _column_family(reader: _Reader) -> StateSchema:
    name = reader.text()
    key_id, key = reader.number(">h"), _fields(reader.chunks())
    value_id, value = reader.number(">h"), _fields(reader.chunks())
    encoder, user_key = json.loads(reader.chunks()), json.loads(reader.chunks())
    return StateSchema(
        column_family=name,
        key=key,
        value=value,
        key_encoder=encoder,
        # Spark writes an empty object where there is none.
        user_key=_struct_fields(user_key) if user_key else None,
        key_id=key_id,
        value_id=value_id,
    )


def _fields(text: str) -> tuple[StateField, ...]:
    return _struct_fields(json.loads(text))


def _struct_fields(struct_type: Mapping[str, Any]) -> tuple[StateField, ...]:
    if struct_type["type"] != "struct":
        raise ValueError(f"expected a struct, but found {struct_type['type']}")
    return tuple(StateField.from_json(one) for one in struct_type["fields"])


class _Reader:
    """Java's DataInputStream over bytes."""

    def __init__(self, data: bytes) -> None:
        self._stream = io.BytesIO(data)

    def number(self, form: str) -> int:
        """Read a number, in a format of `struct`."""
        return int(struct.unpack(form, self._stream.read(struct.calcsize(form)))[0])

    def text(self) -> str:
        """Read what `writeUTF` wrote."""
        return _java_text(self._raw_text())

    def chunks(self) -> str:
        """Read a long text: a number of pieces, each written by `writeUTF`."""
        return _java_text(b"".join(self._raw_text() for _ in range(self.number(">i"))))

    def expect_end(self) -> None:
        """Check that everything was read."""
        if rest := self._stream.read(16):
            raise ValueError(f"unexpected data after the schema: {rest!r}")

    def _raw_text(self) -> bytes:
        return self._stream.read(self.number(">H"))


def _java_text(data: bytes) -> str:
    """Decode Java's own UTF-8, in which characters beyond 16 bits are two halves."""
    halves = data.decode("utf-8", "surrogatepass")
    return halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
