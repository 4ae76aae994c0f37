"""The options by which a command is told that a program has changed."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import click

from savepoints.cli.options import Function
from savepoints.errors import UsageError

MAP = click.option(
    "--map",
    "maps",
    multiple=True,
    metavar="OLD=NEW",
    help="What is called otherwise now: column, variable, or number of an operator; OLD= is gone.",
)
DEFAULT = click.option(
    "--default",
    "defaults",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="What a new column begins with.",
)


@dataclass(frozen=True)
class MigrationOptions:
    """What `--migrate` and the options that go with it say.

    Attributes:
        maps: `old=new`.
        defaults: What new columns begin with.
    """

    maps: tuple[str, ...]
    defaults: dict[str, str]
    allow_dropped_state: bool


def migrating(function: Function) -> Function:
    """Add the options, and pass `migration`: what they say, or None without `--migrate`."""

    @click.option(
        "--migrate", is_flag=True, help="Make the state that of the changed program of --app."
    )
    @MAP
    @DEFAULT
    @click.option(
        "--allow-dropped-state",
        is_flag=True,
        help="With --migrate: leave behind what the program has no place for.",
    )
    @functools.wraps(function)
    def wrapped(
        *args: object,
        migrate: bool,
        maps: tuple[str, ...],
        defaults: tuple[str, ...],
        allow_dropped_state: bool,
        **options: object,
    ) -> Any:  # noqa: ANN401  (whatever the command returns)
        given = maps or defaults or allow_dropped_state
        if given and not migrate:
            raise UsageError(
                "--map, --default and --allow-dropped-state are for a changed program",
                hint="add --migrate --app package.module:attribute",
            )
        found = MigrationOptions(maps, defaults_of(defaults), allow_dropped_state)
        return function(*args, migration=found if migrate else None, **options)

    return wrapped


def defaults_of(texts: tuple[str, ...]) -> dict[str, str]:
    """Read what was given as `--default`.

    Raises:
        UsageError: If one is not `COLUMN=VALUE`.
    """
    return dict(map(_default, texts))


def _default(text: str) -> tuple[str, str]:
    """Read `COLUMN=VALUE`."""
    column, separator, value = text.partition("=")
    if not separator or not column:
        raise UsageError(f"--default {text!r} is not COLUMN=VALUE", hint="--default count=0")
    return column, value
