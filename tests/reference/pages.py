"""The pages of docs/reference that are written from the code.

`make reference`, or `python -m tests.reference`, writes them anew.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import click
from pydantic import BaseModel

from savepoints import errors
from savepoints.cli.main import _SECTIONS, cli
from savepoints.config import files
from savepoints.config.settings import Settings
from savepoints.observe import metrics
from savepoints.store.tables.events import Event
from tests.reference.documents import DOCUMENTS
from tests.reference.kinds import (
    collect,
    escaped,
    fields_of,
    fields_table,
    meanings,
    summary,
    table,
    type_name,
)

DIRECTORY = Path(__file__).parents[2] / "docs" / "reference"
_NOTE = "Written from the code by `make reference`."
_COMMON = {"store_uri", "config", "profile", "output_format", "progress", "log_level", "log_format"}

_COMMANDS = """\
See also: what each command prints with `-o json` ([JSON](json.md)), what its exit code means \
([exit codes](exit-codes.md)), and where settings come from ([settings](settings.md))."""
_JSON = """\
With `-o json` a command prints one document on stdout. Names are snake_case, times are RFC 3339 \
in UTC, and units are part of the name. Every document has `schema_version`, which is 1: fields \
may be added without changing it, but none is removed. An error is one object on stderr: [exit \
codes](exit-codes.md)."""
_SETTINGS = """\
In order of precedence: a flag; the environment; a profile (`[profiles.NAME]`, chosen with \
`--profile`); `savepoints.toml` in the working directory; `[tool.savepoints]` in \
`pyproject.toml`; the user's file (`~/.config/savepoints/savepoints.toml`); the default. \
`savepoints config` shows the effective settings and where each comes from; `savepoints init` \
writes a file from an existing checkpoint. Unknown keys and variables are errors. Durations are \
written like `90s`, `15m`, `7d` or `PT15M`. Relative paths count from the working directory, also \
in a file that `--config` names elsewhere: write full paths where commands are started from \
several directories, as by cron."""
_ERRORS = """\
Each error has a `message`, a `hint` (what to do next, as a command if possible; a traceback and \
`str(error)` end with it), an `exit_code`, `retryable`, and `details` with the identifiers that it \
is about. `savepoints.SavepointsError` is the base class of all."""
_EVENTS = """\
Every command that finishes adds a row to the Delta table `events/` of the store, which any Delta \
reader can read. Rows are never changed."""
_METRICS = """\
`savepoints metrics` prints them in Prometheus' text format, writes a file for the node exporter, \
or serves them over HTTP. They are computed from the catalog and the [events](events.md)."""


def commands() -> Iterator[tuple[str, str, click.Command]]:
    """Give every command with its section and its words; of a group, those below it."""
    for section, names in _SECTIONS.items():
        for name in names:
            command = cli.get_command(click.Context(cli), name)
            assert command is not None
            if isinstance(command, click.Group):
                for below, one in command.commands.items():
                    yield section, f"{name} {below}", one
            else:
                yield section, name, command


def commands_page() -> str:
    """Write the page of commands: use, options and examples."""
    found = list(commands())
    parts = ["# Commands", _NOTE, _COMMANDS, "## Options of every command"]
    parts.append(_options(cli, common=True))
    for section in _SECTIONS:
        parts.append(f"## {section}")
        for _, words, command in (one for one in found if one[0] == section):
            parts += _command(words, command)
    return _page(parts)


def json_page() -> str:
    """Write the page of JSON documents: a table a command, a table a kind of value."""
    parts = ["# JSON", _NOTE, _JSON]
    kinds: dict[type, None] = {}
    for words, documents in DOCUMENTS.items():
        parts.append(f"## {words}")
        for document in documents:
            if document.when:
                parts.append(f"{document.when}:")
            parts.append(fields_table(document.fields))
            for hint, _ in document.fields.values():
                collect(hint, kinds)
    parts.append("## Values")
    for kind in sorted(kinds, key=lambda kind: kind.__name__):
        parts += [f"### {kind.__name__}", summary(kind), fields_table(fields_of(kind))]
    return _page(parts)


