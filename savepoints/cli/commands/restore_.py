"""Restore a savepoint into a new checkpoint directory."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, TypedDict

import click

from savepoints.cli.names import savepoint_names
from savepoints.cli.options import Consent, Invocation, common, mutating
from savepoints.cli.options_migrate import migrating
from savepoints.cli.options_point import PointOptions, Restoring, point_of, restoring, to_a_point
from savepoints.errors import UsageError
from savepoints.model import Provider
from savepoints.texts import bytes_text, count_text

if TYPE_CHECKING:
    from savepoints.bound_plan import BoundPlan
    from savepoints.operations.migrate.migrate import MigrationOptions
    from savepoints.operations.rollback.target import Point
    from savepoints.operations.savepoint.restore import Restored


class _Rewriting(TypedDict):
    """What makes another checkpoint of a savepoint than the one that was saved."""

    partitions: int | None
    provider: Provider | None
    sources: tuple[str, ...] | None
    query_id: str | None


@click.command("restore")
@click.argument("name", required=False, shell_complete=savepoint_names)
@to_a_point
@click.option(
    "--app",
    metavar="MODULE:ATTR",
    help="With --exact: application to run. With --migrate: the changed program.",
)
@migrating
@click.option(
    "--to",
    required=True,
    metavar="URI",
    help="Checkpoint directory to create; it must not exist yet.",
)
@click.option(
    "--partitions",
    type=int,
    help="Number of state partitions (spark.sql.shuffle.partitions); unchanged by default.",
)
@click.option(
    "--provider",
    type=click.Choice(["rocksdb", "hdfs"]),
    help="State store provider of the new checkpoint; unchanged by default.",
)
@click.option(
    "--outputs",
    type=click.Choice(["check", "none"]),
    default="check",
    help="check: refuse if an output table already has batches later than the savepoint; none: "
    "skip this check. Use none only if the program that will use the checkpoint writes to other "
    "tables.",
)
@click.option(
    "--new-query-id",
    is_flag=True,
    help="Give the checkpoint a new query id, for a second query that writes to its own "
    "table. If it wrote to the table of the original query, rows would be written twice.",
)
@restoring
@mutating
@common
def command(
    call: Invocation,
    name: str | None,
    point: PointOptions,
    app: str | None,
    to: str,
    given: Restoring,
    sources: tuple[str, ...],
    partitions: int | None,
    provider: Provider | None,
    outputs: str,
    migration: MigrationOptions | None,
    *,
    new_query_id: bool,
    consent: Consent,
) -> None:
    """Restore a savepoint into a new checkpoint directory.

    A query that is started with the new checkpoint continues batch by batch as the original would
    have. Nothing that exists is changed, not even the output tables; to rewind those as well, use
    `savepoints rollback`. Refused if an output table already has later batches, because Delta would
    silently drop the new ones. With --partitions or --provider, Spark rewrites the state.

    With --at TIME --exact, the query then runs in the new directory, from the savepoint before TIME
    up to, but not including, each partition's first record with a Kafka timestamp of TIME or later.
    What it writes on the way is discarded.

    With --source, the query keeps its state but reads other sources. Pass one --source per source
    of the program: `keep:0` continues source 0 of the savepoint, `new` starts as set in the options
    of its reader, and a position as JSON starts exactly there.

    With --migrate, the state is converted for the changed program given by --app. State that only
    moved or got a wider type is kept. New columns and operators have no history from before the
    savepoint. Check first with `savepoints upgrade check`.

    \b
    Examples:
      savepoints restore latest --to s3a://bucket/checkpoints/clicks-2 --yes
      savepoints restore latest --to s3a://bucket/ck --format canonical --dry-run
      savepoints restore latest --to s3a://bucket/ck --partitions 400 --provider rocksdb --yes
      savepoints restore latest --to s3a://bucket/ck --source keep:1 --source new --yes
      savepoints restore latest --to s3a://bucket/ck --app jobs.v2:app --migrate --dry-run
      savepoints restore latest --to s3a://bucket/ck --app jobs.v2:app --migrate --map max=most -y
      savepoints restore --at-batch 1742 --query clicks --to s3a://bucket/ck --yes
      savepoints restore --at 2026-11-20T10:00:00Z --exact --query clicks --to s3a://bucket/ck --yes
    """
    where = point_of(name, point, app=None if migration else app)
    rewriting = _Rewriting(
        partitions=partitions,
        provider=provider,
        sources=sources or None,
        query_id=str(uuid.uuid4()) if new_query_id else None,
    )
    checked = outputs == "check" and not new_query_id
    if migration is not None:
        planned = _migration(call, where, to, app, given, rewriting, migration, checked=checked)
    else:
        planned = _plan(call, where, to, app, given, rewriting, checked=checked)
    if not call.confirm(planned.plan, consent):
        return
    restored = planned.execute(progress=call.output.progress)
    call.output.result(
        lambda: [
            ("checkpoint", restored.checkpoint),
            ("next batch", f"batch {restored.batch_id + 1}"),
            (
                "restored",
                f"{count_text(restored.objects, 'file')}, {bytes_text(restored.bytes_written)} in "
                f"{restored.seconds:.2f} s from the {restored.form} form"
                + (" (already restored)" if restored.already_restored else ""),
            ),
        ],
        restored=restored,
    )


def _plan(
    call: Invocation,
    where: Point,
    to: str,
    app: str | None,
    given: Restoring,
    rewriting: _Rewriting,
    *,
    checked: bool,
) -> BoundPlan[Any, ..., Restored]:
    """Plan the restore of a savepoint, or of another point."""
    from savepoints.bound_plan import BoundPlan
    from savepoints.operations.rollback import restore_point
    from savepoints.operations.rollback.target import Named
    from savepoints.operations.savepoint import restore

    if isinstance(where, Named):
        plan = restore.plan(call.store, where.name, to, check_outputs=checked, **given, **rewriting)
        return BoundPlan(plan, call.store, restore.execute)
    if any(value is not None for value in rewriting.values()):
        raise UsageError(
            "--partitions, --provider, --source and --new-query-id work only with a "
            "savepoint, not with --at TIME --exact or --at-batch",
            hint="restore without these options, take a savepoint of the new checkpoint "
            "(savepoints create --checkpoint URI --name NAME), then restore that savepoint with "
            "the options",
        )
    point = restore_point.plan(call.store, where, to, app=app, check_outputs=checked, **given)
    return BoundPlan(point, call.store, restore_point.execute)


def _migration(
    call: Invocation,
    where: Point,
    to: str,
    app: str | None,
    given: Restoring,
    rewriting: _Rewriting,
    options: MigrationOptions,
    *,
    checked: bool,
) -> BoundPlan[Any, ..., Restored]:
    """Plan the restore of a savepoint for a changed program."""
    from savepoints.bound_plan import BoundPlan
    from savepoints.operations.migrate import migrate
    from savepoints.operations.rollback.target import Named

    if not isinstance(where, Named) or app is None or given["form"] == "native":
        raise UsageError(
            "--migrate requires a savepoint and --app, and cannot be combined with --format native",
            hint="write, for example: savepoints restore latest --app "
            "package.module:attribute --migrate --to URI",
        )
    plan = migrate.plan(
        call.store,
        where.name,
        to,
        app=app,
        query=given["query"],
        maps=options.maps,
        defaults=options.defaults,
        allow_dropped_state=options.allow_dropped_state,
        even_broken=given["even_broken"],
        accept_unreplayable=given["accept_unreplayable"],
        check_outputs=checked,
        progress=call.output.progress,
        **rewriting,
    )
    return BoundPlan(plan, call.store, migrate.execute)
