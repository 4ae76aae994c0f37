"""Begin a query with what its program makes of the events before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from savepoints.cli.names import query_names
from savepoints.cli.options import Consent, Invocation, common, mutating, saved_forms
from savepoints.model import Form

if TYPE_CHECKING:
    from savepoints.operations.begin.bootstrap import Outputs


@click.command("bootstrap")
@click.argument("query", shell_complete=query_names)
@click.option(
    "--until",
    required=True,
    metavar="END",
    help="Continue there: a time, latest, offsets as JSON or in a file, or version:N of a table "
    "that the query reads.",
)
@click.option(
    "--batch-records",
    type=int,
    metavar="N",
    help="Most records of a source in a batch, instead of max_offsets_per_trigger. Refused if the "
    "result would not be that of streaming.",
)
@click.option(
    "--outputs",
    type=click.Choice(["write", "none"]),
    default="write",
    help="write: to the query's own tables, which must have no rows yet; none: leave them as they "
    "are, because they already have what the query would write.",
)
@saved_forms("native", help="Forms of the first savepoint of the query.")
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

    The program reads every event from the beginning, from the archive and Kafka or from its tables,
    in planned batches that end exactly at that point, and fills its output tables, unless --outputs
    none is given. Generation 1 then starts there, with a first savepoint, and `savepoints run`
    continues with the next record.

    Larger batches are faster. They are refused if they could change what the program computes, or
    if streaming would have dropped late events that they would count.

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
    read = "" if done.records is None else f", {done.records} records"
    call.output.result(
        lambda: [
            ("bootstrapped", f"{done.query}, generation {done.generation}"),
            ("savepoint", done.savepoint_id or ""),
            ("checkpoint", done.checkpoint),
            ("ran", f"{done.batches} batches{read}, {done.seconds:.2f} s"),
            ("continues at", done.ends),
            ("next", f"savepoints run {done.query}"),
        ],
        bootstrapped=done,
    )