def settings_page() -> str:
    """Write the page of settings: keys, variables, types, defaults."""
    parts = ["# Settings", _NOTE, _SETTINGS]
    for path, model in _models(Settings, ()):
        parts += [f"## {'.'.join(path) or 'At the top'}", summary(model)]
        said = meanings(model)
        rows = [
            (
                f"`{name}`",
                f"`{files.variable([*path, name])}`",
                # What is written in JSON as a number of seconds is given as text in settings.
                type_name(info.annotation).replace("seconds", "duration"),
                "required" if info.is_required() else _default(info.default),
                said.get(name, ""),
            )
            for name, info in model.model_fields.items()
            if _model_of(info.annotation) is None
        ]
        parts.append(table(("key", "variable", "type", "default", ""), rows))
    parts.append("## Variables that are not settings")
    rest = [(f"`{name}`", said) for name, said in files.OTHER_VARIABLES.items()]
    return _page([*parts, table(("variable", ""), rest)])


def errors_page() -> str:
    """Write the page of errors: the tree, and what each means."""
    doc = errors.__doc__ or ""
    tree = doc[doc.index("SavepointsError ") : doc.index("\n\nThe number is")]
    rows = [
        (
            f"`{one.__name__}`",
            str(one.exit_code),
            "yes" if one.retryable else "",
            summary(one),
        )
        for one in _errors(errors.SavepointsError)
    ]
    listed = table(("error", "exit code", "retryable", ""), rows)
    return _page(["# Errors", _NOTE, _ERRORS, f"```text\n{tree}\n```", listed])


def events_page() -> str:
    """Write the page of events."""
    return _page(["# Events", _NOTE, _EVENTS, fields_table(fields_of(Event))])


def metrics_page() -> str:
    """Write the page of metrics."""
    rows = [
        (f"`{one.name}`", one.kind, ", ".join(f"`{label}`" for label in one.labels), one.help)
        for one in metrics.METRICS
    ]
    return _page(["# Metrics", _NOTE, _METRICS, table(("metric", "kind", "labels", ""), rows)])


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "json.md": json_page,
    "settings.md": settings_page,
    "errors.md": errors_page,
    "events.md": events_page,
    "metrics.md": metrics_page,
}


def _page(parts: list[str]) -> str:
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _command(words: str, command: click.Command) -> list[str]:
    text, _, examples = inspect.cleandoc(command.help or "").partition("\b\nExample")
    usage = command.get_usage(click.Context(command, info_name=f"savepoints {words}"))
    lines = "\n".join(line.strip() for line in examples.splitlines()[1:] if line.strip())
    return [
        f"### savepoints {words}",
        *(escaped(paragraph) for paragraph in text.split("\n\n")),
        f"```text\n{' '.join(usage.removeprefix('Usage: ').split())}\n```",
        _options(command),
        f"```sh\n{lines}\n```",
    ]


def _options(command: click.Command, *, common: bool = False) -> str:
    rows = []
    for one in command.params:
        if not isinstance(one, click.Option) or one.hidden:
            continue
        if (one.name in _COMMON) == common:
            names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
            value = "" if one.is_flag else f" `{_value(one)}`"
            default = f" Default: `{one.default}`." if one.show_default else ""
            rows.append((f"{names}{value}", escaped(one.help or "") + default))
    return table(("option", ""), rows) if rows else ""


def _value(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return "|".join(str(choice) for choice in option.type.choices)
    return option.metavar or option.type.name.upper()


def _models(
    model: type[BaseModel], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], type[BaseModel]]]:
    yield path, model
    for name, info in model.model_fields.items():
        below = _model_of(info.annotation)
        if below is not None:
            named = ("NAME",) if get_origin(info.annotation) is dict else ()
            yield from _models(below, (*path, name, *named))


def _model_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_of, get_args(annotation))), None)


def _default(value: Any) -> str:
    if value is None or value in ("", {}, ()):
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _errors(root: type[errors.SavepointsError]) -> list[type[errors.SavepointsError]]:
    return [root, *(one for child in root.__subclasses__() for one in _errors(child))]
