"""Start a query with state rows that a batch job has computed."""

from __future__ import annotations

import click

from savepoints.cli.names import query_names
from savepoints.cli.options import Consent, Invocation, common, mutating, saved_forms
from savepoints.errors import UsageError
from savepoints.model import Form
from savepoints.moments import parse_rfc3339
from savepoints.texts import bytes_text, count_text


@click.command("seed")
@click.argument("query", shell_complete=query_names)
@click.option(
    "--from",
    "places",
    multiple=True,
    required=True,
    metavar="[NAME=]TABLE",
    help="Delta table or Parquet files with state rows, or none for no rows. If the program keeps "
    "several states, repeat the option for each and name the state: 0.left=TABLE, or left=TABLE if "
    "no other state has that name.",
)
@click.option(
    "--offsets",
    metavar="JSON|FILE",
    help='Offsets of the first records to read, by topic and partition: {"topic": {"0": 12}}.',
)
@click.option(
    "--until",
    metavar="END",
    help="Point up to which the rows were computed and from which the query continues: latest, an "
    "RFC 3339 time, or version:N of a Delta table that the query reads.",
)
@click.option(
    "--watermark",
    metavar="TIME",
    help="Watermark to continue with, as an RFC 3339 time; needed if the query has one.",
)
@saved_forms(
    "native",
    help="How to save the state in the first savepoint: native files, canonical rows, or both.",
)
@mutating
@common
def command(
    call: Invocation,
    query: str,
    places: tuple[str, ...],
    offsets: str | None,
    until: str | None,
    watermark: str | None,
    forms: tuple[Form, ...],
    *,
    consent: Consent,
) -> None:
    """Start QUERY with state rows that a batch job has computed.

    The rows must be those that the program would have kept as its state, with the same columns as
    in `savepoints state`. To see the required columns, use --dry-run. Types, nulls and duplicate
    keys are checked first, and nothing is written if anything is wrong. Generation 1 then starts at
    the given offsets, with a first savepoint.

    QUERY must be in the settings and must not have run yet. Its output tables are not written. If
    interrupted, run the command again to resume.

    \b
    Examples:
      savepoints seed order_totals --from s3://lake/totals --until 2026-11-20T00:00:00Z --dry-run
      savepoints seed order_totals --from s3://lake/totals --offsets ends.json --yes
      savepoints seed hourly --from hours --offsets ends.json --watermark 2026-11-20T09:50:00Z
      savepoints seed visits --from total=s3://lake/total --from timers=none --until latest --yes
    """
    from savepoints.operations.begin import seed, seed_plan
    from savepoints.operations.begin.given_tables import parse

    if (offsets is None) == (until is None):
        raise UsageError(
            "exactly one of --offsets and --until is required",
            hint="pass one of them, with the position up to which the rows were computed; the "
            "query continues from there",
        )
    plan = seed_plan.plan(
        call.place,
        query,
        [parse(text) for text in places],
        until=offsets or until or "",
        watermark=parse_rfc3339(watermark) if watermark else None,
        forms=forms,
        progress=call.output.progress,
    )
    if call.output.format != "json":
        rows = {one.name: str(one.rows) for one in plan.tables}
        call.output.table(
            ("state", "rows", "columns"),
            ((name, rows[name], ", ".join(one)) for name, one in plan.columns.items()),
        )
    call.say_resumed(plan)
    if not call.confirm(plan, consent):
        return
    store = call.place.make(call.output.progress)
    done = seed.execute(plan, store, progress=call.output.progress)
    call.output.result(
        lambda: [
            ("seeded", f"{done.query}, generation {done.generation}"),
            ("state", count_text(done.rows, "row")),
            ("savepoint", done.savepoint_id or ""),
            ("checkpoint", done.checkpoint),
            ("next batch", f"batch {done.batch_id + 1}"),
            ("took", f"{done.seconds:.2f} s, {bytes_text(done.bytes_written)} written"),
            ("next", f"savepoints run {done.query}"),
        ],
        seeded=done,
    )
