"""Take a savepoint of a running or stopped query."""

from __future__ import annotations

from datetime import timedelta

import click

from savepoints.cli.names import query_names
from savepoints.cli.options import (
    Consent,
    Invocation,
    at_most,
    common,
    mutating,
    saved_forms,
    tables_written,
    topics_written,
)
from savepoints.cli.render import savepoint_text
from savepoints.errors import PartlyDoneError
from savepoints.model import BOTH, Form
from savepoints.uri import tables_of


@click.command("create")
@click.argument("query", required=False, shell_complete=query_names)
@click.option(
    "--checkpoint", metavar="URI", help="Checkpoint directory of a query that your own driver runs."
)
@click.option("--name", help="With --checkpoint: name of the query in the store.")
@tables_written
@topics_written
@click.option(
    "--outputs",
    type=click.Choice(["known", "none"]),
    default="known",
    help="Which output tables to record if neither the settings nor --table name any. known: those "
    "of the newest savepoint; none: no tables.",
)
@click.option(
    "--at-batch",
    type=int,
    help="Save this batch, if the checkpoint still has it; by default the newest committed one.",
)
@saved_forms(
    BOTH,
    help="native: copy Spark's state files (fast, no JVM); canonical: write the state as rows of "
    "a Delta table.",
)
@click.option("--tag", "tags", multiple=True, help="Tag for the savepoint; may be repeated.")
@click.option("--description", default="", help="Description of the savepoint.")
@click.option(
    "--commit-group",
    metavar="GROUP",
    help="Also commit the offsets to Kafka for this consumer group, so that lag monitoring "
    "sees them. The group must have no active members.",
)
@at_most("How long to wait for a running query to commit its first batch.")
@mutating
@common
def command(
    call: Invocation,
    query: str | None,
    checkpoint: str | None,
    name: str | None,
    tables: tuple[str, ...],
    output_topics: tuple[str, ...],
    outputs: str,
    at_batch: int | None,
    forms: tuple[Form, ...],
    tags: tuple[str, ...],
    description: str,
    commit_group: str | None,
    wait: timedelta,
    *,
    consent: Consent,
) -> None:
    """Take a savepoint of QUERY, running or stopped, without disturbing it.

    Nothing that exists is changed, so create never asks for confirmation. The first savepoint
    creates the store.

    \b
    Examples:
      savepoints create order_totals --tag before-release
      savepoints create --checkpoint s3://bucket/ck --name clicks --table clicks=s3://bucket/clicks
      savepoints create --checkpoint s3://bucket/ck --name alerts --output-topic alerts
      savepoints create order_totals --format native --dry-run
      savepoints create order_totals --commit-group savepoints-order_totals
    """
    from savepoints.operations.savepoint import create

    plan = create.plan(
        call.place,
        query=query or name,
        checkpoint=checkpoint,
        batch_id=at_batch,
        forms=forms,
        outputs={} if outputs == "none" and not tables else tables_of(tables) or None,
        tags=tags,
        description=description,
        commit_group=commit_group,
        output_topics=output_topics or None,
        wait=wait,
        progress=call.output.progress,
    )
    if not call.confirm(plan, consent, unasked=True):
        return
    store = call.place.make(call.output.progress)
    savepoint = create.execute(plan, store, progress=call.output.progress)
    savepoint_text.taken(call.output, savepoint)
    if savepoint.rows_missing is not None:
        raise PartlyDoneError(
            f"savepoint {savepoint.id} is complete in its native form, but its canonical rows "
            f"could not be written: {savepoint.rows_missing}",
            hint="add the rows once the cause is removed: savepoints export "
            f"{savepoint.id}; or take savepoints without rows: --format native",
            savepoint=savepoint.id,
        )
