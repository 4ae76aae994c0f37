"""Compare two savepoints row by row."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from savepoints.cli.names import savepoint_names
from savepoints.cli.options import Invocation, common, of_query
from savepoints.cli.output import SCHEMA_VERSION, Terminal
from savepoints.cli.render import position_text, row_text
from savepoints.errors import PartlyDoneError
from savepoints.texts import or_dash

if TYPE_CHECKING:
    from savepoints.operations.inspect.diff import Diff


@click.command("diff")
@click.argument("before", shell_complete=savepoint_names)
@click.argument("after", shell_complete=savepoint_names)
@click.option("--operator", type=int, metavar="N", help="Compare the state of this operator only.")
@click.option(
    "--sample",
    type=click.IntRange(min=0),
    default=10,
    metavar="ROWS",
    help="How many added, removed and changed rows to show for each state variable; 10 by default.",
)
@of_query
@common
def command(
    call: Invocation, before: str, after: str, operator: int | None, sample: int, query: str | None
) -> int:
    """Compare two savepoints: batch, offsets, operators, and state rows.

    The savepoints may belong to different queries. How the state is stored (partitions, provider,
    formats) is ignored. Different settings are shown, but do not count as a difference. Operators
    with equal content hashes are skipped; those with list state only if the hashes know the order
    of list elements, as those of savepoints of earlier versions do not.

    Exit code 3 if the savepoints differ, 0 if they do not.

    \b
    Examples:
      savepoints diff latest~1 latest
      savepoints diff before-release latest --operator 0 --sample 3
      savepoints diff latest~1 latest -o json | jq .variables
    """
    from savepoints.operations.inspect.diff import diff

    found = diff(
        call.store,
        before,
        after,
        query=query,
        operator=operator,
        sample=sample,
        progress=call.output.progress,
    )
    if call.output.format == "json":
        document = {"schema_version": SCHEMA_VERSION, **found.to_json()}
        call.output.out.raw(json.dumps(document, indent=2) + "\n")
    else:
        _show(call.output, found)
    return 0 if found.equal else PartlyDoneError.exit_code


def _show(output: Terminal, found: Diff) -> None:
    ids = found.savepoints
    if found.equal:
        output.line(f"no difference between {ids.before} and {ids.after}")
    else:
        output.table(
            ("", ids.before, ids.after),
            [
                ("batch", found.batch_id.before, found.batch_id.after),
                ("watermark (ms since 1970)", found.watermark_ms.before, found.watermark_ms.after),
            ],
        )
    if found.offsets:
        output.line("Offsets (next to read)")
        output.table(
            ("source", "topic", "partition", "before", "after"),
            (
                (
                    one.source,
                    or_dash(one.topic),
                    or_dash(one.partition),
                    *(
                        position_text.text(it) if isinstance(it, str) else or_dash(it)
                        for it in (one.before, one.after)
                    ),
                )
                for one in found.offsets
            ),
        )
    if found.settings:
        output.line("Settings (not counted as a difference)")
        output.table(
            ("setting", "before", "after"),
            (
                (name, or_dash(change.before), or_dash(change.after))
                for name, change in found.settings.items()
            ),
        )
    _show_state(output, found)


def _show_state(output: Terminal, found: Diff) -> None:
    for label, operators in (
        ("added", found.operators_added),
        ("removed", found.operators_removed),
    ):
        for operator in operators:
            output.line(f"operator {operator.operator_id} ({operator.operator_name}) was {label}")
    for operator_id in found.same_contents:
        output.line(f"the state of operator {operator_id} is identical")
    if found.variables:
        output.line("State")
        output.table(
            ("operator", "name", "variable", "added", "removed", "changed"),
            (
                (
                    one.variable.operator_id,
                    one.variable.operator_name,
                    or_dash(one.variable.name),
                    one.rows.added,
                    one.rows.removed,
                    one.rows.changed,
                )
                for one in found.variables
            ),
        )
    for one in found.variables:
        if one.rows.layout:
            output.line(f"{one.variable} has different columns:")
            output.line(f"  before {one.rows.layout.before}")
            output.line(f"  after  {one.rows.layout.after}")
        if one.rows.sample:
            shown = len(one.rows.sample)
            output.line(row_text.rows_title(one.variable, one.rows.different_rows, shown))
            output.table(("", "row", "before", "after"), map(row_text.row_change, one.rows.sample))
