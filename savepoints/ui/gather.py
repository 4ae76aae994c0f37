"""Reading what a page is drawn from: the tables of the store, the checkpoints, and Kafka.

It only looks. What cannot be found out is not known, with the reason, and never an error: a page is
opened when something is broken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TypeVar

from savepoints.errors import SavepointsError, VerificationError
from savepoints.io import in_parallel
from savepoints.moments import utc_now
from savepoints.operations.inspect import availability
from savepoints.operations.inspect import topology as places
from savepoints.operations.inspect.availability import Availability
from savepoints.runtime.archive_of import archives_of
from savepoints.store import bindings
from savepoints.store.locks import journal, lease
from savepoints.store.locks.lease import LeaseRecord
from savepoints.store.root import Store
from savepoints.store.tables import catalog
from savepoints.ui.facts import SourceFacts, StoreFacts
from savepoints.ui.families import family_of

T = TypeVar("T")


def gather(
    store: Store, *, query: str | None = None, since: datetime | None = None, sources: bool = True
) -> StoreFacts:
    """Read a store as it is now.

    Args:
        query: Only this query, what it was forked from, and its forks.
        since: Show only what is not older.
        sources: Also read the current checkpoints and ask Kafka.

    Raises:
        QueryNotFoundError: If the store does not know the query.
        StoreNotFoundError: If there is no store any more, as on a disk that was unmounted.
    """
    store = store.require().snapshot()
    operations = _read(lambda: journal.all_operations(store.root))
    facts = StoreFacts(
        str(store.root),
        utc_now(),
        tuple(catalog.select(store.catalog.all())),
        tuple(store.generations.all()),
        () if isinstance(operations, VerificationError) else tuple(operations),
        tuple(store.events.all()),
        tuple(store.ledger.all()),
        since=since,
    )
    if query is not None:
        if query not in facts.queries:
            raise store.generations.unknown(query)
        facts = facts.of(family_of(query, facts.savepoints, facts.generations))
    held = {name: _read(partial(lease.holder, store.root, name)) for name in facts.queries}
    return replace(
        facts,
        busy={name: one.verb for name, one in held.items() if isinstance(one, LeaseRecord)},
        # A journal that cannot be read may be of any query.
        damaged={
            name: tuple(one for one in (operations, record) if isinstance(one, VerificationError))
            for name, record in held.items()
        },
        sources=_sources(store, facts) if sources else {},
    )


def _read(read: Callable[[], T]) -> T | VerificationError:
    """Return what a file says, or the error of one that is damaged."""
    try:
        return read()
    except VerificationError as damaged:
        return damaged


def _sources(store: Store, facts: StoreFacts) -> dict[str, SourceFacts]:
    settings = bindings.complete(store)
    archives = {name: archives_of(settings, name) for name in facts.queries}
    kafka = settings.kafka
    each: dict[str, Availability] = {}
    if kafka.bootstrap_servers:
        each = availability.check_savepoints(facts.savepoints, kafka, archives)

    parts = {query: part for family, part in facts.families.items() for query in family}

    def look(query: str) -> SourceFacts:
        part = parts[query]
        newest = part.newest_alive(query)
        asked = None
        if newest is not None and kafka.bootstrap_servers:
            asked = availability.check_savepoint(newest, kafka, archives[query])
        ids = (one.id for one in part.savepoints if one.query == query)
        mine = {name: each[name] for name in ids if name in each}
        if not any((one.query, one.status) == (query, "current") for one in part.generations):
            return SourceFacts(None, "the query has ended", asked, mine)
        try:
            return SourceFacts(places.topology(store, query), "", asked, mine)
        except SavepointsError as error:
            return SourceFacts(None, error.message, asked, mine)

    queries = list(facts.queries)
    return dict(zip(queries, in_parallel(look, queries), strict=True))
