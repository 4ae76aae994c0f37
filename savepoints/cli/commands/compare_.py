"""Run queries to the same offsets and compare their results."""

from __future__ import annotations

import json
from pathlib import Path

import click

from savepoints.cli.names import query_names
from savepoints.cli.options import Consent, Invocation, common, mutating, rows_shown
from savepoints.cli.output import SCHEMA_VERSION
from savepoints.errors import PartlyDoneError, UsageError


def _keys(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    """Read `OUTPUT=COLUMN,COLUMN`."""
    del context, parameter
    found = {}
    for text in texts:
        name, separator, columns = text.partition("=")
        names = tuple(one.strip() for one in columns.split(","))
        if not separator or not all(names):
            raise UsageError(
                f"--key {text!r} is not in the form OUTPUT=COLUMN,COLUMN",
                hint="write, for example, --key totals=customer_id",
            )
        found[name] = names
    return found


def _metrics(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    """Read `NAME=SQL`."""
    del context, parameter
    found = {}
    for text in texts:
        name, separator, sql = text.partition("=")
        if not separator or not name or not sql.strip():
            raise UsageError(
                f"--metric {text!r} is not in the form NAME=SQL",
                hint='write, for example, --metric "revenue=SELECT sum(total) FROM totals"',
            )
        found[name] = sql
    return found


@click.command("compare")
@click.argument(
    "queries", nargs=-1, required=True, metavar="BASELINE QUERY...", shell_complete=query_names
)
@click.option(
    "--until",
    default="latest",
    metavar="END",
    help="Run all queries to this point: latest (where the sources end now), an RFC 3339 "
    "time, a JSON file of offsets, or the name of a savepoint.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    callback=_keys,
    metavar="OUTPUT=COLUMN,...",
    help="Match the rows of this output by these columns, instead of by the key that the "
    "application declares; may be repeated.",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    callback=_metrics,
    metavar="NAME=SQL",
    help="Also compare the result of this SQL query, in which each output is a view named after "
    "it; may be repeated.",
)
@click.option(
    "--report",
    "page",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.html",
    help="Also write the comparison to this file, as an HTML report.",
)
@rows_shown
@click.option("--no-state", is_flag=True, help="Do not compare the state.")
@mutating
@common
def command(
    call: Invocation,
    queries: tuple[str, ...],
    until: str,
    keys: dict[str, tuple[str, ...]],
    metrics: dict[str, str],
    page: Path | None,
    sample: int,
    *,
    no_state: bool,
    consent: Consent,
) -> int:
    """Run queries to the same offsets and compare them with BASELINE.

    The queries are usually forks of one savepoint. Each runs exactly to --until and takes a
    savepoint there. Queries that are behind run the same batches as the one furthest ahead. All use
    the max_offsets_per_trigger of BASELINE.

    Outputs are compared by key, or as a multiset of rows if there is no key. State is compared row
    by row. Metrics and cost are compared too. The verdict is "same", "within" (the differences are
    within the [compare.thresholds] in the settings) or "different". Without thresholds, any
    difference in an output, the state or a metric counts; cost never does. Exit code 3 if
    the verdict is "different".

    \b
    Examples:
      savepoints compare totals_a totals_b --yes
      savepoints compare totals_a totals_b totals_c --until 2026-11-20T10:00:00Z --yes
      savepoints compare totals_a totals_b --key totals=customer_id,day --report report.html --yes
      savepoints compare totals_a totals_b --metric "revenue=SELECT sum(total) FROM totals" --yes
    """
    from savepoints.cli.render import comparison_text
    from savepoints.operations.fork import compare
    from savepoints.ui import environment, report
    from savepoints.ui import page as pages

    if page is not None:
        environment.require("reports")
        pages.require_place(page, "--report")
    plan = compare.plan(
        call.store,
        queries,
        until=until,
        keys=keys,
        metrics=metrics,
        sample=sample,
        state=not no_state,
    )
    if not call.confirm(plan, consent):
        return 0
    found = compare.execute(plan, call.store, progress=call.output.progress)
    if page is not None:
        again = report.command(found, keys=keys, metrics=metrics, state=not no_state, page=page)
        report.write(found, page, again)
    if call.output.format == "json":
        document = {"schema_version": SCHEMA_VERSION, "comparison": found.to_json()}
        call.output.write(json.dumps(document, indent=2))
    else:
        comparison_text.show(call.output, found)
        if page is not None:
            call.output.line(f"report: {page}")
    return PartlyDoneError.exit_code if found.verdict == "different" else 0
