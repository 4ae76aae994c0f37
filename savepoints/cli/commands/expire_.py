"""`savepoints expire`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from savepoints.cli.options import Invocation, common
from savepoints.cli.output import bytes_text, moment_text
from savepoints.config.duration import parse_duration
from savepoints.errors import PartlyDoneError

if TYPE_CHECKING:
    from savepoints.operations.maintain.expire import Expired, ExpirePlan

_COUNT = click.IntRange(min=-1)


@click.command("expire")
@click.option("--query", help="Only savepoints of this query.")
@click.option("--keep-last", type=_COUNT, metavar="N", help="Keep the newest N; -1 for all.")
@click.option("--keep-hourly", type=_COUNT, metavar="N", help="Keep one of each of N hours.")
@click.option("--keep-daily", type=_COUNT, metavar="N", help="Keep one of each of N days.")
@click.option("--keep-weekly", type=_COUNT, metavar="N", help="Keep one of each of N weeks.")
@click.option("--keep-monthly", type=_COUNT, metavar="N", help="Keep one of each of N months.")
@click.option(
    "--keep-within",
    metavar="DURATION",
    help="Keep all that are at most so much older than the newest.",
)
@click.option(
    "--keep-tag",
    "keep_tags",
    metavar="TAG",
    multiple=True,
    help="Keep those with this tag, and let other tags protect nothing; may be repeated.",
)
@click.option("--execute", "is_executed", is_flag=True, help="Do it; without, only say what.")
@common
def command(
    call: Invocation,
    query: str | None,
    keep_within: str | None,
    keep_tags: tuple[str, ...],
    *,
    is_executed: bool,
    **counts: int | None,
) -> int:
    """Remove the savepoints that no rule keeps. Says what it would do unless --execute is given.

    Each query is looked at by itself, and savepoints are ordered by the time at which they were
    taken. From the newest to the oldest, one of each hour, day, ISO week or month is kept until the
    count is used up. Without any --keep option the rules are those of [retention] in the settings.

    Never removed: what is pinned or tagged, the last good savepoint of a query, the newest one of
    each generation, what a current generation began from, what an interrupted operation needs, and
    what is being read.

    \b
    Examples:
      savepoints expire --keep-last 10 --keep-daily 7
      savepoints expire --query order_totals --keep-hourly 24 --keep-daily 30 --execute
      savepoints expire --keep-within 36h --keep-tag release -o json
    """
    from savepoints.operations.maintain import expire
    from savepoints.store.retention_policy import RetentionPolicy

    given = {name: count for name, count in counts.items() if count is not None}
    asked = bool(given or keep_within or keep_tags)
    within = parse_duration(keep_within) if keep_within else None
    policy = RetentionPolicy(**given, keep_within=within, keep_tags=keep_tags or None)
    plan = expire.plan(call.store, policy if asked else None, query=query, settings=call.settings)
    done = None
    if is_executed:
        done = expire.execute(plan, call.store, progress=call.output.progress)
    if call.output.format == "json":
        if done is None:
            call.output.document(dry_run=True, plan=plan.to_json())
        else:
            call.output.document(expired=done)
    elif done is None:
        _show(call, plan)
    else:
        _tell(call, done)
    return PartlyDoneError.exit_code if done and (done.locked or done.findings) else 0


def _show(call: Invocation, plan: ExpirePlan) -> None:
    call.output.table(
        ("id", "query", "gen", "batch", "taken", "", "why", "frees"),
        (
            (
                one.savepoint_id,
                one.query,
                one.generation,
                one.batch_id,
                moment_text(one.created_at),
                "keep" if one.kept else "remove",
                ", ".join(one.reasons) or "no rule keeps it",
                "" if one.kept else bytes_text(one.bytes),
            )
            for one in plan.savepoints
        ),
    )
    for query, policy in plan.policies.items():
        call.output.line(f"{query}: {policy}")
    for warning in plan.warnings:
        call.output.line(f"note: {warning}")
    call.output.line(
        f"{len(plan.removed)} of {len(plan.savepoints)} savepoints would be removed and "
        f"{bytes_text(plan.bytes)} freed, {bytes_text(plan.shared_bytes)} of it in "
        f"{plan.shared_files} shared files"
    )
    if plan.removed:
        call.output.err.print("nothing was done: pass --execute")


def _tell(call: Invocation, done: Expired) -> None:
    for name in done.removed:
        call.output.line(f"removed {name}")
    for name, reasons in done.kept.items():
        call.output.line(f"kept {name}: {', '.join(reasons)}")
    for query, why in done.locked.items():
        call.output.line(f"left {query} alone: {why}")
    for finding in done.findings:
        call.output.line(f"note: {finding}")
    call.output.line(
        f"{len(done.removed)} savepoints removed, {bytes_text(done.bytes)} in {done.files} files "
        f"freed, {done.seconds:.1f} s"
    )
