"""What is printed is what was meant, to the letter."""

from __future__ import annotations

import io
import re

import pytest

from savepoints.cli import output
from savepoints.cli.output import Terminal
from savepoints.errors import UsageError

# As paths of Windows end, and as patterns of topics and columns of nested types look.
TEXTS = [
    "C:\\",
    "in D:\\lake\\",
    r"orders-\[0-9\]\[a-z]",
    "[bold]a[/bold]\\",
    r"\[",
    r"\\[b]",
    r"a\\",
    r"items[0]\[x",
]


@pytest.fixture
def shown() -> tuple[Terminal, io.StringIO]:
    stream = io.StringIO()
    return Terminal(out=output._console(stream), err=output._console(stream)), stream


@pytest.mark.parametrize("text", TEXTS)
def test_trap_rich_takes_backslashes_for_its_own(
    shown: tuple[Terminal, io.StringIO], text: str
) -> None:
    """One at the end was doubled, and one before a bracket dropped: hints did not work."""
    terminal, stream = shown

    terminal.error(UsageError(text, hint=text))
    terminal.line(text)
    terminal.progress(text)
    terminal.pairs([("place", text)])
    terminal.table((text, "place"), [("a", text)])
    terminal.table((text, "place"), [("line\nline", text)])

    printed = stream.getvalue()
    assert len(re.findall(rf"(?<!\\){re.escape(text)}(?!\\)", printed)) == 5 + 2 + 2, printed
