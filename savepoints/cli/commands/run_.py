"""Run a query and take savepoints periodically."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from savepoints.cli.names import query_names
from savepoints.cli.options import Invocation, common, duration, saved_forms
from savepoints.errors import PartlyDoneError
from savepoints.model import BOTH, Form, Savepoint
from savepoints.texts import count_text

if TYPE_CHECKING:
    from savepoints.runtime.runner import Ran

# The value of `--wait` without a duration.
FOR_EVER = "36500d"


@click.command("run")
@click.argument("query", shell_complete=query_names)
@click.option(
    "--app", metavar="MODULE:ATTR", help="Application to run; by default the one in the settings."
)
@click.option(
    "--every",
    metavar="WHEN",
    help="How often to take a savepoint: an interval (90s, 10m, PT1H) or a cron expression in UTC. "
    "None is taken if no batch has been committed since the last savepoint.",
)
@click.option(
    "--until",
    metavar="END",
    help="Stop exactly at this point: latest (where the sources end now), an RFC 3339 "
    "time, a JSON file of offsets, version:N of the Delta table that the query reads, or the "
    "name of a savepoint.",
)
@click.option(
    "--max-duration",
    metavar="DURATION",
    callback=duration,
    help="Start no new batch once the run has lasted this long (90s, 5m).",
)
@click.option("--max-records", type=int, metavar="N", help="Stop after exactly N more records.")
@click.option(
    "--wait",
    is_flag=False,
    flag_value=FOR_EVER,
    metavar="[DURATION]",
    callback=duration,
    help="If the query is already running, wait this long for that run to end; without a value, "
    "wait as long as it takes.",
)
@click.option(
    "--recover",
    is_flag=True,
    help="If the checkpoint is missing or damaged, continue from the newest good savepoint.",
)
@saved_forms(BOTH, help="How to save the state: native files, canonical rows, or both.")
@click.option(
    "--accept-state-names",
    is_flag=True,
    help="Continue even if the program and the checkpoint have different names for state fields.",
)
@click.option(
    "--no-final-savepoint", is_flag=True, help="Do not take a savepoint when the run ends."
)
@common
def command(
    call: Invocation,
    query: str,
    app: str | None,
    every: str | None,
    until: str | None,
    max_duration: timedelta | None,
    max_records: int | None,
    wait: timedelta | None,
    forms: tuple[Form, ...],
    *,
    recover: bool,
    accept_state_names: bool,
    no_final_savepoint: bool,
) -> None:
    """Run the current generation of QUERY and take savepoints periodically.

    SIGTERM, SIGHUP or Ctrl-C lets the running batch finish, takes a savepoint and exits with 0.
    Before the first batch after a restore, the program is run once on empty inputs and its state
    columns are compared with the restored ones by name: Spark itself compares only types.

    With --until, --max-records or both, the query reads exactly up to that point, in batches of at
    most max_offsets_per_trigger records, and ends. A time means every record before it, by the
    timestamps in Kafka. End points that Kafka does not have, or that the query has already passed,
    are refused. Exit code 3 if --until was given but not reached because of another limit or a
    signal. --max-duration limits when the last batch starts, not when it ends.

    For a query that reads Delta tables, --until is version:N (if it reads one table), a time (every
    commit before it), a savepoint, or latest; for one that reads tables and topics, only latest.

    A paused query stays paused: the run waits for `savepoints resume`; SIGTERM makes it exit with
    0. With --until, --max-duration or --max-records it exits with 0 at once, and reports "paused"
    in the JSON.

    \b
    Examples:
      savepoints run order_totals --every 10m
      savepoints run order_totals --every "0 * * * *"
      savepoints run order_totals --until latest
      savepoints run order_totals --until 2026-11-20T10:00:00Z
      savepoints run order_totals --until latest --max-duration 4m --wait
      savepoints run order_lines --until version:12
      savepoints run order_totals --recover
      savepoints run order_totals --app spark_jobs.order_totals:app
    """
    from savepoints.operations.cascade.on_schedule import run

    ran, savepoint = run(
        call.place.make(call.output.progress),
        query,
        app=app,
        every=every,
        until=until,
        max_duration=max_duration,
        max_records=max_records,
        wait=wait,
        recover=recover,
        forms=forms,
        final_savepoint=not no_final_savepoint,
        accept_state_names=accept_state_names,
        progress=call.output.progress,
    )
    call.output.result(lambda: _pairs(ran, savepoint), run=ran, savepoint=savepoint)
    if until is not None and not ran.caught_up and ran.ended != "paused":
        click.get_current_context().exit(PartlyDoneError.exit_code)


_ENDED = {
    "drained": "stopped by a signal",
    "caught_up": "reached the end",
    "max_duration": "reached --max-duration",
    "max_records": "reached --max-records",
    "paused": "paused",
}


def _pairs(ran: Ran, savepoint: Savepoint | None) -> list[tuple[str, object]]:
    batches = f"{ran.batches} ({ran.first_batch} to {ran.last_batch})" if ran.batches else "none"
    recovered = [("recovered from", ran.recovered_from)] if ran.recovered_from else []
    pauses = f"the end of the last pause ({count_text(ran.pauses, 'pause')} in total)"
    since = [("counted since", pauses)] if ran.pauses else []
    left = [] if ran.remaining_records is None else [("records left", ran.remaining_records)]
    return [
        ("query", f"{ran.query}, generation {ran.generation}"),
        *recovered,
        ("ended", _ENDED[ran.ended]),
        *since,
        ("batches", batches),
        ("rows read", ran.input_rows),
        *left,
        ("took", f"{ran.seconds:.1f} s"),
        ("savepoint", savepoint.id if savepoint else "none"),
    ]
