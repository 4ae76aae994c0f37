"""The output of commands: text for people or one JSON document for scripts.

stdout is data, everything else goes to stderr. Commands pass values and never print. Everything
shown goes through this module, so secrets are masked here.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TextIO, TypeVar

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from savepoints.config import secrets
from savepoints.errors import SavepointsError
from savepoints.json_values import to_json
from savepoints.plan import Plan

SCHEMA_VERSION = 1
# Wider than any row of a table.
_PIPED_WIDTH = 1_000
# To how many signs a column of a table may be folded.
_NARROWEST = 4
# Columns of numbers, aligned right so that they are easy to compare.
_NUMERIC = {"batch", "rows", "bytes", "files", "operator", "partitions"}

T = TypeVar("T")
OutputFormat = Literal["text", "json"]
ProgressStyle = Literal["auto", "plain", "none"]


@dataclass
class Terminal:
    """Shows results on stdout and the rest on stderr."""

    format: OutputFormat = "text"
    progress_style: ProgressStyle = "auto"
    out: _Console = field(default_factory=lambda: _console(_Stream(sys.stdout, _refuse)))
    err: _Console = field(default_factory=lambda: _console(_Stream(sys.stderr, _go_on)))
    _begun: float = field(default_factory=time.monotonic)

    def document(self, **content: object) -> None:
        """Print the one JSON document of a command."""
        document = {"schema_version": SCHEMA_VERSION, **_for_scripts(to_json(content))}
        self.write(json.dumps(document, indent=2))

    def write(self, text: str) -> None:
        """Print a text for programs, as it is."""
        self.out.raw(secrets.mask_data(text) + "\n")

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        optional: Sequence[str] = (),
    ) -> None:
        """Print a table.

        Args:
            optional: Columns to leave out while the table is wider than the screen, first ones
                first.
        """
        # All cells at once: masking secrets costs as much for one as for all.
        texts = [str(cell).replace("\0", "") for row in rows for cell in row]
        cells = secrets.mask_data("\0".join(texts)).split("\0") if texts else []
        shown = [cells[at : at + len(columns)] for at in range(0, len(cells), len(columns))]
        widths = [max(map(cell_len, column)) for column in zip(columns, *shown, strict=True)]
        for name in optional:
            if sum(widths) + 3 * len(widths) <= self.out.width:
                break
            at = columns.index(name)
            columns, widths = _without(columns, at), _without(widths, at)
            shown = [_without(row, at) for row in shown]
        plain = all(cell.isprintable() for row in shown for cell in row)
        fits = sum(widths) + 3 * len(widths) <= self.out.width
        # Of a table that is wider even with narrow columns, rich cuts ids and leaves cells empty:
        # then the terminal wraps the lines.
        least = (
            width if name == "id" else min(width, _NARROWEST)
            for name, width in zip(columns, widths, strict=True)
        )
        if plain and (fits or sum(least) + 3 * len(widths) > self.out.width):
            self._fitting(columns, shown, widths)
            return
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in columns:
            table.add_column(
                Text(name),
                justify="right" if name in _NUMERIC else "left",
                overflow="fold",
                no_wrap=name == "id",
            )
        for row in shown:
            table.add_row(*map(Text, row))
        self.out.print(table)

    def _fitting(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int]
    ) -> None:
        """Print a table as rich would, which takes seconds for a thousand rows."""

        def line(cells: Sequence[str]) -> str:
            padded = []
            for name, cell, width in zip(columns, cells, widths, strict=True):
                space = " " * (width - (len(cell) if cell.isascii() else cell_len(cell)))
                padded.append(space + cell if name in _NUMERIC else cell + space)
            return f" {'   '.join(padded)} \n"

        rule = ("─" if self.out.encoding.startswith("utf") else "-") * (
            sum(widths) + 3 * (len(widths) - 1)
        )
        head = Text.assemble("\n", (line(columns), "bold"), f" {rule}")
        self.out.print(head, soft_wrap=True)
        self.out.raw("".join(map(line, rows)) + "\n")

    def pairs(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Print one name and its value per line."""
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for name, value in pairs:
            table.add_row(name, Text(secrets.mask_data(str(value))))
        self.out.print(table)

    def result(self, pairs: Callable[[], Iterable[tuple[str, object]]], **document: object) -> None:
        """Print what was done: one JSON document, or names and values.

        Args:
            pairs: Called only for text, because finding the next command may read the store.
        """
        if self.format == "json":
            self.document(**document)
        else:
            self.pairs(pairs())

    def said(self, text: str, **document: object) -> None:
        """Print what was done: one JSON document, or a line."""
        if self.format == "json":
            self.document(**document)
        else:
            self.line(text)

    def line(self, text: str) -> None:
        """Print a line of the result."""
        self.out.print(Text(secrets.mask_data(text)), soft_wrap=True)

    def plan(self, plan: Plan, *, is_result: bool = False) -> None:
        """Show the plan of a verb before it asks or acts; on stdout where that is all."""
        console = self.out if is_result else self.err
        of = f" {plan.query}" if plan.query else ""
        idle = f" {plan.idle}" if plan.idle else ""
        about = Text.assemble((plan.verb, "bold"), secrets.mask(f"{of}:{idle}"))
        console.print(about, soft_wrap=True)
        for number, step in enumerate(plan.steps, 1):
            _item(console, f"  {number}. ", step.what)
        for warning in plan.warnings:
            _item(console, "  note: ", warning, style="yellow")

    def progress(self, line: str) -> None:
        """Show the current step of a long operation and the seconds since the command started."""
        if self.progress_style != "none":
            seconds = time.monotonic() - self._begun
            shown = Text.assemble((f"{seconds:6.1f}s", "dim"), " ", secrets.mask(line))
            self.err.print(shown, soft_wrap=True)

    def error(self, error: SavepointsError) -> None:
        """Show an error with its hint, or as one JSON object."""
        if self.format == "json":
            self.err.raw(json.dumps(secrets.masked(to_json(error.to_json()))) + "\n")
            return
        self._marked(Text("error:", "bold red"), error.message)
        if error.hint:
            self._marked(Text("hint:", "bold"), error.hint)

    def _marked(self, mark: Text, text: str) -> None:
        # Not as markup: rich drops and doubles backslashes, and a hint is there to be typed.
        self.err.print(mark, secrets.mask(text), markup=False, soft_wrap=True)


