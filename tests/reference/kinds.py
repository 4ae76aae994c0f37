"""Types and docstrings of the code as tables of Markdown."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from savepoints.model import Cut
from savepoints.operations.maintain.expire import ExpirePlan
from savepoints.store.retention_policy import RetentionPolicy

Fields = Mapping[str, tuple[Any, str]]

_NAMES: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "true or false",
    datetime: "time",
    timedelta: "seconds",
    Path: "path",
    type(None): "null",
}

# What documents have in another way than the values that they are made of; None for not at all.
_AS_DOCUMENTS: dict[type, Mapping[str, tuple[Any, str] | None]] = {
    Cut: {
        "watermark_ms": (
            int | None,
            "Watermark in force after the batch, milliseconds since 1970; null for none.",
        ),
        "offsets": (
            list[dict[str, Any] | None],
            "For each source, in order, its next-to-read position; null where it had none yet.",
        ),
    },
    ExpirePlan: {
        "bytes": (int, "All bytes that will be freed, of shared files and others."),
    },
    RetentionPolicy: {
        "keep_within": None,
        "keep_within_seconds": (
            float | None,
            "Keep all that were taken within this time before the newest.",
        ),
    },
}


def fields_of(kind: type) -> Fields:
    """Return type and meaning of each field of a dataclass."""
    hints, said = get_type_hints(kind), meanings(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    fields = {name: (hints[name], said.get(name, "")) for name in names}
    every = {**fields, **_AS_DOCUMENTS.get(kind, {})}
    return {name: one for name, one in every.items() if one is not None}


def differences(value: Any, hint: Any, where: str = "") -> list[str]:
    """Return where a JSON value has not the fields that the page says it has."""
    origin, arguments = get_origin(hint), get_args(hint)
    kind = origin or hint
    inner: list[tuple[str, Any, Any]] = []
    odd: list[str] = []
    if value is None or origin is Literal:
        return []
    if origin in {Union, types.UnionType}:
        tried = [differences(value, one, where) for one in arguments if one is not type(None)]
        return min(tried, key=len)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        fields, there = fields_of(kind), value if isinstance(value, dict) else {}
        odd = sorted(f"{where}.{name}" for name in fields.keys() ^ there.keys())
        inner = [(f"{where}.{name}", there.get(name), one) for name, (one, _) in fields.items()]
    elif isinstance(value, list) and kind in {tuple, list, frozenset} and arguments:
        inner = [(f"{where}[]", one, arguments[0]) for one in value]
    elif isinstance(value, dict) and len(arguments) > 1:
        inner = [(f"{where}{{}}", one, arguments[1]) for one in value.values()]
    return odd + [two for at, one, of in inner for two in differences(one, of, at)]


def collect(hint: Any, kinds: dict[type, None]) -> None:
    """Find the dataclasses in a type, and in the types of their fields."""
    for one in get_args(hint):
        collect(one, kinds)
    kind = get_origin(hint) or hint
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind not in kinds:
        kinds[kind] = None
        for inner, _ in fields_of(kind).values():
            collect(inner, kinds)


def meanings(kind: type) -> dict[str, str]:
    """Return what docstrings say under `Attributes:`, of a class and of those above it."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        text = inspect.cleandoc(one.__dict__.get("__doc__") or "")
        block = text.partition("Attributes:\n")[2].partition("\n\n")[0]
        for name, said in re.findall(r"^    (\w+): (.+(?:\n {5,}.+)*)", block, re.MULTILINE):
            # The docstrings are for Python, the pages for JSON.
            found[name] = re.sub(r"\bNone\b", "null", " ".join(said.split()))
    return found


def summary(kind: type) -> str:
    """Return the first paragraph of what a class says of itself."""
    return escaped((kind.__doc__ or "").strip().partition("\n\n")[0])


def type_name(hint: Any) -> str:
    """Write a type in the words of JSON."""
    origin, arguments = get_origin(hint), get_args(hint)
    kind = origin or hint
    if origin in {Union, types.UnionType}:
        name = " or ".join(type_name(one) for one in arguments)
    elif origin is Literal:
        name = ", ".join(f'`"{one}"`' for one in arguments)
    elif origin is typing.Annotated:
        name = type_name(arguments[0])
    elif kind in {tuple, list, frozenset}:
        name = f"list of {type_name(arguments[0])}" if arguments else "list"
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        inner = type_name(arguments[1]) if arguments else "any"
        name = "object" if inner == "any" else f"object of {inner}"
    elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
        anchor = kind.__name__.lower()
        name = f"[{kind.__name__}](json.md#{anchor})"
    else:
        name = _NAMES.get(kind, "any")
    return name


def fields_table(fields: Fields) -> str:
    """Write a table of fields."""
    rows = [(f"`{name}`", type_name(hint), escaped(said)) for name, (hint, said) in fields.items()]
    return table(("field", "type", ""), rows)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table."""
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
    lines = [
        f"| {' | '.join(columns)} |",
        f"|{' --- |' * len(columns)}",
        *(f"| {' | '.join(row)} |" for row in cells),
    ]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Write a text of the code in one line of Markdown."""
    return " ".join(text.split()).replace("<", "&lt;")
