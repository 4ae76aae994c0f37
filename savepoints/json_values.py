"""Frozen values as JSON, and back again."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from savepoints.moments import rfc3339

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_T = TypeVar("_T")


def to_json(value: Any) -> Any:  # noqa: ANN401  (JSON is Any)
    """Turn frozen values into JSON values."""
    if value is None or value.__class__ in {str, int, bool}:
        return value  # Nearly all, so first.
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: to_json(item) for name, item in vars(value).items()}
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return round(value, 3) if isinstance(value, float) else value


def from_json(kind: type[_T], data: Mapping[str, Any]) -> _T:
    """Read a frozen value, and those in it, from what `to_json` wrote of it.

    Raises:
        ValueError: If a field is missing, of another type, or not known to this version.
    """
    from pydantic import ValidationError

    try:
        of: Any = kind
        value: _T = _reader(of).validate_python([data])[0]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field_name = ".".join(map(str, first["loc"][1:]))
        raise ValueError(f"{field_name}: {first['msg']}") from None
    return value


@functools.cache
def _reader(kind: type) -> TypeAdapter[Any]:
    from pydantic import ConfigDict, TypeAdapter

    # Of a list: what is true of unknown fields of a dataclass alone would have to stand in it.
    return TypeAdapter(list[kind], config=ConfigDict(extra="forbid"))  # type: ignore[valid-type]
