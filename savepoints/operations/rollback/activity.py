"""Does a query run that nobody holds? Its driver may be one that this library knows nothing of.

`savepoints run` and `attach` hold the query's lease. Of another driver only its checkpoint can be
seen, so that is watched for longer than its batches were apart.
"""

from __future__ import annotations

import itertools
import re
import time
from datetime import timedelta

from savepoints.checkpoint import position
from savepoints.checkpoint.cut import logs_in
from savepoints.config.duration import duration_text
from savepoints.errors import QueryRunningError
from savepoints.io import Location
from savepoints.moments import utc_now
from savepoints.operations.rollback.query_context import QueryContext
from savepoints.store.locks import lease

_BATCH = re.compile(r"/\d+$", re.ASCII)
# Batches by which the pace of a query is judged.
_BATCHES = 10
# How long somebody who waits for a plan is made to wait at most.
_WATCHED_SECONDS = 30.0
# A machine that is busy with something else makes a driver wait for longer than its pace says.
_SHORTEST_SECONDS = 3.0
_POLL_SECONDS = 0.25
# By how much clocks of a machine and of an object store may differ.
_CLOCKS_SECONDS = 300.0


def refuse_worked_on(root: Location, query: str) -> None:
    """Refuse a query that another verb has; one that runs can be planned for."""
    held = lease.holder(root, query)
    if held is not None and not held.runs:
        lease.refuse_held(root, query)


def refuse_active(context: QueryContext, *, stopped: bool) -> tuple[str, ...]:
    """Refuse to act on a query that commits batches without a lease, or may at any moment.

    What holds a lease is seen again when the plan is executed, which needs that lease. Until then
    the plan may be looked at. A query in the settings is started by `run`, which holds one.

    Returns:
        What is so now or was assumed, for the plan.
    """
    query, checkpoint = context.query, Location.of(context.current.checkpoint)
    if stopped:
        return ()
    try:
        lease.refuse_held(context.store.root, query)
    except QueryRunningError as running:
        return (f"{running.message}, so this cannot be executed yet: {running.hint}",)
    if context.bound is not None:
        return ()
    batches = [info for info in checkpoint.list("commits") if _BATCH.search(info.path)]
    commits = sorted(batches, key=lambda info: int(info.path.rpartition("/")[2]))[-_BATCHES:]
    if not commits or _is_at_rest(context, checkpoint, int(commits[-1].path.rpartition("/")[2])):
        return ()
    times = [info.last_modified for info in commits]
    gaps = sorted((after - before).total_seconds() for before, after in itertools.pairwise(times))
    if not gaps:
        raise QueryRunningError(
            f"it is unknown whether {query} is running: no process holds its lease, and with "
            "only one committed batch its batch interval is unknown",
            hint="stop its driver, then run the command again with --stopped",
            query=query,
        )
    # The longest may be one in which the driver was down.
    apart = gaps[-2:][0]
    watched = max(2 * apart, _SHORTEST_SECONDS)
    since = max((utc_now() - times[-1]).total_seconds(), 0.0)
    assumed = (
        f"assuming that {query}, which runs in your own driver, is stopped: no process holds its "
        "lease, and"
    )
    if since > watched + _CLOCKS_SECONDS:
        return (f"{assumed} its last batch was committed {_text(since)} ago",)
    if watched > _WATCHED_SECONDS:
        raise QueryRunningError(
            f"it is unknown whether {query} is running: no process holds its lease, its "
            f"batches were {_text(apart)} apart, and the last was committed {_text(since)} ago",
            hint="stop its driver, then run the command again with --stopped",
            query=query,
        )
    before = _entries(checkpoint)
    end = time.monotonic() + watched
    while time.monotonic() < end:
        time.sleep(min(_POLL_SECONDS, watched))
        if _entries(checkpoint) != before:
            raise QueryRunningError(
                f"{query} is running: its driver just committed a batch in {checkpoint}",
                hint="stop the driver; to let others see who runs the query, call "
                "savepoints.attach in its driver",
                query=query,
            )
    return (f"{assumed} nothing was committed for {_text(watched)}",)


def _is_at_rest(context: QueryContext, checkpoint: Location, batch: int) -> bool:
    """Say whether the newest batch is one that was the last, or that no driver has run here."""
    last = lease.last_holder(context.store.root, context.query)
    if last is not None and last.stopped_after == batch:
        return True
    if position.newest_in(checkpoint, "offsets") > batch:
        return False  # A driver has begun the next one since.
    return any(
        one.cut.batch_id == batch
        and (
            one.id == context.current.begun_from
            or (one.kind == "final" and one.generation == context.current.generation)
        )
        for one in context.store.catalog.all()
        if one.query == context.query
    )


def _text(seconds: float) -> str:
    return duration_text(timedelta(seconds=round(seconds) if seconds >= 1 else round(seconds, 2)))


def _entries(checkpoint: Location) -> list[str]:
    return [info.path for info in logs_in(checkpoint)]
