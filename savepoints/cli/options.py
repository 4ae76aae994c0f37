"""What all commands have in common: options, settings, plans that ask, errors as exit codes."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from savepoints.cli.names import query_names
from savepoints.cli.output import OutputFormat, ProgressStyle, Terminal
from savepoints.config.duration import parse_duration
from savepoints.errors import StoppedError, UsageError
from savepoints.model import BOTH, FORMS
from savepoints.moments import parse_rfc3339, utc_now
from savepoints.observe import logs
from savepoints.plan import Plan

if TYPE_CHECKING:
    from savepoints.config.settings import Settings
    from savepoints.operations.rollback.journalled import JournalledPlan
    from savepoints.store.root import Store

Function = Callable[..., Any]


def moment(context: click.Context, parameter: click.Parameter, text: str | None) -> datetime | None:
    """Read the value of an option: an RFC 3339 time, or how long ago, such as `7d`."""
    del context, parameter
    if text is None:
        return None
    try:
        return utc_now() - parse_duration(text)
    except UsageError:
        pass
    try:
        return parse_rfc3339(text)
    except UsageError as error:
        hint = f"{error.hint}; or as an age of at most 36500d, such as 10m or 7d"
        raise UsageError(error.message, hint=hint) from None


def duration(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> timedelta | None:
    """Read the value of an option that is a duration."""
    del context, parameter
    return None if text is None else parse_duration(text)


# Where a parsed `--any-line` waits for the store to be opened, and `--execute` for the question.
_ANY_LINE = "savepoints.any_line"
_EXECUTE = "savepoints.execute"


@dataclass(frozen=True)
class Consent:
    """The answers to a plan's question that the caller gives in advance."""

    dry_run: bool
    yes: bool
    no_input: bool


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

        return Store.open(str(self.place.root), settings=self.settings, any_line=self.any_line)

    @property
    def place(self) -> Store:
        """The store, which may not exist yet."""
        from savepoints.store.root import Store

        return Store.at(self.settings.store, settings=self.settings, any_line=self.any_line)

    def say_resumed(self, plan: JournalledPlan | None) -> None:
        """Say that an interrupted operation is resumed, if the plan is that of one."""
        if plan is not None and plan.resumed:
            self.output.progress(f"resuming the interrupted {plan.verb} {plan.operation_id}")

    def confirm(
        self,
        plan: Plan,
        consent: Consent,
        *,
        unasked: bool = False,
        show: Callable[[], None] | None = None,
    ) -> bool:
        """Show a plan and find out whether to execute it.

        Args:
            unasked: Do not ask, because nothing existing is changed.
            show: Prints the plan as text if its steps alone are not enough.

        Returns:
            False for a dry run.

        Raises:
            StoppedError: If the user declines: what a shell runs after `&&` must not begin.
        """
        if consent.dry_run and self.output.format == "json":
            self.output.document(dry_run=True, plan=plan.to_json())
            return False
        if show is None or self.output.format == "json":
            self.output.plan(plan, is_result=consent.dry_run)
        else:
            show()
        if consent.dry_run:
            self.output.err.print("dry run: nothing was changed")
            return False
        if unasked or consent.yes or click.get_current_context().meta.get(_EXECUTE):
            return True
        if consent.no_input or not sys.stdin.isatty():
            raise UsageError(
                f"{plan.verb} needs confirmation, but stdin is not a terminal or --no-input "
                "was given",
                hint="review the plan with --dry-run, then pass --yes",
            )
        _ask()
        return True


def _ask() -> None:
    """Ask whether to execute the plan that was shown.

    Raises:
        StoppedError: If the answer is no, or none is given.
    """
    try:
        agreed = click.confirm("Proceed?", err=True)
    except click.Abort:  # Ctrl-C or Ctrl-D, which leave the line of the question open.
        click.echo(err=True)
        agreed = False
    if not agreed:
        raise StoppedError(
            "not confirmed: nothing was changed",
            hint="to execute the plan, answer y, or pass --yes",
        )


# Key under which options given before the command wait for it.
_BEFORE = "savepoints.options"
_FORMATS: tuple[OutputFormat, ...] = ("text", "json")
_STYLES: tuple[ProgressStyle, ...] = ("auto", "plain", "none")
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
# Options by which an empty text removes what is there.
_MAY_BE_EMPTY = {"description"}


class _Unlisted(click.Option):
    """An option shown only on the first help page; a shell still completes it."""

    def get_help_record(self, ctx: click.Context) -> None:
        """Return nothing."""
        del ctx


