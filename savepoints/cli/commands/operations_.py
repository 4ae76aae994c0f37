"""List operations, finish or undo interrupted ones."""

from __future__ import annotations

import click

from savepoints.cli.names import operation_ids, query_names
from savepoints.cli.options import Consent, Invocation, common, mutating
from savepoints.cli.render.next_step import next_step

# How the commands of the verbs name their results.
_RESULTS = {
    "bootstrap": "bootstrapped",
    "seed": "seeded",
    "append": "appended",
    "cascade": "cascaded",
    "fork": "forked",
    "merge": "merged",
    "pipeline fork": "pipeline_forked",
    "pipeline promote": "pipeline_promoted",
    "pipeline rollback": "pipeline_rolled_back",
    "promote": "promoted",
    "reset": "reset",
    "rollback": "rolled_back",
}


@click.group("operations")
def command() -> None:
    """List operations, and finish or undo interrupted ones.

    While an operation on a query is unfinished, no other command may run or change the query.

    \b
    Examples:
      savepoints operations list
      savepoints operations resume op-20261121-101530-k3f9ab --yes
    """


@command.command("list")
@click.option("--query", shell_complete=query_names, help="List only operations on this query.")
@common
def list_(call: Invocation, query: str | None) -> None:
    """List operations, newest first, with their state: unfinished, finished or undone.

    \b
    Examples:
      savepoints operations list
      savepoints operations list --query order_totals -o json
    """
    from savepoints.store.locks import journal

    known = journal.all_operations(call.store.root)
    found = [one for one in known if query is None or one.is_on(query)]
    if query is not None and not found:  # There may be some of one that was renamed.
        call.store.require_query(query)
    if call.output.format == "json":
        call.output.document(operations=found)
        return
    if not found:
        call.output.line(f"no operations found in {call.store.root}")
        return
    undone = journal.undone_by(known)
    call.output.table(
        ("id", "verb", "query", "begun", "state", "steps done"),
        (
            (
                one.id,
                f"{one.verb} (undo)" if one.is_undo else one.verb,
                one.query,
                one.begun_at,
                "finished, then undone" if one.id in undone else one.state,
                one.done_text,
            )
            for one in found
        ),
    )


@command.command("show")
@click.argument("operation", shell_complete=operation_ids)
@common
def show(call: Invocation, operation: str) -> None:
    """Show the plan of OPERATION and which of its steps are done.

    \b
    Examples:
      savepoints operations show op-20261121-101530-k3f9ab -o json
    """
    from savepoints.operations import unfinished

    found = unfinished.find(call.store, operation)
    call.output.result(
        lambda: [
            ("operation", f"{found.id}: {found.verb} of {found.query}"),
            ("begun", found.begun_at),
            ("state", found.state),
            *(
                (
                    step["name"],
                    f"{found.done.get(step['name'], {}).get('at', 'not done')}: {step['what']}",
                )
                for step in found.plan["steps"]
            ),
        ],
        operation=found,
    )


@command.command("resume")
@click.argument("operation", shell_complete=operation_ids)
@mutating
@common
def resume(call: Invocation, operation: str, *, consent: Consent) -> None:
    """Finish OPERATION, following its original plan.

    \b
    Examples:
      savepoints operations resume op-20261121-101530-k3f9ab --dry-run
    """
    from savepoints.operations import unfinished

    plan = unfinished.plan(call.store, operation)
    if not call.confirm(plan, consent):
        return
    done = unfinished.resume(call.store, operation, progress=call.output.progress)
    if call.output.format == "json":
        call.output.document(**{_RESULTS[plan.verb]: done})
    else:
        call.output.line(f"{done.operation_id} is finished; next: {next_step(call, done.query)}")


@command.command("undo")
@click.argument("operation", shell_complete=operation_ids)
@mutating
@common
def undo(call: Invocation, operation: str, *, consent: Consent) -> None:
    """Undo what OPERATION has done so far, as if it had never begun.

    \b
    Examples:
      savepoints operations undo op-20261121-101530-k3f9ab --yes
    """
    take_back(call, operation, consent=consent)


def take_back(call: Invocation, operation: str, *, consent: Consent) -> None:
    """Undo an interrupted operation, after showing what that does."""
    from savepoints.operations import unfinished

    plan = unfinished.undo_plan(call.store, operation)
    if not call.confirm(plan, consent):
        return
    undone = unfinished.undo(call.store, operation, progress=call.output.progress)
    said = f"{undone.id} is undone; {undone.query} is as it was before the operation"
    call.output.said(said, operation=undone)
