"""Read settings from `savepoints.toml`, `pyproject.toml`, the user's file and the environment.

Each place is a layer of keys; a layer wins over those after it. `settings` combines them.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from savepoints.config import secrets
from savepoints.errors import UsageError

FILE = "savepoints.toml"
FILE_VARIABLE = "SAVEPOINTS_CONFIG"
PROFILE_VARIABLE = "SAVEPOINTS_PROFILE"
PREFIX = "SAVEPOINTS_"
SEPARATOR = "__"
ENVIRONMENT = "environment"

# Our variables that are not settings, with their purpose.
OTHER_VARIABLES = {
    FILE_VARIABLE: "The settings file, like `--config`.",
    PROFILE_VARIABLE: "The profile, like `--profile`.",
    "SAVEPOINTS_CODE_VERSION": "Version of the application's code, stored with each savepoint.",
    "SAVEPOINTS_CACHE": "Directory for downloaded jars and Java class archives.",
    "SAVEPOINTS_IVY_SETTINGS": "Ivy settings file, for a mirror of Maven Central.",
    "SAVEPOINTS_CRASH_AT": "For tests: the step at which the process kills itself.",
}
# Variables that Kubernetes sets in every pod for a Service named `savepoints`.
_OF_KUBERNETES = re.compile(r"SAVEPOINTS(_\w+)?_(SERVICE_(HOST|PORT)|PORT)(_\w+)?", re.ASCII)


@dataclass(frozen=True)
class Layer:
    """Keys from one place.

    Attributes:
        origin: The place, for display: `savepoints.toml [profiles.prod]`.
        unchosen: The profiles of a file that are not chosen, which are only checked.
    """

    origin: str
    content: Mapping[str, Any]
    unchosen: tuple[Layer, ...] = ()

    def has(self, path: tuple[str, ...]) -> bool:
        """Return True if the layer has the key at a path."""
        found: Any = self.content
        for part in path:
            if not isinstance(found, Mapping) or part not in found:
                return False
            found = found[part]
        return True


def of_files(file: Path | None, profile: str | None) -> list[Layer]:
    """Read the settings files.

    Args:
        file: Replaces `savepoints.toml` and `pyproject.toml`, as `SAVEPOINTS_CONFIG` does.
        profile: Name of a `[profiles.NAME]` table, which wins over everything else in the files; by
            default what `SAVEPOINTS_PROFILE` says.
    """
    profile = profile or os.environ.get(PROFILE_VARIABLE) or None
    files = [Layer(origin, _read(path, table)) for path, origin, table in _places(file)]
    profiles: list[Layer] = []
    rest: list[Layer] = []
    known: set[str] = set()
    for layer in files:
        tables = layer.content.get("profiles", {})
        if not isinstance(tables, dict) or not all(isinstance(t, dict) for t in tables.values()):
            raise UsageError(
                f"[profiles] in {layer.origin} has keys of its own, but it may contain only tables",
                hint="move the keys to [profiles.NAME]",
            )
        known |= set(tables)
        named = {name: Layer(f"{layer.origin} [profiles.{name}]", tables[name]) for name in tables}
        if profile in named:
            profiles.append(named.pop(profile))
        own = {key: value for key, value in layer.content.items() if key != "profiles"}
        rest.append(Layer(layer.origin, own, tuple(named.values())))
    if profile is not None and not profiles:
        raise UsageError(
            f"there is no profile {profile!r}",
            hint=f"use one of the known profiles: {', '.join(sorted(known))}"
            if known
            else f"add a table [profiles.{profile}] to the settings file",
        )
    return [*profiles, *rest]


def user_file() -> Path:
    """Return the path of the user's settings file, for all projects."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111
    return Path(base) / "savepoints" / FILE


def variable(path: Iterable[str]) -> str:
    """Return the environment variable of the setting at a path."""
    return PREFIX + SEPARATOR.join(path).upper()