def _of_every_command(function: Function, *, kind: type[click.Option]) -> Function:
    """Add the options that every command has; they have no defaults here, so that both can be."""
    for names, value, meaning in (
        (("--log-format",), click.Choice(_FORMATS), "Format of the log on stderr."),
        (("--log-level",), click.Choice(_LEVELS, case_sensitive=False),
         "Lowest level of the log on stderr; WARNING by default."),
        (("--progress",), click.Choice(_STYLES), "How to show progress on stderr; none hides it."),
        (("-o", "--output", "output_format"), click.Choice(_FORMATS),
         "Print text for people, or one JSON document for scripts."),
        (("--profile",), str, "Profile to use from the settings file."),
        (("--config",), click.Path(path_type=Path),
         "Settings file; savepoints.toml in the current directory by default."),
        (("--store", "store_uri"), str, "Location of the store: a directory or s3://bucket/path."),
    ):  # fmt: skip
        function = click.option(
            *names, cls=kind, type=value, help=meaning,
            metavar="URI" if "store_uri" in names else None,
        )(function)  # fmt: skip
    return function


def before_the_command(function: Function) -> Function:
    """Also accept the common options before a command's name: `savepoints --store URI list`."""

    @functools.wraps(function)
    def wrapped(**given: object) -> None:
        click.get_current_context().meta[_BEFORE] = given

    return _of_every_command(wrapped, kind=click.Option)


def common(function: Function) -> Function:
    """Add the options that every command has, and pass it an `Invocation` first."""

    @click.pass_obj
    @functools.wraps(function)
    def wrapped(
        output: Terminal,
        /,
        *args: object,
        **options: Any,  # noqa: ANN401  (of any command)
    ) -> Any:  # noqa: ANN401  (whatever the command returns)
        meta = click.get_current_context().meta
        for name, value in meta.get(_BEFORE, {}).items():
            if options[name] is None:
                options[name] = value
        output.format = options.pop("output_format") or "text"
        output.progress_style = "none" if options.pop("progress") == "none" else "plain"
        _refuse_empty(click.get_current_context())
        level, log_format = options.pop("log_level"), options.pop("log_format")
        logs.to_stderr(level or "WARNING", log_format or "text")
        call = Invocation(
            output,
            options.pop("config"),
            options.pop("profile"),
            options.pop("store_uri"),
            any_line=bool(meta.get(_ANY_LINE)),
        )
        return function(call, *args, **options)

    return _of_every_command(wrapped, kind=_Unlisted)


def _refuse_empty(context: click.Context) -> None:
    """Refuse an empty value: a script's variable that is not set asks for something else then."""
    for one in context.command.params:
        source = context.get_parameter_source(one.name or "")
        if one.name in _MAY_BE_EMPTY or source is not ParameterSource.COMMANDLINE:
            continue
        value = context.params.get(one.name or "")
        if value == "" or (isinstance(value, tuple) and "" in value):
            # That of an argument which may be left out, or be there several times, is `[TAG]...`.
            metavar = one.make_metavar(context).strip("[].")
            name = one.opts[0] if isinstance(one, click.Option) else metavar
            raise UsageError(f"{name} is empty", hint=f"give {name} a value, or omit it")


def mutating(function: Function) -> Function:
    """Add the options of commands that change something, and pass them as a `Consent`."""

    @functools.wraps(function)
    def wrapped(
        *args: object,
        dry_run: bool,
        yes: bool,
        no_input: bool,
        **options: Any,  # noqa: ANN401  (of any command)
    ) -> Any:  # noqa: ANN401  (whatever the command returns)
        return function(*args, consent=Consent(dry_run, yes, no_input), **options)

    for option in (
        click.option("--no-input", is_flag=True, help="Fail instead of asking for confirmation."),
        click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation."),
        click.option("--dry-run", is_flag=True, help="Show the plan and change nothing."),
    ):
        wrapped = option(wrapped)
    return wrapped


def require_undo_alone(command: str) -> None:
    """Refuse options of this command's own that were given beside `--undo`, which makes them void.

    Args:
        command: What to type instead.
    """
    context = click.get_current_context()
    consent = {one.name for one in fields(Consent)}
    ours = [
        one
        for one in context.command.params
        if isinstance(one, click.Option) and not isinstance(one, _Unlisted)
        and one.name not in consent and "--undo" not in one.opts
    ]  # fmt: skip
    given = [
        one.opts[0]
        for one in ours
        if context.get_parameter_source(one.name or "") is ParameterSource.COMMANDLINE
    ]
    if given:
        raise UsageError(
            f"--undo cannot be combined with {', '.join(given)}",
            hint=f"omit {', '.join(given)}: {command}",
        )


def executed(function: Function) -> Function:
    """Add `--execute`, which kafka-consumer-groups has where other commands here have `--yes`."""

    def keep(context: click.Context, _option: click.Parameter, value: bool) -> None:
        context.meta[_EXECUTE] = value

    return click.option(
        "--execute", is_flag=True, hidden=True, expose_value=False, callback=keep,
        help="The same as --yes.",
    )(function)  # fmt: skip


