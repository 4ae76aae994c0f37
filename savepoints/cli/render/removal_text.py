"""What expire and gc deleted, as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from savepoints.cli.output import Terminal
from savepoints.errors import PartlyDoneError
from savepoints.texts import bytes_text, count_text

if TYPE_CHECKING:
    from savepoints.operations.maintain.expire import Expired
    from savepoints.operations.maintain.gc import Collected


def show(
    output: Terminal, done: Expired | Collected, lines: Iterable[str], *, total: str = ""
) -> int:
    """Print what was deleted and what was not, and return the exit code.

    Args:
        lines: What the command says of each savepoint.
        total: How many of them were removed.
    """
    if output.format == "json":
        output.document(**{type(done).__name__.lower(): done})
    else:
        for line in lines:
            output.line(line)
        for name, reasons in done.kept.items():
            output.line(f"kept {name}: {', '.join(reasons)}")
        for query, why in done.locked.items():
            output.line(f"skipped {query}: {why}")
        for finding in done.findings:
            output.line(f"note: {finding}")
        output.line(
            f"{total}{bytes_text(done.bytes)} in {count_text(done.files, 'file')} freed, "
            f"{done.seconds:.1f} s"
        )
    return PartlyDoneError.exit_code if done.locked or done.findings else 0
