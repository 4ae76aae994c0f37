"""Start new, independent queries from a savepoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from savepoints.cli.names import savepoint_names
from savepoints.cli.options import (
    Consent,
    Invocation,
    broken_too,
    checkpoints_of_forks,
    common,
    isolated,
    mutating,
    no_source_check,
    of_query,
    restored_form,
)
from savepoints.cli.options_migrate import migrating
from savepoints.model import Form
from savepoints.texts import bytes_text
from savepoints.uri import tables_of

if TYPE_CHECKING:
    from savepoints.operations.migrate.migrate import MigrationOptions
    from savepoints.outputs.fork.isolated_copy import CopyMode


@click.command("fork")
@click.argument("savepoint", shell_complete=savepoint_names)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--app",
    metavar="MODULE:ATTR",
    help="Application that the forks run; by default that of the original query.",
)
@migrating
@isolated
@checkpoints_of_forks
@click.option(
    "--table",
    "tables",
    metavar="NAME=URI",
    multiple=True,
    help="Location of the fork's table for the output NAME; by default that of the original table "
    "followed by _forks/ and the name of the fork. May be repeated.",
)
@restored_form
@no_source_check("a fork", ", or silently miss the records of files that are gone")
@broken_too
@of_query
@mutating
@common
def command(
    call: Invocation,
    savepoint: str,
    names: tuple[str, ...],
    app: str | None,
    way: CopyMode,
    checkpoints: str | None,
    tables: tuple[str, ...],
    form: Form | None,
    query: str | None,
    migration: MigrationOptions | None,
    *,
    no_source_check: bool,
    even_broken: bool,
    consent: Consent,
) -> None:
    """Create a new, independent query from SAVEPOINT for each NAME.

    Each fork has its own checkpoint and outputs, and starts with the batch after the savepoint. The
    original query is not touched and may keep running. If interrupted, run the command again to
    resume.

    If the settings have a section [queries.NAME], it defines which application a fork runs and
    where its checkpoint and outputs are. Otherwise the fork runs the application of the original
    query, and the fork's locations are recorded in the store.

    With --migrate, the state is converted for the changed application given by --app, as in
    `savepoints restore`. Check first with `savepoints upgrade check`.

    \b
    Examples:
      savepoints fork latest variant_a --dry-run
      savepoints fork before-release variant_a variant_b --query order_totals --yes
      savepoints fork latest cheap --app shop.cheap:app --outputs clone --yes
      savepoints fork latest totals_v2 --app shop.totals_v2:app --migrate --map max=most --yes
    """
    from savepoints.operations.fork import fork, fork_plan

    options = fork_plan.ForkOptions(
        app=app,
        way=way,
        checkpoints=checkpoints,
        outputs=tables_of(tables),
        form=form,
        check_source=not no_source_check,
        even_broken=even_broken,
        migration=migration,
    )
    plan = fork_plan.plan_all(
        call.store, savepoint, names, options, query=query, progress=call.output.progress
    )
    for begun in plan.forks:
        if not begun.finished:
            call.say_resumed(begun)
    is_there = all(one.finished for one in plan.forks)
    if not is_there and not call.confirm(plan, consent):
        return
    done = fork.execute_all(plan, call.store, progress=call.output.progress)
    if call.output.format == "json":
        call.output.document(forked=done)
        return
    for one in done:
        what = (
            "already existed: nothing was done"
            if one.already_forked
            else f"{one.seconds:.2f} s, {bytes_text(one.bytes_written)} written"
        )
        call.output.pairs(
            [
                ("fork", f"{one.query}, from savepoint {one.savepoint_id} of {one.origin}"),
                ("Spark's query id", one.query_id),
                ("checkpoint", one.checkpoint),
                ("next batch", f"batch {one.batch_id + 1}"),
                *((f"output {name}", uri) for name, uri in one.outputs.items()),
                ("took", what),
                ("next", f"savepoints run {one.query}"),
            ]
        )
