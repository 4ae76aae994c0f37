"""Check that a savepoint is complete and undamaged."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from savepoints.cli.names import savepoint_names
from savepoints.cli.options import Invocation, common, of_query
from savepoints.cli.output import Terminal
from savepoints.errors import UsageError, VerificationError
from savepoints.texts import bytes_text, count_text, moment_text

if TYPE_CHECKING:
    from savepoints.operations.inspect.findings import Grade
    from savepoints.operations.inspect.verify import Depth, Report, Reports

COLOURS = {"ok": "green", "warning": "yellow", "broken": "red"}


@click.command("verify")
@click.argument("name", required=False, shell_complete=savepoint_names)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Verify all savepoints; with --query, only those of that query.",
)
@click.option(
    "--structure", "depth", flag_value="structure", help="Check only that all files exist."
)
@click.option(
    "--checksums",
    "depth",
    flag_value="checksums",
    help="Hash every file and count rows, without a JVM. This is the default.",
)
@click.option(
    "--contents",
    "depth",
    flag_value="contents",
    help="Also read the canonical rows with Spark and compare their content hashes with the "
    "recorded ones.",
)
@click.option(
    "--deep",
    "depth",
    flag_value="deep",
    help="Also restore each form of the savepoint to a temporary checkpoint, and compare the "
    "restored state with the saved state.",
)
@click.option(
    "--read-data",
    "share",
    metavar="SHARE",
    help="Hash only a subset of the files: 10% for a random sample, 2/7 for the second of seven "
    "fixed parts, or day/7 for another of them each day (UTC), so that seven days read all. "
    "The existence of every file is always checked.",
)
@of_query
@common
def command(
    call: Invocation,
    name: str | None,
    depth: Depth | None,
    share: str | None,
    query: str | None,
    *,
    everything: bool,
) -> int:
    """Check that savepoint NAME is complete and undamaged.

    Hashes every file and compares row counts. Starts a JVM only with --contents or --deep. To check
    the store and this machine, use `savepoints check`.

    A savepoint that fails is marked as broken, and `latest` skips it until a later verify finds it
    undamaged. Exit code 13 if a savepoint is broken, 0 if there are only warnings.

    \b
    Examples:
      savepoints verify latest
      savepoints verify latest --contents -o json
      savepoints verify before-release --deep
      savepoints verify --all --query order_totals
      savepoints verify --all --read-data day/7
    """
    from savepoints.operations.inspect.verify import Report, verify, verify_all

    if (name is None) != everything:
        raise UsageError(
            "verify needs either a savepoint or --all",
            hint="name a savepoint (savepoints verify latest), or check all of them: "
            "savepoints verify --all",
        )
    chosen = partial(verify_all, call.store) if name is None else partial(verify, call.store, name)
    found = chosen(
        query=query, depth=depth or "checksums", share=share, progress=call.output.progress
    )
    if call.output.format == "json":
        call.output.document(**({"report": found} if isinstance(found, Report) else vars(found)))
    elif isinstance(found, Report):
        _show(call.output, found)
    else:
        _show_all(call.output, found)
    return VerificationError.exit_code if found.grade == "broken" else 0


def grade(output: Terminal, grade: Grade, text: str) -> None:
    """Print a line that begins with a grade."""
    output.out.print(f"[{COLOURS[grade]}]{grade}[/{COLOURS[grade]}]: ", end="", highlight=False)
    output.line(text)


def _show(output: Terminal, report: Report) -> None:
    for finding in report.findings:
        grade(output, finding.grade, f"{finding.what} {finding.problem}")
    grade(
        output,
        report.grade,
        f"{report.savepoint_id}, {count_text(report.files, 'file')}, "
        f"{bytes_text(report.bytes_read)} read, "
        f"{count_text(report.operators, 'operator')}, "
        + ("rows not counted" if report.rows is None else count_text(report.rows, "row"))
        + f", {report.seconds:.1f} s",
    )
    for one in report.outputs:
        if one.until is not None:
            until = moment_text(one.until)
            output.line(f"  output {one.output}: version {one.version} can be read until {until}")


def _show_all(output: Terminal, found: Reports) -> None:
    for one in found.reports:
        _show(output, one)
    grade(
        output,
        found.grade,
        f"{count_text(len(found.reports), 'savepoint')}, {bytes_text(found.bytes_read)} read, "
        f"{found.seconds:.1f} s",
    )