def origin(path: tuple[str, ...], places: Iterable[Layer]) -> str | None:
    """Name the first place that sets the key at a path, None when none does.

    In the environment, its own variable may set it, or that of a table above it, as JSON.
    """
    found = next((one.origin for one in places if one.has(path)), None)
    if found != ENVIRONMENT:
        return found
    given = {name.upper(): name for name in os.environ}
    names = [variable(path[:count]) for count in range(len(path), 0, -1)]
    return f"{ENVIRONMENT} {next((given[name] for name in names if name in given), names[0])}"


def refuse_unknown_variables(settings: Iterable[str]) -> None:
    """Reject an unknown `SAVEPOINTS_*` variable, which is probably mistyped."""
    roots = [variable([name]) for name in settings]
    known = [*roots, *OTHER_VARIABLES]
    for name in os.environ:
        root = name.upper().partition(SEPARATOR)[0]
        if not root.startswith(PREFIX) or root in roots or name in known:
            continue
        if _OF_KUBERNETES.fullmatch(name):
            continue
        # Without the prefix, which would make them all similar.
        rest = {one.removeprefix(PREFIX): one for one in known}
        close = difflib.get_close_matches(root.removeprefix(PREFIX), rest, n=1)
        raise UsageError(
            f"the environment variable {name} is not a setting",
            hint=f"did you mean {rest[close[0]]}?"
            if close
            else f"unset it, or use one of the known variables: {', '.join(sorted(known))}",
            variable=name,
        )


def not_json(error: ValueError) -> UsageError:
    """Return the error for a variable; pydantic-settings names a class of its own instead."""
    cause = error.__cause__
    value = cause.doc if isinstance(cause, json.JSONDecodeError) else None
    names = [
        name for name in os.environ if name.upper().startswith(PREFIX) and os.environ[name] == value
    ]
    if not names:
        return UsageError(secrets.mask(str(error)), hint="correct the environment variable")
    return UsageError(
        f"the environment variable {names[0]} is not JSON: {cause}",
        hint='write a table as {"key": "value"} and a list as ["value"]',
        variable=names[0],
    )


def _places(file: Path | None) -> list[tuple[Path, str, tuple[str, ...]]]:
    """Return path, display name and table of each file that exists."""
    named = file or (Path(given) if (given := os.environ.get(FILE_VARIABLE)) else None)
    if named is not None and not named.exists():
        raise UsageError(
            f"the settings file {named} does not exist",
            hint=f"correct the path in --config or {FILE_VARIABLE}",
        )
    places: list[tuple[Path, str, tuple[str, ...]]]
    if named is not None:
        places = [(named, str(named), ())]
    else:
        places = [
            (Path(FILE), FILE, ()),
            (Path("pyproject.toml"), "pyproject.toml [tool.savepoints]", ("tool", "savepoints")),
        ]
    places.append((user_file(), str(user_file()), ()))
    # A file that was named is read, whatever it is: a pipe has settings, too.
    return [place for place in places if place[0] == named or _is_there(place[0])]


def _is_there(path: Path) -> bool:
    """Return True if there is a file, or who runs this may not know."""
    try:
        return path.is_file()
    except PermissionError:
        return True


def _read(path: Path, table: tuple[str, ...]) -> dict[str, Any]:
    try:
        # TOML is UTF-8 in every locale; editors of Windows begin it with a mark.
        content: Any = tomllib.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        elsewhere = (
            "XDG_CONFIG_HOME (or HOME) to another directory"
            if path == user_file()
            else f"--config or {FILE_VARIABLE} to another file"
        )
        raise UsageError(
            f"the settings file {path} cannot be read: {error.strerror}",
            hint=f"let this user read it, or set {elsewhere}",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} is not valid TOML: {error}",
            hint="correct the file at the position given in the message",
        ) from None
    for name in table:
        content = content.get(name, {}) if isinstance(content, dict) else {}
    return content if isinstance(content, dict) else {}
