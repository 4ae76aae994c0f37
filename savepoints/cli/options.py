"""What all commands have in common: options, settings, plans that ask, errors as exit codes."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from savepoints.cli import logs
from savepoints.cli.output import Terminal
from savepoints.config.duration import parse_duration
from savepoints.errors import UsageError
from savepoints.model import parse_rfc3339, utc_now
from savepoints.plan import Plan

if TYPE_CHECKING:
    from savepoints.config.settings import Settings
    from savepoints.store.root import Store

Function = Callable[..., Any]


def pair(text: str) -> tuple[str, str]:
    """Read `NAME=URI`.

    Raises:
        UsageError: If it is none.
    """
    name, separator, uri = text.partition("=")
    if not separator:
        raise UsageError(f"{text!r} is not NAME=URI", hint="for example totals=s3://bucket/totals")
    return name, uri


def moment(context: click.Context, parameter: click.Parameter, text: str | None) -> datetime | None:
    """Read the value of an option: an RFC 3339 time, or how long ago, such as `7d`."""
    del context, parameter
    if text is None:
        return None
    try:
        return utc_now() - parse_duration(text)
    except UsageError:
        return parse_rfc3339(text)


# Where a parsed `--any-line` waits for the store to be opened.
_ANY_LINE = "savepoints.any_line"


@dataclass
class Invocation:
    """One call of a command: its output, and settings and store when it asks for them."""

    output: Terminal
    config: Path | None = None
    profile: str | None = None
    store_uri: str | None = None
    any_line: bool = False

    @functools.cached_property
    def settings(self) -> Settings:
        """The settings, read once."""
        from savepoints.config import settings as config_settings

        return config_settings.load(file=self.config, profile=self.profile, flags=self.flags)

    @property
    def flags(self) -> dict[str, str | None]:
        """The options that are settings."""
        return {"store": self.store_uri}

    @functools.cached_property
    def store(self) -> Store:
        """The store, opened once."""
        from savepoints.store.root import Store

        return Store.open(str(self.place.root), any_line=self.any_line)

    @property
    def place(self) -> Store:
        """The store that is there, or is going to be."""
        from savepoints.store.root import Store

        if not self.settings.store:
            raise UsageError(
                "no store is given",
                hint="set store in savepoints.toml, SAVEPOINTS_STORE, or --store s3://bucket/path",
            )
        return Store.at(self.settings.store, any_line=self.any_line)

    def confirm(self, plan: Plan, *, yes: bool, dry_run: bool, no_input: bool) -> bool:
        """Show a plan and find out whether to execute it.

        Returns:
            False for a dry run and when the person says no.

        Raises:
            UsageError: If nobody can be asked and `--yes` is missing.
        """
        if dry_run and self.output.format == "json":
            self.output.document(dry_run=True, plan=plan.to_json())
            return False
        self.output.plan(plan)
        if dry_run:
            self.output.err.print("nothing was done: --dry-run")
            return False
        if yes:
            return True
        if no_input or not sys.stdin.isatty():
            raise UsageError(
                f"{plan.verb} changes things and nobody can be asked here",
                hint="look at the plan with --dry-run, then pass --yes",
            )
        return click.confirm("Do it?", err=True)


def common(function: Function) -> Function:
    """Add the options that every command has, and pass it an `Invocation` first."""

    @click.option("--store", "store_uri", metavar="URI", help="The store's root.")
    @click.option("--config", type=click.Path(path_type=Path), help="Settings file.")
    @click.option("--profile", envvar="SAVEPOINTS_PROFILE", help="Profile in the settings file.")
    @click.option(
        "-o",
        "--output",
        "output_format",
        type=click.Choice(["text", "json"]),
        default="text",
        help="Text for people or one JSON document.",
    )
    @click.option(
        "--progress",
        type=click.Choice(["auto", "plain", "none"]),
        default="auto",
        help="How to show progress on stderr.",
    )
    @click.option(
        "--log-level",
        type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
        default="WARNING",
        help="Level of the log on stderr.",
    )
    @click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        help="Form of the log on stderr.",
    )
    @click.pass_obj
    @functools.wraps(function)
    def wrapped(
        output: Terminal,
        /,
        *args: object,
        store_uri: str | None,
        config: Path | None,
        profile: str | None,
        output_format: str,
        progress: str,
        log_level: str,
        log_format: logs.LogFormat,
        **options: object,
    ) -> Any:  # noqa: ANN401  (whatever the command returns)
        output.format = "json" if output_format == "json" else "text"
        output.progress_style = "none" if progress == "none" else "plain"
        logs.to_stderr(log_level, log_format)
        any_line = bool(click.get_current_context().meta.get(_ANY_LINE))
        call = Invocation(output, config, profile, store_uri, any_line)
        return function(call, *args, **options)

    return wrapped


def mutating(function: Function) -> Function:
    """Add the options of commands that change something."""
    for option in (
        click.option("--no-input", is_flag=True, help="Never ask; a question is an error."),
        click.option("-y", "--yes", is_flag=True, help="Do not ask."),
        click.option("--dry-run", is_flag=True, help="Show the plan and do nothing."),
    ):
        function = option(function)
    return function


def broken_too(function: Function) -> Function:
    """Add `--even-broken`, for a savepoint of which damage is known."""
    return click.option(
        "--even-broken",
        is_flag=True,
        help="Also a savepoint that verify found broken; what is damaged is refused even so.",
    )(function)


def unreplayable_too(function: Function) -> Function:
    """Add `--accept-unreplayable`, for sources that keep nothing of what they gave."""
    return click.option(
        "--accept-unreplayable",
        is_flag=True,
        help="Also where a source, such as a socket, cannot be read again: rows are lost.",
    )(function)


def stopped_said(function: Function) -> Function:
    """Add `--stopped`, for queries that a driver of somebody's own starts."""
    return click.option(
        "--stopped",
        is_flag=True,
        help="You have stopped the query's own driver: its checkpoint is not watched first.",
    )(function)


def of_query(function: Function) -> Function:
    """Add `--query` and `--any-line`, which narrow and widen what a savepoint's name can mean."""
    any_line = click.option(
        "--any-line",
        is_flag=True,
        expose_value=False,
        callback=_keep_any_line,
        help="latest and @TIME mean savepoints that were rolled back, too.",
    )
    return click.option("--query", help="Only savepoints of this query.")(any_line(function))


def _keep_any_line(context: click.Context, _option: click.Parameter, value: bool) -> None:
    context.meta[_ANY_LINE] = value
