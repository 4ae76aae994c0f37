"""`savepoints restore`."""

from __future__ import annotations

import click

from savepoints.cli.command import Invocation, common, mutating, of_query
from savepoints.cli.output import bytes_text
from savepoints.model import FORMS, Form


@click.command("restore")
@click.argument("name")
@click.option("--to", required=True, metavar="URI", help="Checkpoint directory; must not exist.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    help="Form to restore from; native when the savepoint has it.",
)
@of_query
@mutating
@common
def command(
    call: Invocation,
    name: str,
    to: str,
    form: Form | None,
    query: str | None,
    *,
    dry_run: bool,
    yes: bool,
    no_input: bool,
) -> None:
    """Write a new checkpoint directory from the savepoint NAME.

    A query that is started with it goes on batch by batch as the original would have. Nothing that
    exists is touched; outputs are not either: see rollback.

    \b
    Examples:
      savepoints restore latest --to s3a://bucket/checkpoints/clicks-2 --yes
      savepoints restore latest --to s3a://bucket/ck --format canonical --dry-run
    """
    from savepoints.operations import restore

    plan = restore.plan(call.store, name, to, query=query, form=form)
    if not call.confirm(plan, yes=yes, dry_run=dry_run, no_input=no_input):
        return
    restored = restore.execute(
        plan, call.store, settings=call.settings, progress=call.output.progress
    )
    if call.output.format == "json":
        call.output.document(restored=restored)
        return
    call.output.pairs(
        [
            ("checkpoint", restored.checkpoint),
            ("goes on with", f"batch {restored.batch_id + 1}"),
            (
                "restored",
                f"{restored.objects} files, {bytes_text(restored.bytes_written)} in "
                f"{restored.seconds:.2f} s from the {restored.form} form"
                + (" (was done before)" if restored.already_restored else ""),
            ),
        ]
    )
