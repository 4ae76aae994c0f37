"""`savepoints restore`."""

from __future__ import annotations

import click

from savepoints.cli.command import Invocation, common, mutating, of_query
from savepoints.cli.output import bytes_text
from savepoints.model import FORMS, Form, Provider


@click.command("restore")
@click.argument("name")
@click.option("--to", required=True, metavar="URI", help="Checkpoint directory; must not exist.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    help="Form to restore from; native when the savepoint has it and nothing changes.",
)
@click.option("--partitions", type=int, help="Number of state partitions; as they were by default.")
@click.option(
    "--provider",
    type=click.Choice(["rocksdb", "hdfs"]),
    help="State store provider; as it was by default.",
)
@of_query
@mutating
@common
def command(
    call: Invocation,
    name: str,
    to: str,
    form: Form | None,
    partitions: int | None,
    provider: Provider | None,
    query: str | None,
    *,
    dry_run: bool,
    yes: bool,
    no_input: bool,
) -> None:
    """Write a new checkpoint directory from the savepoint NAME.

    A query that is started with it goes on batch by batch as the original would have. Nothing that
    exists is touched; outputs are not either: see rollback. With --partitions or --provider the
    state is written anew, which needs the canonical form (see export).

    \b
    Examples:
      savepoints restore latest --to s3a://bucket/checkpoints/clicks-2 --yes
      savepoints restore latest --to s3a://bucket/ck --format canonical --dry-run
      savepoints restore latest --to s3a://bucket/ck --partitions 400 --provider rocksdb --yes
    """
    from savepoints.operations import restore

    plan = restore.plan(
        call.store, name, to, query=query, form=form, partitions=partitions, provider=provider
    )
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
