"""What a plan was made from, so that it is carried out on exactly that or not at all.

Between a plan and its execution a person thinks about it, and somebody else may act: an old plan
would then begin a generation that exists, or take an output back from where it no longer is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from savepoints.errors import StalePlanError
from savepoints.store.root import Store


@dataclass(frozen=True)
class Basis:
    """What a plan for a query was made from.

    Attributes:
        generation: Number of its current generation.
        savepoints: Digest of the query's savepoints, with their tags and states; None if the plan
            does not depend on them.
        merges: How many late batches were merged into the query.
    """

    generation: int
    savepoints: str | None
    merges: int


def read(store: Store, query: str) -> Basis:
    """Read what a plan for a query is made from now."""
    return Basis(
        store.generations.current(query).generation,
        _digest(store, query),
        len(store.ledger.all(query)),
    )


def read_but_savepoints(store: Store, query: str) -> Basis:
    """Read what a plan for a query is made from that may run, and take savepoints, meanwhile."""
    generation = store.generations.current(query).generation
    return Basis(generation, None, len(store.ledger.all(query)))


def refuse_changed(store: Store, query: str, verb: str, basis: Basis) -> None:
    """Refuse to carry out a plan that was made from something else; the caller holds the lease."""
    if changes := list(_changes(basis, read(store, query))):
        raise StalePlanError(
            f"{query} has changed since this {verb} operation was planned: {'; '.join(changes)}. "
            "The operation has changed nothing",
            hint=f"see what happened (savepoints events --query {query}), then run savepoints "
            f"{verb} again",
            query=query,
        )


def _changes(then: Basis, now: Basis) -> Iterator[str]:
    if then.generation != now.generation:
        yield f"it was in generation {then.generation} and is now in {now.generation}"
    if then.merges != now.merges:
        yield f"the number of merged batches was {then.merges} and is now {now.merges}"
    if then.savepoints not in (None, now.savepoints):
        yield "one of its savepoints was taken, removed, tagged or found broken"


def _digest(store: Store, query: str) -> str:
    lines: Iterable[str] = (
        f"{one.id} {one.state} {sorted(one.tags)}"
        for one in store.catalog.all()
        if one.query == query
    )
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()