def _without(cells: Sequence[T], at: int) -> list[T]:
    return [*cells[:at], *cells[at + 1 :]]


def _for_scripts(value: Any) -> Any:  # noqa: ANN401  (JSON is Any)
    """Write Spark's positions, which are text, as JSON values, and a missing watermark as null.

    For a query without a watermark Spark records 0.
    """
    if isinstance(value, list):
        return [_for_scripts(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {name: _for_scripts(one) for name, one in value.items()}
    if isinstance(positions := found.get("offsets"), list):
        found["offsets"] = [_position(one) for one in positions]
    if found.get("watermark_ms") == 0:
        found["watermark_ms"] = None
    return found


def _position(text: Any) -> Any:  # noqa: ANN401  (JSON is Any)
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


class _Stream:
    """A stream that cannot be written at times: a log has filled its disk, or a terminal is gone.

    That nobody reads it any more is for its console.
    """

    def __init__(self, stream: TextIO, unwritten: Callable[[OSError], None]) -> None:
        """Keep what to do then."""
        self._stream = stream
        self._unwritten = unwritten

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever a stream has)
        return getattr(self._stream, name)

    def write(self, text: str) -> None:
        """Write a text, as far as that is possible now."""
        self._try(lambda: self._stream.write(text))

    def flush(self) -> None:
        """Write what was kept back, as far as that is possible now."""
        self._try(self._stream.flush)

    def _try(self, do: Callable[[], object]) -> None:
        try:
            do()
        except BrokenPipeError:
            raise
        except OSError as error:
            self._unwritten(error)


def _go_on(_error: OSError) -> None:
    """Lose messages rather than interrupt a verb between two of its steps."""


def _refuse(error: OSError) -> None:
    """Fail, or a command would seem to have shown everything."""
    raise SavepointsError(
        f"the result cannot be written to stdout: {error.strerror or error}",
        hint="free space where stdout goes; if the command changes anything, that is done: see "
        "savepoints events",
    ) from None


def _console(stream: Any) -> _Console:  # noqa: ANN401  (any text stream)
    # Not a terminal: pipes and logs neither wrap tables nor lack columns.
    # No emoji: `:smile:` in somebody's data is just that.
    asked = os.environ.get("COLUMNS", "")
    width = int(asked) if asked.isdigit() else None if stream.isatty() else _PIPED_WIDTH
    return _Console(file=stream, width=width, emoji=False)


class _Console(Console):
    """A console that goes on silently when nobody reads it any more.

    Rich ends the process then, which would interrupt a verb between two of its steps.
    """

    def raw(self, text: str) -> None:
        """Print a text as it is."""
        try:
            self.file.write(text)
            self.file.flush()
        except BrokenPipeError:
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        """Print no more, also when Python flushes the stream at its end."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


def _item(console: Console, mark: str, text: str, style: str = "") -> None:
    """Print an item of a list; on a terminal its other lines stand under its first word."""
    lines = [text]
    if console.is_terminal:
        width = max(console.width - len(mark), 20)
        lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    shown = f"\n{' ' * len(mark)}".join(map(secrets.mask, lines))
    console.print(Text.assemble((mark, style), shown), soft_wrap=True)
