"""`savepoints restore`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from savepoints.cli.command import Invocation, common, mutating, of_query
from savepoints.cli.output import bytes_text
from savepoints.cli.points import point_of, to_a_point
from savepoints.errors import UsageError
from savepoints.model import FORMS, Form, Provider

if TYPE_CHECKING:
    from savepoints.operations.goal import Meaning
    from savepoints.operations.point import PointPlan
    from savepoints.operations.restore import RestorePlan


@click.command("restore")
@click.argument("name", required=False)
@to_a_point
@click.option("--app", metavar="MODULE:ATTR", help="With --exact: what runs the query on.")
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
    name: str | None,
    at: str | None,
    by: Meaning | None,
    at_batch: int | None,
    app: str | None,
    to: str,
    form: Form | None,
    partitions: int | None,
    provider: Provider | None,
    query: str | None,
    *,
    exact: bool,
    dry_run: bool,
    yes: bool,
    no_input: bool,
) -> None:
    """Write a new checkpoint directory from the savepoint NAME, or for another point.

    A query that is started with it goes on batch by batch as the original would have. Nothing that
    exists is touched; outputs are not either: see rollback. With --partitions or --provider the
    state is written anew, which needs the canonical form (see export).

    With --at TIME --exact the query is run on in the new directory, from the savepoint before TIME
    in each partition up to the first record whose timestamp in Kafka is TIME or later; what it
    writes meanwhile is thrown away.

    \b
    Examples:
      savepoints restore latest --to s3a://bucket/checkpoints/clicks-2 --yes
      savepoints restore latest --to s3a://bucket/ck --format canonical --dry-run
      savepoints restore latest --to s3a://bucket/ck --partitions 400 --provider rocksdb --yes
      savepoints restore --at-batch 1742 --query clicks --to s3a://bucket/ck --yes
      savepoints restore --at 2026-11-20T10:00:00Z --exact --query clicks --to s3a://bucket/ck --yes
    """
    from savepoints.operations import point, restore
    from savepoints.operations.goal import Named
    from savepoints.operations.point import PointPlan

    where = point_of(name, at=at, exact=exact, by=by, app=app, at_batch=at_batch)
    plan: RestorePlan | PointPlan
    if isinstance(where, Named):
        plan = restore.plan(
            call.store,
            where.name,
            to,
            query=query,
            form=form,
            partitions=partitions,
            provider=provider,
        )
    elif partitions is not None or provider is not None:
        raise UsageError(
            "--partitions and --provider need a savepoint",
            hint="restore the point first, save it (savepoints create), and restore that",
        )
    else:
        plan = point.plan(
            call.store, where, to, query=query, settings=call.settings, form=form, app=app
        )
    if not call.confirm(plan, yes=yes, dry_run=dry_run, no_input=no_input):
        return
    progress = call.output.progress
    if isinstance(plan, PointPlan):
        restored = point.execute(plan, call.store, settings=call.settings, progress=progress)
    else:
        restored = restore.execute(plan, call.store, settings=call.settings, progress=progress)
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
