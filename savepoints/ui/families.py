"""Families: a query, its forks, and theirs; a page draws each family as one graph."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from savepoints.model import Generation, Savepoint
from savepoints.operations.inspect import arcs


def families(
    savepoints: Sequence[Savepoint], generations: Sequence[Generation]
) -> tuple[tuple[str, ...], ...]:
    """Group queries by what their generations began from, each query before its forks."""
    known = {one.id: one for one in savepoints}
    origins = ((one.query, one.origin_among(known)) for one in generations)
    forked = {
        (origin.query, query)
        for query, origin in origins
        if origin is not None and origin.query != query
    }
    # A promotion leads back from the fork to its origin, which began earlier.
    first: dict[str, datetime] = {}
    for name, at in (
        *((one.query, one.begun_at) for one in generations),
        *((one.query, one.cut.committed_at) for one in savepoints),
    ):
        first[name] = min(at, first.get(name, at))
    groups = {tuple(sorted(arcs.connected(forked, name))) for name in first}
    return tuple(
        tuple(sorted(group, key=lambda name: (first[name], name))) for group in sorted(groups)
    )


def family_of(
    query: str, savepoints: Sequence[Savepoint], generations: Sequence[Generation]
) -> tuple[str, ...]:
    """Return the family of a query; the query alone where the store does not know it."""
    found = (one for one in families(savepoints, generations) if query in one)
    return next(found, (query,))
