"""The first batch of a query: until it is committed there is nothing to save of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

from savepoints.checkpoint import position
from savepoints.errors import NoCommittedBatchError
from savepoints.io import Location
from savepoints.plan import Progress
from savepoints.store.locks import lease
from savepoints.store.root import Store

_POLL_SECONDS = 0.5


def await_committed(
    store: Store, queries: Sequence[str], *, wait: timedelta, progress: Progress
) -> None:
    """Wait until queries have committed a batch; those that nobody runs are not waited for.

    Args:
        wait: How long at most, for all of them together.
    """
    deadline = time.monotonic() + wait.total_seconds()
    for query in queries:
        if time.monotonic() < deadline and _is_under_way(store, query):
            progress(f"waiting for {query} to commit its first batch")
            while time.monotonic() < deadline and _is_under_way(store, query):
                time.sleep(_POLL_SECONDS)


def missing(store: Store, query: str, *, command: str) -> NoCommittedBatchError:
    """Return the error for a query that has not committed a batch.

    Args:
        command: The command that needs one, to be typed again.
    """
    holder = lease.holder(store.root, query)
    if holder is not None and holder.runs:
        hint = f"wait longer for the running query ({holder.who}): {command} --wait 1h"
    else:
        hint = (
            f"start the query, which is not running: savepoints run {query} --until latest; or "
            "start its driver"
        )
    return NoCommittedBatchError(
        f"{query} has not finished its first batch yet, so there is nothing to save",
        hint=hint,
        query=query,
    )


def _is_under_way(store: Store, query: str) -> bool:
    """Return True while a query runs that has not committed a batch."""
    checkpoint = Location.of(store.generations.current(query).checkpoint)
    if position.read(checkpoint).committed is not None:
        return False
    holder = lease.holder(store.root, query)
    return holder is not None and holder.runs
