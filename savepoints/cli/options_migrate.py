"""The options of commands that accept a changed program."""

from __future__ import annotations

import functools
from typing import Any

import click

from savepoints.cli.options import Function
from savepoints.errors import UsageError

MAP = click.option(
    "--map",
    "maps",
    multiple=True,
    metavar="OLD=NEW",
    help="Column, variable or operator (by number) that was renamed; OLD= if it was removed. May "
    "be repeated.",
)
DEFAULT = click.option(
    "--default",
    "defaults",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Value of a new column in the converted state; may be repeated.",
)


def migrating(function: Function) -> Function:
    """Add the options and pass their values as `migration`, or None without `--migrate`."""

    @click.option(
        "--migrate", is_flag=True, help="Convert the state for the changed program given by --app."
    )
    @MAP
    @DEFAULT
    @click.option(
        "--allow-dropped-state",
        is_flag=True,
        help="With --migrate: drop state that the changed program does not have.",
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
                "--map, --default and --allow-dropped-state require --migrate",
                hint="add --migrate --app package.module:attribute",
            )
        from savepoints.operations.migrate.migrate import MigrationOptions

        found = MigrationOptions(maps, defaults_of(defaults), allow_dropped_state)
        return function(*args, migration=found if migrate else None, **options)

    return wrapped


def defaults_of(texts: tuple[str, ...]) -> dict[str, str]:
    """Parse the values of `--default`, each `COLUMN=VALUE`."""
    return dict(map(_default, texts))


def _default(text: str) -> tuple[str, str]:
    """Read `COLUMN=VALUE`."""
    column, separator, value = text.partition("=")
    if not separator or not column:
        raise UsageError(
            f"--default {text!r} is not in the form COLUMN=VALUE",
            hint="write, for example, --default count=0",
        )
    return column, value
