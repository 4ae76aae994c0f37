"""The state layout of a checkpoint: the fields of all its state stores, compared by name.

Spark compares the types of a changed program only (`StateSchemaCompatibilityChecker`): where
`max, min` became `min, max`, each silently continues with the state of the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from savepoints.checkpoint.state import avro, schema
from savepoints.checkpoint.state.schema import StateSchema
from savepoints.errors import LayoutChangedError
from savepoints.io import Location, in_parallel

_OF_STORE = re.compile(
    r"^state/(\d+)/(?:0/(?:([^/_][^/]*)/)?_metadata/schema|_stateSchema/([^/]+)/(\d+)_[^/]+)$"
)

_NAME_INSIDE = re.compile(r"[^<,:]+:")

# Schemas by operator and store.
Layout: TypeAlias = Mapping[tuple[int, str], tuple[StateSchema, ...]]


def read(checkpoint: Location) -> Layout:
    """Read the newest schema of every state store of a checkpoint."""
    paths = list(newest([info.path for info in checkpoint.list("state")]).values())
    return of_files(dict(zip(paths, in_parallel(checkpoint.get, paths), strict=True)))


def is_schema(path: str) -> bool:
    """Return True if a file of a checkpoint is the schema of a store."""
    return _OF_STORE.match(path) is not None


def of_files(files: Mapping[str, bytes]) -> Layout:
    """Read the newest schema of every state store."""
    return {store: schema.parse(files[path], path) for store, path in newest(files).items()}


def newest(paths: Iterable[str]) -> dict[tuple[int, str], str]:
    """Choose the newest schema file of every state store, by operator and store."""
    found: dict[tuple[int, str], tuple[int, str]] = {}
    for path in paths:
        if match := _OF_STORE.match(path):
            store = (int(match.group(1)), match.group(2) or match.group(3) or "default")
            written = (int(match.group(4) or 0), path)
            found[store] = max(written, found.get(store, (-1, "")))
    return {store: path for store, (_, path) in found.items()}


def as_read(was: Layout, now: Layout, program: str) -> Layout:
    """Return a layout in Avro as a program reads it, by the names of the fields.

    Raises:
        LayoutChangedError: If Spark would lose or change a value on the way, without an error.
    """
    found = {}
    for store, schemas in was.items():
        program_has = now.get(store, ())
        for one in avro.differences(schemas, program_has):
            raise _changed(
                store,
                program,
                f"{one}, which Spark would read as another value or as null",
                hint="keep the name and the type of the field, and give what is new a name that "
                "the state has not had; or, if its values may be lost, run the query with "
                "--accept-state-names",
            )
        found[store] = avro.as_read(schemas, program_has)
    return found


def require_names(was: Layout, now: Layout, program: str) -> None:
    """Check that a program's state fields have the names of those it continues with.

    Spark itself notices other operators and stores.
    """
    for store, schemas in was.items():
        for one in schema.differences(schemas, now.get(store, ())):
            if one.was and one.now and one.was.split()[1:] == one.now.split()[1:]:
                raise _changed(
                    store,
                    program,
                    f"{one}, which Spark would not notice",
                    hint="put the aggregates back in their old order; or, if one of them only "
                    "has a new name, run the query with --accept-state-names",
                )


def require_types(was: Layout, now: Layout, program: str, *, savepoint: Callable[[], str]) -> None:
    """Check that a program's state fields are as many and of the types of those it continues with.

    Spark refuses them as well, but in its first batch (`StateSchemaCompatibilityChecker`).
    Stores with several column families may gain some, and are left to it.

    Args:
        savepoint: Gives what to compare the program with to see all that differs.
    """
    for store, schemas in was.items():
        program_has = now.get(store, ())
        if len(schemas) != 1 or len(program_has) != 1:
            continue
        for one in schema.differences(schemas, program_has):
            if _type(one.was) != _type(one.now):
                raise _changed(store, program, str(one), hint=way_out(program, savepoint()))


def way_out(program: str, savepoint: str) -> str:
    """Return the hint for a program that the state does not fit."""
    return (
        f"see what a migration would do: savepoints upgrade check --app {program} --from "
        f"{savepoint}; or run the program that the state came from"
    )


def _changed(store: tuple[int, str], program: str, what: str, *, hint: str) -> LayoutChangedError:
    operator_id, name = store
    return LayoutChangedError(
        f"the state of operator {operator_id}, store {name}, does not match {program}: {what}",
        hint=hint,
        operator_id=operator_id,
        store=name,
    )


def _type(field: str | None) -> str | None:
    """Return the type of a field, without the names in it, which Spark does not compare."""
    return field and _NAME_INSIDE.sub("", field.partition(" ")[2])
