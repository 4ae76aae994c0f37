"""Who reads a command's output may go away: `savepoints undo clicks --yes 2>&1 | head -1`."""

from __future__ import annotations

import os

from savepoints.cli import output
from savepoints.cli.output import Terminal


def test_trap_a_closed_pipe_ends_a_verb_between_two_steps() -> None:
    """Rich raises SystemExit, in the middle of whatever prints."""
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as nobody:
        terminal = Terminal(out=output._console(nobody), err=output._console(nobody))

        terminal.progress("taking a safety savepoint")
        terminal.progress("rewinding the table")
        terminal.line("rolled back")
