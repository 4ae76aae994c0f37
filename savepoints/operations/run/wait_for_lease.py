"""Waiting for whoever has a query: a run under cron that takes longer makes the next one wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

from savepoints.errors import LockedError, QueryRunningError
from savepoints.plan import Progress
from savepoints.store.locks import lease
from savepoints.store.locks.lease import Lease
from savepoints.store.root import Store

# How often it is looked whether the lease is free: one GET each time.
_POLL_SECONDS = 0.5


@contextmanager
def hold(store: Store, query: str, wait: timedelta | None, progress: Progress) -> Iterator[Lease]:
    """Hold the lease of a query, having waited for it; None is not at all."""
    with ExitStack() as stack:
        until = time.monotonic() + (wait.total_seconds() if wait else 0)
        said = ""
        while True:
            try:
                held = stack.enter_context(lease.hold(store.root, query, "run"))
                break
            except (QueryRunningError, LockedError) as error:
                if time.monotonic() >= until:
                    raise
                if error.message != said:
                    said = error.message
                    progress(f"waiting: {said}")
            time.sleep(_POLL_SECONDS)
        yield held
