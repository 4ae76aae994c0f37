"""`savepoints verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from savepoints.cli.command import Invocation, common, of_query
from savepoints.cli.output import bytes_text
from savepoints.errors import VerificationError

if TYPE_CHECKING:
    from savepoints.operations.verify import Depth


@click.command("verify")
@click.argument("name")
@click.option(
    "--structure", "depth", flag_value="structure", help="Only look whether the files are there."
)
@click.option(
    "--checksums",
    "depth",
    flag_value="checksums",
    help="Hash every file and count rows; needs no JVM.",
)
@click.option(
    "--deep", "depth", flag_value="deep", help="Also restore each form and compare its state."
)
@of_query
@common
def command(call: Invocation, name: str, depth: Depth | None, query: str | None) -> int:
    """Check that the savepoint NAME is whole, and name everything that is not.

    Hashes every file, compares row counts, and reads the canonical rows through Spark to compare
    the content hash of every operator. Exit code 13 when the savepoint is broken.

    \b
    Examples:
      savepoints verify latest
      savepoints verify latest --checksums -o json
      savepoints verify before-release --deep
    """
    from savepoints.operations.verify import verify

    report = verify(
        call.store,
        name,
        query=query,
        depth=depth or "contents",
        settings=call.settings,
        progress=call.output.progress,
    )
    if call.output.format == "json":
        call.output.document(report=report)
    else:
        colour = {"ok": "green", "warning": "yellow", "broken": "red"}[report.grade]
        for finding in report.findings:
            call.output.line(f"{finding.grade}: {finding.what} {finding.problem}")
        call.output.out.print(
            f"[{colour}]{report.grade}[/{colour}]: {report.savepoint_id}, {report.files} files, "
            f"{bytes_text(report.bytes_read)} read, {report.operators} operators, "
            f"{report.rows} rows, {report.seconds:.1f} s",
            highlight=False,
            soft_wrap=True,
        )
    return VerificationError.exit_code if report.grade == "broken" else 0
