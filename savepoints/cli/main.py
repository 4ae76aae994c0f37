"""The entry point: commands grouped by purpose, errors as exit codes."""

from __future__ import annotations

import importlib
import logging
import os
import re
import sys
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from savepoints.cli import streams
from savepoints.cli.options import before_the_command
from savepoints.cli.output import Terminal
from savepoints.errors import EnvironmentUnfitError, SavepointsError, StoppedError, UsageError

# For a call that cannot be parsed; otherwise the command reads the format itself.
_JSON = re.compile(r"(^| )(-o ?|--output[ =])json( |$)")
_EXTRA = re.compile(r"unexpected extra argument \((.+)\)")

_LOG = logging.getLogger(__name__)

_STOPPED_HINT = "see whether anything is unfinished: savepoints operations list"
_COMMANDS = Path(__file__).parent / "commands"
# Modules are imported only when their command is called, so that --help answers at once.
_SECTIONS: dict[str, tuple[str, ...]] = {
    "Everyday": ("run", "create", "list", "show", "verify", "rollback", "restore", "check"),
    "Run": ("pause", "resume", "bootstrap", "seed", "estimate", "locate", "topology"),
    "Experiment": ("fork", "compare", "promote"),
    "Late data and repair": ("late", "merge", "reset", "edit", "undo", "operations"),
    "State": ("state", "diff", "export"),
    "Upgrade": ("upgrade",),
    "Maintenance": ("expire", "gc", "copy", "tag", "rename", "end", "drill"),
    "History": ("page", "ui", "lineage", "pipeline", "events"),
    "Set up": ("init", "config", "metrics", "demo", "completion", "version"),
}
_MORE_OPTIONS = "Options common to all commands: savepoints --help"
_EXIT_CODES = """\b
Exit codes:
  0 done                        12 query is running
  1 failed                      13 inconsistent, or verification failed
  2 wrong usage                 14 source data no longer available
  3 partly done, or differs     15 target already exists
 10 not found                   16 incompatible
 11 locked by another process  130 interrupted
"""


def meaning(name: str) -> str:
    """Read a command's meaning from the first line of its module, without importing it."""
    with (_COMMANDS / f"{name}_.py").open(encoding="utf-8") as module:
        return module.readline().strip('"\n')


class _Group(click.Group):
    """Finds each command in the module of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all commands in the order in which help shows them."""
        del ctx
        return [name for names in _SECTIONS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"savepoints.cli.commands.{cmd_name}_")
        command: click.Command = module.command
        for one in (command, *getattr(command, "commands", {}).values()):
            one.epilog = _MORE_OPTIONS
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called, or suggest those with a similar spelling."""
        name = args[0]
        if name in self.list_commands(ctx) or name.startswith("-"):
            return super().resolve_command(ctx, args)
        near = get_close_matches(name, self.list_commands(ctx), cutoff=0.5)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise click.UsageError(f"There is no command {name!r}.{hint}", ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command without importing any."""
        commands = [
            CompletionItem(name, help=meaning(name))
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands before the options, because people look for those first."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section."""
        del ctx
        for section, names in _SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, meaning(name)) for name in names])


@click.command(
    cls=_Group, epilog=_EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="savepoints", message="%(package)s %(version)s")
@before_the_command
def cli() -> None:
    """Savepoints for PySpark Structured Streaming.

    Back up the state, source offsets and Delta output of a running query together, and roll all
    three back with one command.

    \b
    Examples:
      savepoints run order_totals --every 10m
      savepoints list
      savepoints rollback latest~1 --dry-run
    """


def main() -> None:
    """Run the command line and exit with its code.

    Skips Python's own shutdown: threads of native libraries may still be running then and sometimes
    abort the process, so a script would see exit code 134 from a command that succeeded.
    """
    streams.prepare()
    code = _run(Terminal(), sys.argv[1:])
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # As in `savepoints list | head`; a full disk was told of.
            stream.flush()
    os._exit(code)


def _usage_hint(error: click.UsageError) -> str:
    """Return what to type instead; some commands take a query as an argument, others do not."""
    if error.ctx is None:
        return "savepoints --help"
    path, extra = error.ctx.command_path, _EXTRA.search(error.format_message())
    if extra and any("--query" in one.opts for one in error.ctx.command.params):
        return f"to choose a query: {path} --query {extra[1]}"
    return f"{path} --help"


def _show_misuse(output: Terminal, error: click.UsageError) -> None:
    """Show what cannot be parsed; of a group that was called alone, its help, which is no error."""
    alone = isinstance(error, click.exceptions.NoArgsIsHelpError)
    if alone and output.format == "text":
        click.echo(error.format_message(), err=True)
        return
    message = "Missing command." if alone else error.format_message()
    output.error(UsageError(message, hint=_usage_hint(error)))


def _without_directory(error: Exception) -> EnvironmentUnfitError | None:
    """Return the error for a working directory that is gone, as after a deployment."""
    if not isinstance(error, FileNotFoundError):
        return None
    try:
        Path.cwd()
    except FileNotFoundError:
        return EnvironmentUnfitError(
            "the working directory of this command was removed",
            hint="change to a directory that exists (cd), then run the command again",
        )
    return None


def _require_text(arguments: list[str]) -> None:
    """Refuse what a store could not keep, before half of it is done.

    Raises:
        UsageError: If an argument is not UTF-8: Python writes its bytes as surrogates then.
    """
    for one in arguments:
        try:
            one.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"the argument {one!r} is not UTF-8",
                hint="type it in a terminal, or keep it in a script, that writes UTF-8",
            ) from None


def _run(output: Terminal, arguments: list[str]) -> int:
    if _JSON.search(" ".join(arguments)):
        output.format = "json"
    try:
        _require_text(arguments)
        result = cli.main(arguments, prog_name="savepoints", obj=output, standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        stopped = StoppedError("interrupted", hint=_STOPPED_HINT)
        output.error(stopped)
        return stopped.exit_code
    except click.UsageError as error:
        _show_misuse(output, error)
        return UsageError.exit_code
    except SavepointsError as error:
        output.error(error)
        return error.exit_code
    except Exception as error:  # noqa: BLE001  (nobody should have to read a traceback; logs have it)
        from savepoints.spark import causes

        _LOG.debug("unexpected", exc_info=True)
        unexpected = (
            causes.of(error)
            or _without_directory(error)
            or SavepointsError(
                f"unexpected {type(error).__name__}: {error}",
                hint="run the command again with --log-level DEBUG and report the output",
            )
        )
        output.error(unexpected)
        return unexpected.exit_code
    return result if isinstance(result, int) else 0
