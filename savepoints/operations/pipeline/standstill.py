"""Several queries kept still by one verb: their leases, and their runs paused."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta

from savepoints.operations.run import pause_for_verb
from savepoints.plan import Progress
from savepoints.store.locks import lease
from savepoints.store.locks.lease import Lease
from savepoints.store.root import Store


@contextmanager
def leases(store: Store, queries: Collection[str], verb: str) -> Iterator[dict[str, Lease]]:
    """Hold the leases of all queries, in one order, so that no two verbs block each other."""
    with ExitStack() as stack:
        yield {
            query: stack.enter_context(lease.hold(store.root, query, verb))
            for query in sorted(queries)
        }


@contextmanager
def paused(
    store: Store, queries: Sequence[str], *, reason: str, wait: timedelta, progress: Progress
) -> Iterator[None]:
    """Keep the runs of queries from running within; readers first, as they wait for nobody.

    Args:
        queries: Those that run, writers before readers.
        reason: Why; by it pauses that were killed are recognised as one's own.
    """
    with ExitStack() as stack:
        if queries:
            stack.enter_context(pause_for_verb.ended_by_signals())
        for query in reversed(queries):
            stack.enter_context(
                pause_for_verb.kept(store, query, reason=reason, wait=wait, progress=progress)
            )
        yield