def saved_forms(default: str, help: str) -> Callable[[Function], Function]:  # noqa: A002 - as click
    """Return the option of commands that take savepoints, which passes the forms of these."""
    return click.option(
        "--format",
        "forms",
        type=click.Choice([BOTH, *FORMS]),
        default=default,
        callback=lambda _context, _parameter, word: FORMS if word == BOTH else (word,),
        help=help,
    )


def at_most(help: str) -> Callable[[Function], Function]:  # noqa: A002 - as click
    """Return `--wait` of commands that wait for a running query."""
    return click.option("--wait", metavar="DURATION", default="10m", callback=duration, help=help)


def no_source_check(starts: str, more: str = "") -> Callable[[Function], Function]:
    """Return `--no-source-check` of commands after which a query starts, and what else it does."""
    return click.option(
        "--no-source-check",
        is_flag=True,
        help="Do not check that Kafka, or the log of a table, still has what is to be read next; "
        f"{starts} may then fail to start{more}.",
    )


def no_safety_savepoint(verb: str) -> Callable[[Function], Function]:
    """Return `--no-safety-savepoint` of commands that leave a generation."""
    return click.option(
        "--no-safety-savepoint",
        is_flag=True,
        help="Do not take a safety savepoint, for example because the checkpoint is damaged. The "
        f"{verb} then cannot be undone.",
    )


# Of commands that draw the page.
store_alone = click.option(
    "--no-source-check",
    is_flag=True,
    help="Read only the store, not Kafka or checkpoints. The page then shows neither lag nor how "
    "long savepoints can still be restored.",
)


# Of commands that restore.
restored_form = click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    help="Form of the state to restore from; by default native if possible, otherwise canonical.",
)
broken_too = click.option(
    "--even-broken",
    is_flag=True,
    help="Use the savepoint even if it is marked as broken; damaged files are still refused.",
)
outputs_too = click.option(
    "--outputs",
    type=click.Choice(["rewind", "none"]),
    default="rewind",
    help="rewind: rewind the output tables together with the state; none: leave them as they are, "
    "so replayed rows may be written twice.",
)
unreplayable_too = click.option(
    "--accept-unreplayable",
    is_flag=True,
    help="Continue even if a source, such as a socket, cannot be read again, or files that were "
    "read are gone; their rows are lost.",
)
pausing_the_run = at_most("How long to wait for a run to pause, and later to resume.")
next_checkpoint = click.option(
    "--to",
    metavar="URI",
    help="Checkpoint directory of the new generation; by default a new one in the directory that "
    "the settings name, or beside the current one.",
)
stopped_said = click.option(
    "--stopped",
    is_flag=True,
    help="Assume that no driver of your own is running, without first watching checkpoints for new "
    "batches.",
)


# Of commands that write tables for forks, compare queries, or take their tables by name.
isolated = click.option(
    "--outputs",
    "way",
    type=click.Choice(["copy", "clone"]),
    default="copy",
    help="copy: copy the tables with all their files; clone: make shallow clones, which break when "
    "the original table is vacuumed.",
)
checkpoints_of_forks = click.option(
    "--checkpoints", metavar="URI", help="Directory in which to create the forks' checkpoints."
)
rows_shown = click.option(
    "--sample",
    type=click.IntRange(min=0),
    default=10,
    metavar="ROWS",
    help="How many changed, missing and extra rows of each output to show; 10 by default.",
)
of_operator = click.option(
    "--operator",
    type=int,
    metavar="N",
    help="Number of the operator, as listed by `savepoints show`.",
)
tables_written = click.option(
    "--table",
    "tables",
    metavar="NAME=URI",
    multiple=True,
    help="Delta table that the query writes, and a name for it; may be repeated.",
)
topics_written = click.option(
    "--output-topic",
    "output_topics",
    metavar="TOPIC",
    multiple=True,
    help="Kafka topic that only this query writes to; may be repeated.",
)


def of_query(function: Function) -> Function:
    """Add `--query` and `--any-line`, which narrow and widen what a savepoint's name can mean."""
    any_line = click.option(
        "--any-line",
        is_flag=True,
        expose_value=False,
        callback=_keep_any_line,
        help="Allow latest and @TIME to select savepoints of batches that were rolled back or "
        "replaced.",
    )
    return click.option(
        "--query",
        shell_complete=query_names,
        help="Query that the savepoint belongs to; needed if the store has several queries.",
    )(any_line(function))


def _keep_any_line(context: click.Context, _option: click.Parameter, value: bool) -> None:
    context.meta[_ANY_LINE] = value
