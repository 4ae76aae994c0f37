"""What verbs return, printed as a few lines."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from savepoints.texts import moment_text

_SECTION = "Attributes:\n"
_LONGEST = 100


class Result:
    """A frozen dataclass whose `str` has a line for each field that is not empty.

    Its docstring explains the fields that it inherits, too: `help` shows only one class's.
    """

    def __init_subclass__(cls) -> None:
        for base in cls.__bases__:
            own = inspect.cleandoc(cls.__doc__ or "")
            inherited = [one for one in _entries(base) if f"\n{_name(one)}:" not in own]
            if inherited:
                head, _, rest = own.partition(_SECTION)
                cls.__doc__ = f"{head.rstrip()}\n\n{_SECTION}{''.join(inherited)}{rest}"

    def __str__(self) -> str:
        lines = [
            f"  {name}: {_text(value)}"
            for name, value in vars(self).items()
            if value not in (None, "", (), {}, [])
        ]
        return "\n".join([type(self).__name__, *lines])


def _entries(of: type) -> list[str]:
    """Return what a docstring says of each field, with further lines, which are indented more."""
    section = inspect.cleandoc(of.__doc__ or "").partition(_SECTION)[2].partition("\n\n")[0]
    return re.findall(r"^    \w.*\n(?:     +.*\n)*", section.rstrip() + "\n", re.MULTILINE)


def _name(entry: str) -> str:
    return entry.partition(":")[0]


def _text(value: Any) -> str:  # noqa: ANN401  (fields have any type)
    """Write a field on one line; of what is large, what it is."""
    if isinstance(value, datetime):
        return moment_text(value)
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, Mapping):
        text = ", ".join(f"{key}={_text(one)}" for key, one in value.items())
    elif isinstance(value, (list, tuple)):
        text = ", ".join(_text(one) for one in value)
    elif dataclasses.is_dataclass(value):
        text = f"({_text(vars(value))})"
    else:
        return str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
