"""Show which queries read each other's tables, and how far behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from savepoints.cli.names import query_names, savepoint_names
from savepoints.cli.options import (
    Consent,
    Invocation,
    at_most,
    common,
    isolated,
    mutating,
    no_source_check,
    pausing_the_run,
    rows_shown,
    saved_forms,
    stopped_said,
)
from savepoints.errors import PartlyDoneError, VerificationError
from savepoints.model import Form, utc_now
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
    """Show, save, roll back or fork the queries that read each other's tables.

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
    """Show the pipeline that QUERY belongs to: who reads whose tables, and how far behind.

    What each query reads is taken from its checkpoint; what it writes, from settings and
    savepoints. Tables and topics that no known query writes are shown as coming from outside; the
    topics that a query writes have to be named: `savepoints create --output-topic`. Needs no JVM.

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
    "--tag", help='Tag for the savepoint of each query; by default "group-" and the current time.'
)
@saved_forms("native", help="Copies of the state to save: native files, canonical rows, or both.")
@at_most(
    "How long to wait for the first batch of a running query, and for a writer to commit a batch "
    "whose rows a reader has already read."
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
    no reader's savepoint includes rows that the writer's savepoint lacks. Nothing existing is
    changed, so create never asks for confirmation. If interrupted, run the command again: it skips
    queries that already have a savepoint with the tag.

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
@click.option("--tag", required=True, help="Tag of the savepoints.")
@common
def verify(call: Invocation, query: str, tag: str) -> None:
    """Check that each query of a pipeline has a savepoint with the tag, and that they fit together.

    They fit together if no reader has read more of a table than its writer's savepoint has written.
    To check the files of each savepoint: `savepoints verify`. Exit code 13 if they do not fit
    together. Needs no JVM.

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
            hint=f"take new ones: savepoints pipeline create {query} --tag OTHER",
            query=query,
        )


@command.command("list")
@click.argument("query", shell_complete=query_names)
@common
def list_(call: Invocation, query: str) -> None:
    """List the groups of savepoints of QUERY's pipeline, newest first.

    A group is savepoints of several of its queries that share a tag. Needs no JVM.

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
@click.option("--tag", required=True, help="Tag of the savepoints.")
@mutating
@common
def copy(call: Invocation, query: str, destination: str, tag: str, *, consent: Consent) -> None:
    """Copy a group, one savepoint of each query of a pipeline, into the store at DEST.

    The same as `savepoints copy` for each; refused if one is missing or they do not fit together.
    If interrupted, run the command again to resume.

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
    help="Roll back all queries of the pipeline, not only QUERY and those that read from it.",
)
@click.option(
    "--exact",
    is_flag=True,
    help="If NAME is @TIME, bring every query to exactly that time, between savepoints too.",
)
@click.option(
    "--writer",
    "writers",
    multiple=True,
    metavar="QUERY=MODULE:FUNCTION",
    callback=_of_queries,
    help="For a reader that has to catch up: a function that takes the SparkSession and "
    "returns the query's DataStreamWriter, not started.",
)
@click.option(
    "--checkpoints",
    metavar="URI",
    help="Directory for new checkpoints of queries that are not in the settings.",
)
@no_source_check("a query")
@at_most("How long to wait for a run to pause and, later, to resume.")
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
    stopped: bool,
    consent: Consent,
) -> None:
    """Roll back QUERY, together with all queries that read from it, to savepoint NAME.

    QUERY goes to NAME; with --all, so do the queries of the pipeline that read no other query. To
    roll all of them back to one group, pass its tag as NAME. A reader goes to its savepoint with
    that tag if it fits, otherwise to its newest savepoint that has read nothing that is rolled
    back. From there it reads exactly as far as its tables are rewound, and then continues after the
    rewinds, so it neither fails on them nor reads anything twice.

    With --exact and @TIME as NAME, all are then run on to exactly that time: those that read no
    other query with what had arrived by then, each reader with everything that its writer has
    written when that is there. Their applications have to be in the settings.

    Safety savepoints of all queries are taken first; `savepoints undo QUERY` undoes the rollback of
    all of them. If interrupted, run the command again to resume. Runs of `savepoints run` are
    paused meanwhile and then resume; a query in your own driver must be stopped first.

    \b
    Examples:
      savepoints pipeline rollback silver before-release --all --dry-run
      savepoints pipeline rollback silver latest~1 --writer gold=jobs.gold:writer --yes
      savepoints pipeline rollback silver @2026-11-20T10:00:00Z --yes
      savepoints pipeline rollback silver @2026-11-20T10:00:00Z --all --exact --yes
    """
    from savepoints.cli.render import pipeline_text
    from savepoints.operations.pipeline import pipeline_rollback, rollback_plan

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
    help="Application of the fork of QUERY; the original's by default; may be repeated.",
)
@isolated
@click.option("--checkpoints", metavar="URI", help="Root directory of the forks' checkpoints.")
@no_source_check("a fork")
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
    """Fork QUERY and all queries that read from it, from SAVEPOINT, as QUERY_NAME and so on.

    SAVEPOINT is usually the tag of a group (`pipeline create`). Each fork has its own checkpoint
    and tables, and reads the tables of the other forks; what it reads of queries that are not
    forked, it reads live. The pipeline itself is not touched and may keep running. If interrupted,
    run the command again to resume.

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
    help="Where what both versions read ends: latest, or an RFC 3339 time.",
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
    """Compare each query of a pipeline with its fork NAME, level by level, at equal cuts.

    All of them are run to equal cuts first: those that read the same topics and tables to the same
    end, and each reader of a forked query to the end of its table. So none of them may be running:
    pause those that are (`savepoints pause --wait`). Outputs are compared by key (as a multiset of
    rows if there is no key), and state row by row; the metrics of the settings, over the outputs of
    all. Exit code 3 if different.

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
    """Let the forks NAME take over from the queries of a pipeline, all at equal cuts.

    The forks catch up while the pipeline keeps running; then its queries are paused, all are run to
    equal cuts, and the forks are checked ([promote] in the settings). If a check fails, the queries
    resume unchanged. Otherwise each live table gets the rows of its fork in one commit, the next
    generation of each query starts with the state and program of its fork, and readers continue
    behind these commits. Paused runs resume with the new programs; the forks stay as they are.

    Safety savepoints of all queries are taken first; `savepoints undo QUERY` undoes the promotion
    of all of them. If interrupted, run the command again to resume.

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
