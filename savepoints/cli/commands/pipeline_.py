"""Save, roll back and fork queries that read each other's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from savepoints.cli.names import query_names, savepoint_names
from savepoints.cli.options import (
    Consent,
    Invocation,
    at_most,
    checkpoints_of_forks,
    common,
    isolated,
    mutating,
    no_source_check,
    pausing_the_run,
    rows_shown,
    saved_forms,
    stopped_said,
    unreplayable_too,
)
from savepoints.errors import PartlyDoneError, VerificationError
from savepoints.model import Form
from savepoints.moments import utc_now
from savepoints.texts import count_text

if TYPE_CHECKING:
    from datetime import timedelta

    from savepoints.outputs.fork.isolated_copy import CopyMode


def _of_queries(
    _context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    """Read `QUERY=MODULE:NAME`, as often as it is given."""
    if wrong := [one for one in given if not all(one.partition("=")[::2])]:
        raise click.BadParameter(f"{wrong[0]!r} is not in the form {parameter.metavar}")
    return dict(one.split("=", 1) for one in given)


@click.group("pipeline")
def command() -> None:
    """Show, save, roll back or fork queries that read each other's tables.

    \b
    Examples:
      savepoints pipeline show order_totals
      savepoints pipeline create order_totals --tag before-release
      savepoints pipeline rollback order_totals before-release --all --dry-run
      savepoints pipeline fork order_totals before-release fix --dry-run
    """


@command.command("show")
@click.argument("query", shell_complete=query_names)
@click.option("--mermaid", is_flag=True, help="Print a Mermaid diagram instead of a tree.")
@common
def show(call: Invocation, query: str, *, mermaid: bool) -> None:
    """Show which queries read each other's tables, and how far behind they are.

    Shows the whole pipeline that QUERY belongs to. What each query reads is taken from its
    checkpoint, what it writes from the settings and savepoints. Tables and topics that no known
    query writes are shown as coming from outside. Topics that a query writes must be named once,
    with `savepoints create --output-topic`. Needs no JVM.

    \b
    Examples:
      savepoints pipeline show order_totals
      savepoints pipeline show order_totals -o json
      savepoints pipeline show order_totals --mermaid
    """
    from savepoints.cli.render import pipeline_text
    from savepoints.operations.pipeline.pipeline import pipeline

    found = pipeline(call.store, query)
    if mermaid:
        call.output.write(pipeline_text.mermaid(found))
    elif call.output.format == "json":
        call.output.document(pipeline=found.to_json())
    else:
        pipeline_text.show(call.output, found)


@command.command("create")
@click.argument("query", shell_complete=query_names)
@click.option(
    "--tag", help='Tag for the savepoints; by default "group-" followed by the current time.'
)
@saved_forms("native", help="How to save the state: native files, canonical rows, or both.")
@at_most(
    "How long to wait for a running query to commit its first batch, and for a writer to commit a "
    "batch whose rows a reader has already read."
)
@mutating
@common
def create(
    call: Invocation,
    query: str,
    tag: str | None,
    forms: tuple[Form, ...],
    wait: timedelta,
    *,
    consent: Consent,
) -> None:
    """Take consistent savepoints of all queries in the pipeline of QUERY.

    Running queries are not stopped. Readers are saved before the queries whose tables they read, so
    no reader's savepoint includes rows that the writer's savepoint lacks. Nothing that exists is
    changed, so create never asks for confirmation.

    If interrupted, run the command again with the same tag: it skips queries that already have a
    savepoint with this tag.

    \b
    Examples:
      savepoints pipeline create order_totals --tag before-release
      savepoints pipeline create order_totals --tag before-release --dry-run
    """
    from savepoints.cli.render import pipeline_text
    from savepoints.operations.pipeline import group_savepoint, groups

    name = tag or groups.tag_of(utc_now())
    plan = group_savepoint.plan(
        call.store, query, name=name, forms=forms, wait=wait, progress=call.output.progress
    )
    if not call.confirm(plan, consent, unasked=True):
        return
    group = group_savepoint.execute(plan, call.store, wait=wait, progress=call.output.progress)
    pipeline_text.show_group(call.output, group)


@command.command("verify")
@click.argument("query", shell_complete=query_names)
@click.option("--tag", required=True, help="Tag that the savepoints share.")
@common
def verify(call: Invocation, query: str, tag: str) -> None:
    """Check that a pipeline's savepoints with the same tag fit together.

    Each query in the pipeline of QUERY must have a savepoint with the tag, and no reader's
    savepoint may have read more of a table than the writer's savepoint has written. Exit code 13 if
    the savepoints do not fit together.

    Does not check the files: for that, run `savepoints verify` on each savepoint. Needs no JVM.

    \b
    Examples:
      savepoints pipeline verify order_totals --tag before-release
    """
    from savepoints.cli.render import pipeline_text
    from savepoints.operations.pipeline import group_savepoint

    group = group_savepoint.read(call.store, query, tag)
    pipeline_text.show_group(call.output, group)
    if group.problems:
        raise VerificationError(
            f"the savepoints with the tag {tag} do not fit together: {'; '.join(group.problems)}",
            hint=f"take new savepoints of all queries: savepoints pipeline create {query} "
            "--tag OTHER",
            query=query,
        )


@command.command("list")
@click.argument("query", shell_complete=query_names)
@common
def list_(call: Invocation, query: str) -> None:
    """List the savepoint groups of QUERY's pipeline, newest first.

    A group consists of savepoints with the same tag, from several queries of the pipeline. Needs no
    JVM.

    \b
    Examples:
      savepoints pipeline list order_totals
    """
    from savepoints.cli.render import pipeline_text
    from savepoints.operations.pipeline.groups import groups

    pipeline_text.show_groups(call.output, groups(call.store, query))


@command.command("copy")
@click.argument("query", shell_complete=query_names)
@click.argument("destination", metavar="DEST")
@click.option("--tag", required=True, help="Tag that the savepoints share.")
@mutating
@common
def copy(call: Invocation, query: str, destination: str, tag: str, *, consent: Consent) -> None:
    """Copy a group of savepoints into another store at DEST.

    Does the same as `savepoints copy` for each savepoint with the tag in the pipeline of QUERY.
    Refused if a query has no savepoint with the tag, or if the savepoints do not fit together. If
    interrupted, run the command again to resume.

    \b
    Examples:
      savepoints pipeline copy order_totals s3://elsewhere/savepoints --tag before-release --yes
    """
    from savepoints.operations.pipeline import groups

    plan = groups.plan_copy(call.store, query, destination, name=tag)
    if not call.confirm(plan, consent, unasked=not plan.steps):
        return
    done = groups.execute_copy(plan, call.store, progress=call.output.progress)
    call.output.result(
        lambda: [
            *(
                (f"savepoint {one.savepoint_id}", f"{count_text(one.objects_copied, 'file')}")
                for one in done
            ),
            ("destination", destination),
        ],
        copied=list(done),
    )


@command.command("rollback")
@click.argument("query", shell_complete=query_names)
@click.argument("name", shell_complete=savepoint_names)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Roll back all queries of the pipeline, not only QUERY and the queries that read from it.",
)
@click.option(
    "--exact",
    is_flag=True,
    help="With @TIME as NAME: bring every query to exactly that time, even between savepoints.",
)
@click.option(
    "--writer",
    "writers",
    multiple=True,
    metavar="QUERY=MODULE:FUNCTION",
    callback=_of_queries,
    help="Function that takes a SparkSession and returns the DataStreamWriter for QUERY, without "
    "starting it; needed if a query in your own driver has to catch up. May be repeated.",
)
@click.option(
    "--checkpoints",
    metavar="URI",
    help="Directory in which to create the new checkpoints of queries that are not in the "
    "settings; by default beside the current ones.",
)
@unreplayable_too
@no_source_check("a query")
@pausing_the_run
@mutating
@stopped_said
@common
def rollback(
    call: Invocation,
    query: str,
    name: str,
    writers: dict[str, str],
    checkpoints: str | None,
    wait: timedelta,
    *,
    every: bool,
    exact: bool,
    no_source_check: bool,
    accept_unreplayable: bool,
    stopped: bool,
    consent: Consent,
) -> None:
    """Roll back QUERY and all queries that read from it to savepoint NAME.

    QUERY goes back to NAME. With --all, so do the queries of the pipeline that read from no other
    query. To roll all queries back to one group, pass the tag of the group as NAME.

    Queries that read from a query that is rolled back are readers. A reader goes back to its
    savepoint with the tag NAME, provided that this includes nothing that is rolled back, otherwise
    to its newest savepoint that includes nothing of it. It then reads its tables exactly up to the
    point to which they are rewound, skips what is rolled back, and continues with what is written
    afterwards: it neither fails at the rewind nor reads anything twice.

    With @TIME as NAME and --exact, all queries are then run to exactly that time: the queries that
    read from no other query consume what had arrived by then, and each reader consumes everything
    that its writers had written by then. The settings must name the applications of all queries.

    A safety savepoint of each query is taken first; `savepoints undo QUERY` undoes the rollback of
    all queries. Queries that `savepoints run` runs are paused meanwhile; stop queries in your own
    drivers first. If interrupted, run the command again to resume.

    \b
    Examples:
      savepoints pipeline rollback silver before-release --all --dry-run
      savepoints pipeline rollback silver latest~1 --writer gold=jobs.gold:writer --yes
      savepoints pipeline rollback silver @2026-11-20T10:00:00Z --yes
      savepoints pipeline rollback silver @2026-11-20T10:00:00Z --all --exact --yes
    """
    from savepoints.cli.render import pipeline_text
    from savepoints.operations.pipeline_rollback import pipeline_rollback, rollback_plan

    plan = rollback_plan.plan(
        call.store,
        query,
        name,
        every=every,
        exact=exact,
        writers=writers,
        checkpoints=checkpoints,
        check_source=not no_source_check,
        stopped=stopped,
        accept_unreplayable=accept_unreplayable,
    )
    call.say_resumed(plan)
    if not call.confirm(plan, consent):
        return
    done = pipeline_rollback.execute(plan, call.store, wait=wait, progress=call.output.progress)
    pipeline_text.show_rollback(call.output, done)


@command.command("fork")
@click.argument("query", shell_complete=query_names)
@click.argument("savepoint", shell_complete=savepoint_names)
@click.argument("name")
@click.option(
    "--app",
    "apps",
    multiple=True,
    metavar="QUERY=MODULE:ATTR",
    callback=_of_queries,
    help="Application that the fork of QUERY runs; by default that of the original query. May be "
    "repeated.",
)
@isolated
@checkpoints_of_forks
@no_source_check("a fork", ", or silently miss the records of files that are gone")
@mutating
@common
def fork(
    call: Invocation,
    query: str,
    savepoint: str,
    name: str,
    apps: dict[str, str],
    way: CopyMode,
    checkpoints: str | None,
    *,
    no_source_check: bool,
    consent: Consent,
) -> None:
    """Fork QUERY and all queries that read from it, starting from SAVEPOINT.

    SAVEPOINT is usually the tag of a group (`savepoints pipeline create`). The fork of each query
    is called QUERY_NAME. Each fork has its own checkpoint and tables, and reads the tables of the
    other forks. Tables of queries that are not forked are read live. The pipeline itself is not
    touched and may keep running. If interrupted, run the command again to resume.

    \b
    Examples:
      savepoints pipeline fork silver before-release fix --app silver=jobs.silver_v2:app --dry-run
      savepoints pipeline fork silver before-release fix --app silver=jobs.silver_v2:app --yes
    """
    from savepoints.cli.render import pipeline_fork_text
    from savepoints.operations.pipeline_fork import pipeline_fork, pipeline_fork_plan

    plan = pipeline_fork_plan.plan(
        call.store,
        query,
        savepoint,
        name,
        apps=apps,
        outputs=way,
        checkpoints=checkpoints,
        check_source=not no_source_check,
    )
    if not plan.finished:
        call.say_resumed(plan)
        if not call.confirm(plan, consent):
            return
    done = pipeline_fork.execute(plan, call.store, progress=call.output.progress)
    pipeline_fork_text.show_forked(call.output, done)


@command.command("compare")
@click.argument("query", shell_complete=query_names)
@click.argument("name")
@click.option(
    "--until",
    default="latest",
    metavar="END",
    help="Run the queries and their forks to this point before comparing: latest, or an RFC 3339 "
    "time.",
)
@rows_shown
@click.option("--no-state", is_flag=True, help="Do not compare the state.")
@mutating
@common
def compare(
    call: Invocation,
    query: str,
    name: str,
    until: str,
    sample: int,
    *,
    no_state: bool,
    consent: Consent,
) -> int:
    """Compare each query of a pipeline with its fork NAME.

    First, all queries and forks are run to the same point: those that read from outside to the same
    offsets or table versions, and each reader to the end of its writer's table. None of them may be
    running: pause them with `savepoints pause QUERY --wait`.

    Then each query is compared with its fork, writers before readers: outputs by key, or as a
    multiset of rows if there is no key, and state row by row. The metrics in the settings are
    compared over the outputs of all queries. Exit code 3 if the verdict is "different".

    \b
    Examples:
      savepoints pipeline compare silver fix --yes
      savepoints pipeline compare silver fix --until 2026-11-20T10:00:00Z --no-state --yes
    """
    from savepoints.cli.render import pipeline_fork_text
    from savepoints.operations.pipeline_fork import pipeline_compare

    plan = pipeline_compare.plan(
        call.store, query, name, until=until, sample=sample, state=not no_state
    )
    if not call.confirm(plan, consent):
        return 0
    found = pipeline_compare.execute(plan, call.store, progress=call.output.progress)
    pipeline_fork_text.show_compared(call.output, found)
    return PartlyDoneError.exit_code if found.verdict == "different" else 0


@command.command("promote")
@click.argument("query", shell_complete=query_names)
@click.argument("name")
@click.option("--no-checks", is_flag=True, help="Promote without running the checks.")
@pausing_the_run
@mutating
@common
def promote(
    call: Invocation, query: str, name: str, wait: timedelta, *, no_checks: bool, consent: Consent
) -> None:
    """Replace each query of a pipeline with its fork NAME.

    The forks catch up while the pipeline keeps running. Then the queries are paused, they and
    the forks are run to the same point, and the forks are checked as configured under [promote] in
    the settings. If a check fails, the queries resume unchanged.

    If all checks pass, the rows of each live table are replaced with those of its fork in one
    commit, and the next generation of each query starts with the state and program of its fork.
    Queries of the pipeline that read these tables skip that commit. Paused runs resume with the new
    programs; the forks are left as they are.

    A safety savepoint of each query is taken first; `savepoints undo QUERY` undoes the promotion of
    all queries. If interrupted, run the command again to resume.

    \b
    Examples:
      savepoints pipeline promote silver fix --dry-run
      savepoints pipeline promote silver fix --yes
    """
    from savepoints.cli.render import pipeline_fork_text
    from savepoints.operations.pipeline_fork import pipeline_promote

    plan = pipeline_promote.plan(call.store, query, name, checks=not no_checks)
    call.say_resumed(plan.begun)
    if not call.confirm(plan, consent):
        return
    done = pipeline_promote.execute(plan, call.store, wait=wait, progress=call.output.progress)
    pipeline_fork_text.show_promoted(call.output, done)
