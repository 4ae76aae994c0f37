"""The effective settings, each with its origin."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from savepoints.config import files as config_files
from savepoints.config import secrets
from savepoints.config import settings as config_settings
from savepoints.config.duration import duration_text
from savepoints.config.files import Layer

DEFAULT = "default"
# Settings that may only be shown in part.
_SHOWN: Mapping[tuple[str, ...], Callable[[str], str]] = {
    ("hooks", "command"): secrets.mask_command,
    ("hooks", "url"): secrets.mask_url,
}


@dataclass(frozen=True)
class Effective:
    """An effective setting.

    Attributes:
        key: Its path; parts with a dot are quoted, as in TOML.
        value: The value as JSON; `***` for a secret.
        origin: Its source: `flag --store`, `environment SAVEPOINTS_STORE`, `savepoints.toml
            [profiles.prod]`, `default`.
    """

    key: str
    value: Any
    origin: str


def effective(
    *, file: Path | None = None, profile: str | None = None, flags: Mapping[str, Any] | None = None
) -> list[Effective]:
    """Read the settings and the origin of each value; secrets are masked.

    The arguments are those of `settings.load`.
    """
    files = config_files.of_files(file, profile)
    settings = config_settings.combine(files, flags)
    given = {
        name: Layer(f"flag --{name.replace('_', '-')}", {name: value})
        for name, value in (flags or {}).items()
        if value is not None
    }
    places = [*given.values(), config_settings.environment(), *files]
    return [
        Effective(_key(path), _shown(path, value), config_files.origin(path, places) or DEFAULT)
        for path, value in _leaves(settings, ())
    ]


def _leaves(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _leaves(getattr(value, name), (*path, name))
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, (*path, name))
    else:
        yield path, value


def _key(path: tuple[str, ...]) -> str:
    return ".".join(part if re.fullmatch(r"[\w-]+", part) else f'"{part}"' for part in path)


def _shown(path: tuple[str, ...], value: object) -> object:
    if value and secrets.is_secret(path[-1]):
        return secrets.MASK
    if isinstance(value, str) and (shown := _SHOWN.get(path)):
        return shown(value)
    if isinstance(value, timedelta):
        return duration_text(value)
    return secrets.masked(str(value) if isinstance(value, Path) else value)
