"""Delete savepoints not kept by the retention rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from savepoints.cli.names import query_names
from savepoints.cli.options import Consent, Invocation, common, executed, mutating
from savepoints.cli.render import removal_text
from savepoints.config.duration import parse_duration
from savepoints.texts import bytes_text, count_text, moment_text

if TYPE_CHECKING:
    from savepoints.operations.maintain.expire import ExpirePlan

_COUNT = click.IntRange(min=-1)


@click.command("expire")
@click.option("--query", shell_complete=query_names, help="Expire only savepoints of this query.")
@click.option(
    "--keep-last", type=_COUNT, metavar="N", help="Keep the newest N savepoints; -1 keeps all."
)
@click.option(
    "--keep-hourly",
    type=_COUNT,
    metavar="N",
    help="Keep the newest savepoint of each of the last N hours.",
)
@click.option(
    "--keep-daily",
    type=_COUNT,
    metavar="N",
    help="Keep the newest savepoint of each of the last N days.",
)
@click.option(
    "--keep-weekly",
    type=_COUNT,
    metavar="N",
    help="Keep the newest savepoint of each of the last N weeks.",
)
@click.option(
    "--keep-monthly",
    type=_COUNT,
    metavar="N",
    help="Keep the newest savepoint of each of the last N months.",
)
@click.option(
    "--keep-within",
    metavar="DURATION",
    help="Keep savepoints taken within this duration before the newest one, for example 7d.",
)
@click.option(
    "--keep-tag",
    "keep_tags",
    metavar="TAG",
    multiple=True,
    help="Keep savepoints with this tag; other tags then no longer protect a savepoint. May "
    "be repeated.",
)
@mutating
@executed
@common
def command(
    call: Invocation,
    query: str | None,
    keep_within: str | None,
    keep_tags: tuple[str, ...],
    *,
    consent: Consent,
    **counts: int | None,
) -> int:
    """Delete savepoints not kept by the retention rules.

    The rules apply to each query separately. --keep-hourly and the like count only hours, days, ISO
    weeks or months with a savepoint. Without any --keep option, the rules of [retention] in the
    settings apply.

    These are never deleted: pinned and tagged savepoints, the last good savepoint of a query, the
    newest of each generation, the savepoint that a query's current generation began from, and those
    that a command is reading or an interrupted operation needs.

    \b
    Examples:
      savepoints expire --keep-last 10 --keep-daily 7 --dry-run
      savepoints expire --query order_totals --keep-hourly 24 --keep-daily 30 --yes
      savepoints expire --keep-within 36h --keep-tag release --dry-run -o json
    """
    from savepoints.operations.maintain import expire
    from savepoints.store.retention_policy import RetentionPolicy

    given = {name: count for name, count in counts.items() if count is not None}
    asked = bool(given or keep_within or keep_tags)
    within = parse_duration(keep_within) if keep_within else None
    policy = RetentionPolicy(**given, keep_within=within, keep_tags=keep_tags or None)
    plan = expire.plan(call.store, policy if asked else None, query=query)
    if not call.confirm(plan, consent, unasked=not plan.removed, show=lambda: _show(call, plan)):
        return 0
    done = expire.execute(plan, call.store, progress=call.output.progress)
    removed = map("removed {}".format, done.removed)
    total = f"{count_text(len(done.removed), 'savepoint')} removed, "
    return removal_text.show(call.output, done, removed, total=total)


def _show(call: Invocation, plan: ExpirePlan) -> None:
    call.output.table(
        ("id", "query", "gen", "batch", "taken", "action", "why", "frees"),
        (
            (
                one.savepoint_id,
                one.query,
                one.generation,
                one.batch_id,
                moment_text(one.created_at),
                "keep" if one.kept else "remove",
                ", ".join(one.reasons) or "not kept by any rule",
                "" if one.kept else bytes_text(one.bytes),
            )
            for one in plan.savepoints
        ),
        optional=("batch", "gen", "taken", "query"),
    )
    for query, policy in plan.policies.items():
        call.output.line(f"{query}: {policy}")
    for warning in plan.warnings:
        call.output.line(f"note: {warning}")
    call.output.line(
        f"{len(plan.removed)} of {len(plan.savepoints)} savepoints would be removed and "
        f"{bytes_text(plan.bytes)} freed, {bytes_text(plan.shared_bytes)} of it in "
        f"{count_text(plan.shared_files, 'shared file')}"
    )
