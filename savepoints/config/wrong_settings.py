"""Say what is wrong with settings that do not fit their schema, and what to write instead."""

from __future__ import annotations

import difflib
import json
import re
import types
from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from savepoints.config import files, secrets
from savepoints.config.files import Layer
from savepoints.errors import UsageError

# What to write for pydantic's errors about the type of a value, by their first word and the rest.
_OF_ANOTHER_TYPE = ("type", "parsing", "from_float", "attributes_type")
_WANTED = {
    "string": "text in quotes",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "dict": "a table",
    "model": "a table",
    "tuple": "a list",
    "list": "a list",
    "path": "a path in quotes",
}


def explained(
    error: ValidationError, layers: Sequence[Layer], schema: type[BaseModel], at: int = 0
) -> UsageError:
    """Return the error of pydantic as one that names the place, the value and what to write.

    Args:
        layers: Where settings come from, the first wins.
        schema: The class of all settings.
        at: Which of the errors to explain.
    """
    found = error.errors()[at]
    path = tuple(str(part) for part in found["loc"])
    if found["type"] == "missing":
        return _missing(path, layers)
    key = ".".join(path)
    where = re.sub(f"^{files.ENVIRONMENT} ", "the environment variable ", _origin(path, layers))
    if found["type"] != "extra_forbidden":
        hint = f"correct the setting in {where}"
        if found["type"] == "string_type" and isinstance(found["input"], Mapping):
            dotted = ".".join((path[-1], *_first_path(found["input"])))
            hint = f'a name with dots needs quotes, "{dotted}"; {hint}'
        return UsageError(f"setting {key}{_problem(path, found)}", hint=hint, setting=key)
    close = difflib.get_close_matches(path[-1], _known_keys(schema, path[:-1]), n=1)
    return UsageError(
        f"there is no setting {key}, which {where} has",
        hint=f"did you mean {close[0]}?" if close else f"remove the key from {where}",
        setting=key,
    )


def _origin(path: tuple[str, ...], layers: Sequence[Layer]) -> str:
    """Name the place of what is wrong, of the list that it is in, or of the table that lacks it."""
    above = (path[:count] for count in range(len(path), 0, -1))
    found = (files.origin(one, layers) for one in above)
    return next((one for one in found if one is not None), files.FILE)


def _missing(path: tuple[str, ...], layers: Sequence[Layer]) -> UsageError:
    key, table = ".".join(path), ".".join(path[:-1])
    where = _origin(path, layers)
    return UsageError(
        f"the setting {key} is missing",
        hint=f"set {files.variable(path)}"
        if where.startswith(files.ENVIRONMENT)
        else f"add {path[-1]} to [{table}] in {where}",
        setting=key,
    )


def _problem(path: tuple[str, ...], found: Mapping[str, Any]) -> str:
    kind, _, fault = found["type"].partition("_")
    _, known, rule = found["msg"].partition("Input should ")
    if found["type"] == "value_error" or not known:
        return ": " + str(found["msg"]).removeprefix("Value error, ")
    if kind in _WANTED and fault in _OF_ANOTHER_TYPE:
        rule = f"be {_WANTED[kind]}"
    return f" is {_shown(path, found['input'])}, but should {rule}"


def _shown(path: tuple[str, ...], value: object) -> str:
    """Write a value; what may have a secret in it is only named."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    return secrets.MASK if secrets.is_secret(path[-1]) else json.dumps(value, default=str)


def _first_path(table: Mapping[str, object]) -> tuple[str, ...]:
    """Return the names that lead to the first value of a table."""
    for name, value in table.items():
        return (name, *(_first_path(value) if isinstance(value, Mapping) else ()))
    return ()


def _known_keys(schema: type[BaseModel], parents: tuple[str, ...]) -> list[str]:
    """Return the keys of the table at a path."""
    table: Any = schema
    for name in parents:
        if get_origin(table) is dict:
            table = get_args(table)[1]
        else:
            table = table.model_fields[name].annotation
        if isinstance(table, types.UnionType):
            table = get_args(table)[0]
    return list(table.model_fields)
