"""`savepoints run`."""

from __future__ import annotations

import click

from savepoints.cli.command import Invocation, common
from savepoints.errors import UsageError
from savepoints.model import FORMS, Form


@click.command("run")
@click.argument("query")
@click.option("--app", metavar="MODULE:ATTR", help="Application, if not the one in the settings.")
@click.option(
    "--every",
    metavar="WHEN",
    help="Interval of savepoints (90s, 10m, PT1H) or a cron expression in UTC.",
)
@click.option("--until", metavar="latest", help="End when all is read that was there at the start.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["both", *FORMS]),
    default="both",
    help="Form of the savepoints.",
)
@click.option(
    "--accept-state-names",
    is_flag=True,
    help="Go on with restored state whose fields the program calls otherwise.",
)
@click.option("--no-final-savepoint", is_flag=True, help="Take no savepoint at the end.")
@common
def command(
    call: Invocation,
    query: str,
    app: str | None,
    every: str | None,
    until: str | None,
    form: str,
    *,
    accept_state_names: bool,
    no_final_savepoint: bool,
) -> None:
    """Run the current generation of QUERY, with periodic savepoints.

    SIGTERM or Ctrl-C lets the running batch finish, takes a savepoint and exits with 0. Before the
    first batch after a restore the program is run once on empty inputs, and its state compared by
    name with the restored one: Spark compares types only.

    \b
    Examples:
      savepoints run order_totals --every 10m
      savepoints run order_totals --every "0 * * * *"
      savepoints run order_totals --until latest
      savepoints run order_totals --app spark_jobs.order_totals:app
    """
    from savepoints.operations.run import run

    if until not in {None, "latest"}:
        raise UsageError(f"--until {until!r} is not supported", hint="use --until latest")
    forms: tuple[Form, ...] = FORMS if form == "both" else (form,)  # type: ignore[assignment]
    ran, savepoint = run(
        call.store,
        query,
        settings=call.settings,
        app=app,
        every=every,
        until_latest=until == "latest",
        forms=forms,
        final_savepoint=not no_final_savepoint,
        accept_state_names=accept_state_names,
        progress=call.output.progress,
    )
    if call.output.format == "json":
        call.output.document(run=ran, savepoint=savepoint.to_json() if savepoint else None)
        return
    batches = f"{ran.batches} ({ran.first_batch} to {ran.last_batch})" if ran.batches else "none"
    call.output.pairs(
        [
            ("query", f"{ran.query}, generation {ran.generation}"),
            ("ended", ran.ended.replace("_", " ")),
            ("batches", batches),
            ("rows read", ran.input_rows),
            ("took", f"{ran.seconds:.1f} s"),
            ("savepoint", savepoint.id if savepoint else "none"),
        ]
    )
