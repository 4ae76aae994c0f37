"""The entry point: commands grouped by what a person wants, errors as exit codes."""

from __future__ import annotations

import importlib
import logging
import os
import re
import sys
from contextlib import suppress

import click
from click.shell_completion import CompletionItem

from savepoints.cli.output import Terminal
from savepoints.errors import SavepointsError, UsageError

# For a call that cannot be parsed; of others the command itself learns the format.
_JSON = re.compile(r"(^| )(-o ?|--output[ =])json( |$)")

_LOG = logging.getLogger(__name__)

# Modules are imported only when their command is called, so that --help answers at once.
_SECTIONS: dict[str, tuple[str, ...]] = {
    "Take and look": (
        *(
            "run",
            "pause",
            "resume",
            "create",
            "export",
            "list",
            "show",
            "locate",
            "estimate",
            "lineage",
            "state",
            "diff",
            "verify",
            "events",
        ),
    ),
    "Go back": ("restore", "rollback", "reset", "edit", "operations"),
    "Try and upgrade": ("fork", "compare", "upgrade", "promote"),
    "Late data": ("merge",),
    "Keep healthy": ("tag", "rename", "expire", "gc", "copy", "check", "drill"),
    "Begin": ("init", "config", "metrics", "demo", "completion", "version"),
}
_SHORT = {
    "run": "Run a query, with periodic savepoints.",
    "pause": "Ask the run of a query to stop and keep still.",
    "resume": "Let a paused run go on.",
    "create": "Take a savepoint of a running or stopped query.",
    "export": "Write the canonical rows of a savepoint later.",
    "list": "List savepoints.",
    "show": "Show everything about a savepoint.",
    "locate": "Print where the outputs of a query are now.",
    "estimate": "Estimate when a query catches up, or that it never does.",
    "lineage": "Show which savepoint each generation began from.",
    "state": "Read the state in a savepoint as typed rows.",
    "diff": "Compare two savepoints row by row.",
    "verify": "Check that a savepoint is whole.",
    "events": "Show what was done, by whom and with what result.",
    "restore": "Write a new checkpoint from a savepoint.",
    "rollback": "Take state, offsets and outputs back to a savepoint or time.",
    "reset": "Begin a query anew at chosen offsets.",
    "edit": "Repair chosen state rows of a savepoint by hand.",
    "operations": "Show, resume or undo what was interrupted.",
    "fork": "Make new queries of a savepoint.",
    "compare": "Run queries to one end and compare what came of it.",
    "promote": "Let a fork take over from the live query.",
    "merge": "Work late events into live state and outputs.",
    "upgrade": "Look whether a changed program fits to a savepoint.",
    "tag": "Name, describe or pin a savepoint.",
    "rename": "Give a query that a driver of your own starts another name.",
    "expire": "Remove savepoints that no rule keeps.",
    "gc": "Find files that no savepoint needs.",
    "copy": "Copy a savepoint into another store.",
    "check": "Look whether store, settings and machine are fit.",
    "drill": "Restore in isolation and compare with the live query.",
    "init": "Write a settings file from a running checkpoint.",
    "config": "Show the settings and where each comes from.",
    "metrics": "Show metrics for Prometheus.",
    "demo": "Show the whole story on real parts on this machine.",
    "completion": "Print what makes a shell complete commands.",
    "version": "Show versions of this, Spark and Delta.",
}
_EXIT_CODES = """\b
Exit codes:
  0 done                      12 query is running
  1 failed                    13 not aligned, or verification failed
  2 usage                     14 source data no longer available
  3 partly done               15 target exists
 10 not found                 16 incompatible
 11 locked by another        130 interrupted
"""


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
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command without importing any."""
        commands = [
            CompletionItem(name, help=_SHORT[name])
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section."""
        del ctx
        for section, names in _SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, _SHORT[name]) for name in names])


@click.command(
    cls=_Group, epilog=_EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]}
)
def cli() -> None:
    """Savepoints for PySpark Structured Streaming.

    A savepoint is a durable, self-contained copy of a stateful query at one committed batch: state,
    offsets, watermark, and the version of each Delta output that belongs to it.

    \b
    Examples:
      savepoints run order_totals --every 10m
      savepoints list
      savepoints rollback latest~1 --dry-run
    """


def main() -> None:
    """Run the command line and exit with its code.

    Without Python's own way out: threads of native libraries may still run then, and now and then
    abort the process, so that a script would see exit code 134 of a command that did its work.
    """
    code = _run(Terminal(), sys.argv[1:])
    logging.shutdown()
    with suppress(BrokenPipeError):  # As in `savepoints list | head`.
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _run(output: Terminal, arguments: list[str]) -> int:
    if _JSON.search(" ".join(arguments)):
        output.format = "json"
    try:
        result = cli.main(arguments, prog_name="savepoints", obj=output, standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        output.err.print("interrupted")
        return 130
    except click.UsageError as error:
        hint = f"{error.ctx.command_path} --help" if error.ctx else "savepoints --help"
        output.error(UsageError(error.format_message(), hint=hint))
        return UsageError.exit_code
    except SavepointsError as error:
        output.error(error)
        return error.exit_code
    except Exception as error:  # noqa: BLE001  (nobody should have to read a traceback; logs have it)
        _LOG.debug("unexpected", exc_info=True)
        unexpected = SavepointsError(
            f"unexpected {type(error).__name__}: {error}",
            hint="run the command again with --log-level DEBUG and report what it shows",
        )
        output.error(unexpected)
        return unexpected.exit_code
    return result if isinstance(result, int) else 0
