"""Merge late events into state and outputs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from savepoints.cli.commands.rollback_ import undone
from savepoints.cli.names import query_names
from savepoints.cli.options import (
    Consent,
    Invocation,
    common,
    moment,
    mutating,
    pausing_the_run,
    require_undo_alone,
)
from savepoints.cli.render.pause_text import pause_pair, undo_pair
from savepoints.errors import UsageError
from savepoints.texts import count_text

if TYPE_CHECKING:
    from savepoints.operations.cascade.cascade import Downstream, MergedThrough
    from savepoints.operations.merge.merge import Merged
    from savepoints.store.tables.merge_ledger import MergePolicy


@click.command("merge")
@click.argument("query", shell_complete=query_names)
@click.option(
    "--batch",
    metavar="URI",
    help="Late events to merge: Parquet, JSON or CSV files, a directory of them, or a Delta table.",
)
@click.option(
    "--dropped",
    is_flag=True,
    help="Merge the events that Spark dropped as late, instead of --batch; `savepoints late` "
    "counts them.",
)
@click.option(
    "--since",
    metavar="TIME",
    callback=moment,
    help="With --dropped: merge only events dropped by batches that ran at or after this time: "
    "RFC 3339, or an age like 1d.",
)
@click.option(
    "--input",
    "input_name",
    metavar="NAME",
    help="Which of the program's inputs the batch belongs to; required if the program has more "
    "than one.",
)
@click.option(
    "--controls",
    type=click.IntRange(min=0),
    metavar="N",
    help="Replay N control entities as a check; by default the number in the settings (controls "
    "under [merge]).",
)
@click.option(
    "--quarantine",
    metavar="URI",
    help="Write rows that are not valid events to this location and merge the rest; without it, "
    "invalid rows make the command fail.",
)
@click.option(
    "--policy",
    type=click.Choice(["exact", "append", "replay-all", "merge-function"]),
    default="exact",
    show_default=True,
    help="How to merge. All but exact give something up, as described above.",
)
@click.option(
    "--until",
    metavar="TIME",
    callback=moment,
    help="With --batch: merge only events whose event time is before this time: RFC 3339, or an "
    "age like 7d.",
)
@click.option(
    "--partial-history",
    is_flag=True,
    help="Merge even if the first events that QUERY has read are in neither the archive nor Kafka. "
    "Make sure first that QUERY has seen no event of the batch, and that the events that are gone "
    "are older.",
)
@click.option(
    "--across-promotions",
    is_flag=True,
    help="Also replay entities from before a promotion, or the start of a fork, through the "
    "present program, whatever program read their events at the time.",
)
@click.option(
    "--downstream",
    type=click.Choice(["none", "plan", "merge"]),
    default="none",
    show_default=True,
    help="What to do with the queries that read QUERY's output tables. none: leave them alone; "
    "plan: show what would change in each query; merge: correct the output of each query.",
)
@click.option(
    "--undo",
    is_flag=True,
    help="Undo the last merge of QUERY, outputs included. The query must be paused or stopped; "
    "after --downstream merge, it and its readers are paused for it.",
)
@pausing_the_run
@mutating
@common
def command(
    call: Invocation,
    query: str,
    batch: str | None,
    input_name: str | None,
    controls: int | None,
    quarantine: str | None,
    policy: MergePolicy,
    until: datetime | None,
    since: datetime | None,
    downstream: Downstream,
    wait: timedelta,
    *,
    dropped: bool,
    partial_history: bool,
    across_promotions: bool,
    undo: bool,
    consent: Consent,
) -> None:
    """Merge late events into state and outputs, as if they had arrived on time.

    An entity is what state and output rows belong to, such as a customer. Only the entities that
    the events touch are replayed, from savepoints taken before the late events, while the query
    keeps running. The query is paused only for the last steps: the replayed state replaces the live
    one in the next generation, and the output rows are corrected in one commit per table.

    As a check, some control entities that no event touches are replayed too. If one of them differs
    from the live query, everything is replayed again, batch by batch. If one still differs, the
    program cannot be replayed exactly, and nothing is changed.

    Events that the query has already seen are recognized by their id and skipped; merging the same
    batch again changes nothing. A column named op (insert, remove or replace) corrects individual
    events.

    With --policy exact, what cannot be merged exactly is refused with the reason. The other
    policies give something up. --policy append writes the events to the end of the topic, as if
    they arrived now: those below the watermark are dropped, and the merge cannot be undone.
    --policy replay-all replays all events of all entities in order of event time: effects of the
    order of arrival are lost. --policy merge-function replays nothing: functions of the application
    combine the current state with what the late events alone produce.

    Queries that read a table of QUERY do not notice a correction by themselves. --downstream merge
    corrects them, and the queries that read from them, by replaying from the table what the
    correction touches. Everything is computed and checked before anything is changed. --downstream
    plan only shows the rows that would change.

    --dropped merges the events that Spark dropped as late, each only once.

    \b
    Examples:
      savepoints merge order_totals --batch s3://lake/late/orders.parquet --dry-run
      savepoints merge order_totals --batch s3://lake/late/orders.parquet --yes
      savepoints merge order_totals --batch late.json --quarantine s3://lake/bad --yes
      savepoints merge order_totals --batch late.json --policy replay-all --dry-run
      savepoints merge order_totals --dropped --since 1d --yes
      savepoints merge bronze --dropped --downstream merge --yes
      savepoints merge bronze --batch s3://lake/late --downstream plan
      savepoints merge bronze --batch s3://lake/late --downstream merge --yes
      savepoints merge order_totals --undo --yes
    """
    if undo:
        require_undo_alone(f"savepoints merge {query} --undo")
        undone(call, query, "merge", consent=consent)
        return
    _require_one_of(query, batch, since, until, dropped=dropped)
    from savepoints.operations.cascade import cascade
    from savepoints.operations.merge import merge
    from savepoints.operations.merge.plan import MergePlan
    from savepoints.operations.merge.prepare import MergeRequest

    asked = MergeRequest(
        query, batch, input_name, controls, quarantine, policy, until, since, partial_history,
        across_promotions,
    )  # fmt: skip
    prepared = cascade.prepare(call.store, asked, downstream, progress=call.output.progress)
    plan = prepared if isinstance(prepared, MergePlan) else prepared.plan
    if plan.begun:
        call.output.progress(f"resuming the interrupted merge {plan.operation_id}")
    unasked = plan.has_nothing_to_do or downstream == "plan"
    try:
        if not call.confirm(plan, consent, unasked=unasked):
            return
        done = cascade.execute(
            prepared, call.store, downstream, wait=wait, progress=call.output.progress
        )
    finally:
        merge.drop(prepared, call.store)
    _show(call, done, plan.left_out)


def _show(call: Invocation, done: MergedThrough, left_out: int) -> None:
    merged = done.merged
    pairs = [] if merged is None else _pairs(merged, left_out, through=bool(done.downstream))
    for one in done.downstream:
        changed = (
            f"{count_text(one.rows_removed, 'row')} replaced by {one.rows_added:,}, of "
            f"{count_text(one.entities, 'entity')}; {count_text(one.controls, 'control entity')} "
            "identical"
        )
        now = "" if one.generation is None else f", now generation {one.generation}"
        pairs.append((f"downstream {one.query}", changed + now))
    if merged is None:
        pairs.append(("nothing was changed", "to merge, use --downstream merge"))
    call.output.result(lambda: pairs, merged=merged, downstream=list(done.downstream))


def _require_one_of(
    query: str, batch: str | None, since: datetime | None, until: datetime | None, *, dropped: bool
) -> None:
    """Require a batch, or `--dropped` with its own option."""
    if batch is None and not dropped:
        raise UsageError(
            "no batch of late events was given",
            hint=f"pass one: savepoints merge {query} --batch URI; or merge what Spark dropped as "
            f"late: savepoints merge {query} --dropped",
        )
    if batch is not None and dropped:
        raise UsageError(
            "--batch and --dropped cannot be combined",
            hint="run the command twice, once with each option",
        )
    if since is not None and not dropped:
        raise UsageError(
            "--since applies only to --dropped",
            hint="omit --since; to merge only the events before a certain time, use --until TIME",
        )
    if until is not None and dropped:
        raise UsageError(
            "--until applies only to --batch",
            hint="use --since TIME to limit what --dropped merges",
        )


def _pairs(done: Merged, left_out: int, *, through: bool) -> list[tuple[str, object]]:
    counted = (
        f"{count_text(done.rows, 'event')} of {count_text(done.entities, 'entity')}; "
        f"{done.known:,} already seen"
    )
    if done.policy == "append" and done.rows:
        return [("query", done.query), ("appended", counted), ("took", f"{done.seconds:.1f} s")]
    if done.checkpoint is None:
        by = f"merged by {done.merged_by} or " if done.merged_by else ""
        why = f"all already {by}seen"
        rest = f"; {count_text(left_out, 'row')} excluded by --until" if left_out else ""
        return [
            ("query", done.query),
            ("nothing to do", f"{count_text(done.known, 'event')}, {why}{rest}"),
        ]
    return [
        ("query", f"{done.query}, now generation {done.generation}"),
        ("merged", counted),
        *_replay(done),
        *((f"output {name}", f"version {version}") for name, version in done.outputs.items()),
        ("safety savepoint", done.safety_id or "none"),
        pause_pair(done.pause_seconds),
        ("took", f"{done.seconds:.1f} s"),
        # The undo of what went through a pipeline pauses the queries by itself.
        undo_pair(done.query, runs=done.pause_seconds is not None and not through),
    ]


def _replay(done: Merged) -> list[tuple[str, object]]:
    if done.policy == "replay-all":
        return [("replayed", "all events of all entities")]
    if done.policy == "merge-function":
        return [("combined", "by the application's functions; nothing was replayed")]
    return [
        ("control entities", f"{done.controls}, all identical to the live query"),
        ("replayed", "batch by batch" if done.way == "faithful" else "in a few large batches"),
    ]
