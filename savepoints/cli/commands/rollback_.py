"""Roll back state, offsets and outputs to a savepoint or time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from savepoints.cli.names import savepoint_names
from savepoints.cli.options import (
    Consent,
    Invocation,
    common,
    mutating,
    next_checkpoint,
    no_safety_savepoint,
    no_source_check,
    outputs_too,
    stopped_said,
)
from savepoints.cli.options_point import PointOptions, Restoring, point_of, restoring, to_a_point
from savepoints.cli.render.next_step import next_step, program
from savepoints.texts import bytes_text

if TYPE_CHECKING:
    from savepoints.operations.pipeline_rollback.rollback_plan import PipelineRollbackPlan
    from savepoints.operations.rollback.rollback import RolledBack


@click.command("rollback")
@click.argument("name", required=False, shell_complete=savepoint_names)
@to_a_point
@click.option(
    "--undo", is_flag=True, help="Undo the last rollback or reset of the query, outputs included."
)
@click.option("--app", metavar="MODULE:ATTR", help="With --exact: application to run.")
@next_checkpoint
@outputs_too
@no_source_check("the query")
@no_safety_savepoint("rollback")
@restoring
@mutating
@stopped_said
@common
def command(
    call: Invocation,
    name: str | None,
    point: PointOptions,
    app: str | None,
    to: str | None,
    given: Restoring,
    sources: tuple[str, ...],
    outputs: str,
    *,
    undo: bool,
    no_source_check: bool,
    no_safety_savepoint: bool,
    stopped: bool,
    consent: Consent,
) -> None:
    """Roll back state, offsets and outputs to savepoint NAME or a time.

    A safety savepoint of the current state is taken first. The old checkpoint is left as it is, and
    a new generation begins in a new checkpoint directory. If interrupted, run the command again to
    resume it, or `savepoints undo QUERY` to undo it.

    With --at TIME --exact, the query goes back to the savepoint before TIME, and the current
    application then reads on from there up to, but not including, each partition's first record
    with a Kafka timestamp of TIME or later. With --at-by commit, the query goes back to the newest
    batch committed at or before TIME.

    With --source, the new generation keeps the state but reads other sources. Pass one --source per
    source of the program: `keep:0` continues source 0 of the savepoint, `new` starts where the
    options of the source's reader say, and a position as JSON starts exactly there.

    \b
    Examples:
      savepoints rollback latest~1 --dry-run
      savepoints rollback before-release --yes
      savepoints rollback --at 2026-11-20T10:00:00Z --exact --query order_totals --yes
      savepoints rollback --at-batch 1742 --query order_totals --dry-run
      savepoints rollback latest --source '{"orders-v2": {"0": 0, "1": 0}}' --yes
    """
    from savepoints.operations.rollback import rollback

    plan = rollback.plan(
        call.store,
        point_of(name, point, app=app, undo=undo),
        **given,
        to=to,
        sources=sources or None,
        app=app,
        rewind_outputs=outputs == "rewind",
        check_source=not no_source_check,
        save_present=not no_safety_savepoint,
        stopped=stopped,
    )
    call.say_resumed(plan)
    if not call.confirm(plan, consent):
        return
    rolled_back(call, rollback.execute(plan, call.store, progress=call.output.progress))


def undone(call: Invocation, query: str, verb: str, *, consent: Consent) -> None:
    """Undo the last operation from its safety savepoint and print the result."""
    from savepoints.operations import unfinished
    from savepoints.operations.rollback import last_operation, rollback
    from savepoints.operations.rollback.target import BeforeLast

    last = last_operation.require(call.store, query, verb)
    if (together := unfinished.undo_together_plan(call.store, last)) is not None:
        undone_together(call, together, consent=consent)
        return
    plan = rollback.plan(call.store, BeforeLast(), query=query)
    if call.confirm(plan, consent):
        rolled_back(call, rollback.execute(plan, call.store, progress=call.output.progress))


def undone_together(call: Invocation, plan: PipelineRollbackPlan, *, consent: Consent) -> None:
    """Undo what changed several queries together and print the result."""
    from savepoints.cli.render import pipeline_text
    from savepoints.operations.pipeline_rollback import pipeline_rollback

    if call.confirm(plan, consent):
        done = pipeline_rollback.execute(plan, call.store, progress=call.output.progress)
        pipeline_text.show_rollback(call.output, done)


def rolled_back(call: Invocation, done: RolledBack) -> None:
    """Show what a rollback did."""
    call.output.result(
        lambda: [
            ("query", f"{done.query}, now generation {done.generation}"),
            *program(call, done.query),
            ("checkpoint", done.checkpoint),
            ("next batch", f"batch {done.batch_id + 1}"),
            *((f"output {name}", f"version {version}") for name, version in done.outputs.items()),
            ("safety savepoint", done.safety_id or "none"),
            ("took", f"{done.seconds:.2f} s, {bytes_text(done.bytes_written)} restored"),
            ("next", next_step(call, done.query)),
        ],
        rolled_back=done,
    )
