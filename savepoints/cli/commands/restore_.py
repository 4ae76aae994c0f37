"""Restore a savepoint into a new checkpoint directory."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from savepoints.cli.names import savepoint_names
from savepoints.cli.options import (
    Consent,
    Invocation,
    broken_too,
    common,
    mutating,
    of_query,
    restored_form,
    unreplayable_too,
)
from savepoints.cli.options_migrate import MigrationOptions, migrating
from savepoints.cli.options_point import PointOptions, other_sources, point_of, to_a_point
from savepoints.cli.output import bytes_text
from savepoints.errors import UsageError
from savepoints.model import Form, Provider

if TYPE_CHECKING:
    from savepoints.operations.rollback.target import Point
    from savepoints.operations.savepoint.restore import Restored
    from savepoints.plan import Plan


@click.command("restore")
@click.argument("name", required=False, shell_complete=savepoint_names)
@to_a_point
@click.option(
    "--app",
    metavar="MODULE:ATTR",
    help="With --exact: the application to run. With --migrate: the changed program.",
)
@migrating
@click.option(
    "--to", required=True, metavar="URI", help="Checkpoint directory to create; must not exist yet."
)
@restored_form
@click.option("--partitions", type=int, help="Number of state partitions; unchanged by default.")
@click.option(
    "--provider",
    type=click.Choice(["rocksdb", "hdfs"]),
    help="State store provider; unchanged by default.",
)
@click.option(
    "--outputs",
    type=click.Choice(["check", "none"]),
    default="check",
    help="none: the program writes elsewhere, so tables that have seen its batches do not matter.",
)
@click.option(
    "--new-query-id",
    is_flag=True,
    help="Give the query a new id, so that no table drops its batches; rows may be written twice.",
)
@other_sources
@broken_too
@unreplayable_too
@of_query
@mutating
@common
def command(
    call: Invocation,
    name: str | None,
    point: PointOptions,
    app: str | None,
    to: str,
    form: Form | None,
    sources: tuple[str, ...],
    partitions: int | None,
    provider: Provider | None,
    outputs: str,
    query: str | None,
    migration: MigrationOptions | None,
    *,
    even_broken: bool,
    accept_unreplayable: bool,
    new_query_id: bool,
    consent: Consent,
) -> None:
    """Restore a savepoint into a new checkpoint directory.

    A query started from it continues batch by batch as the original would have. Nothing existing is
    changed, not even the outputs: rollback rewinds those, too. An output table that has seen
    later batches would silently drop the new ones, so that is refused. With --partitions or
    --provider the state is rewritten through Spark.

    With --at TIME --exact the query then runs in the new directory, from the savepoint before TIME
    up to the first record in each partition whose Kafka timestamp is TIME or later; what it writes
    meanwhile is discarded.

    With --source the query reads other sources: `keep:0` is source 0 of the savepoint, `new` starts
    with the options of its reader, a position starts exactly there. The state is kept.

    With --migrate the checkpoint fits the changed program of --app: new columns and operators start
    at the savepoint; state that only moved or got a wider type is kept. See
    savepoints upgrade.

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
    of_point = None if migration else app
    where = point_of(name, point, app=of_point)
    asked = _Asked(
        to,
        query,
        app,
        form,
        partitions,
        provider,
        sources or None,
        str(uuid.uuid4()) if new_query_id else None,
        check_outputs=outputs == "check" and not new_query_id,
        even_broken=even_broken,
        accept_unreplayable=accept_unreplayable,
    )
    planned = _plan(call, where, asked, migration)
    if not call.confirm(planned.plan, consent):
        return
    restored = planned.execute()
    call.output.result(
        lambda: [
            ("checkpoint", restored.checkpoint),
            ("next batch", f"batch {restored.batch_id + 1}"),
            (
                "restored",
                f"{restored.objects} files, {bytes_text(restored.bytes_written)} in "
                f"{restored.seconds:.2f} s from the {restored.form} form"
                + (" (already restored)" if restored.already_restored else ""),
            ),
        ],
        restored=restored,
    )


@dataclass(frozen=True)
class _Asked:
    """What the options ask for, whatever is restored."""

    to: str
    query: str | None
    app: str | None
    form: Form | None
    partitions: int | None
    provider: Provider | None
    sources: tuple[str, ...] | None
    query_id: str | None
    check_outputs: bool
    even_broken: bool
    accept_unreplayable: bool


@dataclass(frozen=True)
class _Planned:
    """A plan with what carries it out."""

    plan: Plan
    execute: Callable[[], Restored]


def _plan(
    call: Invocation, where: Point, asked: _Asked, migration: MigrationOptions | None
) -> _Planned:
    """Plan a restore for a changed program, of a savepoint as it is, or of another point."""
    from savepoints.operations.rollback.target import Named

    if migration is not None:
        return _plan_migration(call, where, asked, migration)
    if isinstance(where, Named):
        return _plan_savepoint(call, where.name, asked)
    if asked.partitions is not None or asked.provider or asked.sources or asked.query_id:
        raise UsageError(
            "--partitions, --provider, --source and --new-query-id require a savepoint",
            hint="restore the point first, save it with savepoints create, and restore that "
            "savepoint",
        )
    from savepoints.operations.rollback import restore_point

    plan = restore_point.plan(
        call.store,
        where,
        asked.to,
        query=asked.query,
        form=asked.form,
        app=asked.app,
        even_broken=asked.even_broken,
        check_outputs=asked.check_outputs,
        accept_unreplayable=asked.accept_unreplayable,
    )
    progress = call.output.progress
    return _Planned(plan, lambda: restore_point.execute(plan, call.store, progress=progress))


def _plan_savepoint(call: Invocation, name: str, asked: _Asked) -> _Planned:
    from savepoints.operations.savepoint import restore

    plan = restore.plan(
        call.store,
        name,
        asked.to,
        query=asked.query,
        form=asked.form,
        partitions=asked.partitions,
        provider=asked.provider,
        sources=asked.sources,
        query_id=asked.query_id,
        even_broken=asked.even_broken,
        check_outputs=asked.check_outputs,
        accept_unreplayable=asked.accept_unreplayable,
    )
    progress = call.output.progress
    return _Planned(plan, lambda: restore.execute(plan, call.store, progress=progress))


def _plan_migration(
    call: Invocation, where: Point, asked: _Asked, migration: MigrationOptions
) -> _Planned:
    from savepoints.operations.migrate import migrate
    from savepoints.operations.rollback.target import Named

    if not isinstance(where, Named) or asked.app is None or asked.form == "native":
        raise UsageError(
            "--migrate requires a savepoint and the program given by --app, and rewrites the "
            "state, so it excludes --format native",
            hint="savepoints restore latest --app package.module:attribute --migrate --to …",
        )
    progress = call.output.progress
    plan = migrate.plan(
        call.store,
        where.name,
        asked.to,
        app=asked.app,
        query=asked.query,
        maps=migration.maps,
        defaults=migration.defaults,
        allow_dropped_state=migration.allow_dropped_state,
        partitions=asked.partitions,
        provider=asked.provider,
        sources=asked.sources,
        query_id=asked.query_id,
        even_broken=asked.even_broken,
        check_outputs=asked.check_outputs,
        progress=progress,
    )
    return _Planned(plan, lambda: migrate.execute(plan, call.store, progress=progress))
