"""Start a query with state computed from its past events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from savepoints.cli.names import query_names
from savepoints.cli.options import Consent, Invocation, common, mutating, saved_forms
from savepoints.model import Form
from savepoints.texts import count_text

if TYPE_CHECKING:
    from savepoints.operations.begin.bootstrap import Outputs


@click.command("bootstrap")
@click.argument("query", shell_complete=query_names)
@click.option(
    "--until",
    required=True,
    metavar="END",
    help="Process all events up to this point: latest (where the sources end now), an RFC 3339 "
    "time, offsets (JSON or a JSON file), or version:N of a Delta table that the query reads.",
)
@click.option(
    "--batch-records",
    type=int,
    metavar="N",
    help="Read up to N records from each source per batch, instead of max_offsets_per_trigger. "
    "Refused if larger batches could change the result.",
)
@click.option(
    "--outputs",
    type=click.Choice(["write", "none"]),
    default="write",
    help="write: fill the query's output tables, which must be empty; none: leave the tables as "
    "they are, for when they already contain the results.",
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
    until: str,
    batch_records: int | None,
    outputs: Outputs,
    forms: tuple[Form, ...],
    *,
    consent: Consent,
) -> None:
    """Start QUERY with state computed from all its events up to a point.

    Runs the program over every event from the beginning: from the archive and Kafka, or from the
    tables that it reads. The batches are planned to end exactly at --until. The output tables are
    filled unless --outputs none is given. Generation 1 then begins with a first savepoint, and
    `savepoints run` continues with the next record.

    Larger batches are faster. They are refused if they could change what the program computes, or
    if they would count late events that streaming would have dropped.

    QUERY must be in the settings and must not have run yet. If interrupted, run the command again
    to resume.

    \b
    Examples:
      savepoints bootstrap order_totals --until 2026-11-20T00:00:00Z --dry-run
      savepoints bootstrap order_totals --until latest --batch-records 5000000 --yes
      savepoints bootstrap order_lines --until version:12 --yes
      savepoints bootstrap order_totals --until ends.json --outputs none --yes
    """
    from savepoints.operations.begin import bootstrap

    plan = bootstrap.plan(
        call.place,
        query,
        until=until,
        batch_records=batch_records,
        outputs=outputs,
        forms=forms,
        progress=call.output.progress,
    )
    call.say_resumed(plan)
    if not call.confirm(plan, consent):
        return
    store = call.place.make(call.output.progress)
    done = bootstrap.execute(plan, store, progress=call.output.progress)
    read = "" if done.records is None else f", {count_text(done.records, 'record')}"
    call.output.result(
        lambda: [
            ("bootstrapped", f"{done.query}, generation {done.generation}"),
            ("savepoint", done.savepoint_id or ""),
            ("checkpoint", done.checkpoint),
            ("ran", f"{count_text(done.batches, 'batch')}{read}, {done.seconds:.2f} s"),
            ("continues at", done.ends),
            ("next", f"savepoints run {done.query}"),
        ],
        bootstrapped=done,
    )
