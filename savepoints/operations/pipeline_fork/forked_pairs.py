"""Which queries of a pipeline have forks of one name: each with its fork."""

from __future__ import annotations

from dataclasses import dataclass

from savepoints.errors import NotFoundError
from savepoints.operations.pipeline.pipeline import pipeline
from savepoints.operations.pipeline_fork.pipeline_fork_plan import VERB, fork_name
from savepoints.store.root import Store


@dataclass(frozen=True)
class ForkedPair:
    """A query and its fork.

    Attributes:
        live: Name of the query.
        fork: Name of the fork.
    """

    live: str
    fork: str


def find(store: Store, query: str, name: str) -> tuple[ForkedPair, ...]:
    """Return the queries that were forked together, writers before readers."""
    made = {one.query for one in store.generations.all() if one.begun_by == VERB}
    fork = fork_name(query, name)
    if fork not in made:
        raise NotFoundError(
            f"{query} has no fork {name}: the store has no query {fork} that was created by "
            f"savepoints {VERB}",
            hint=f"create it: savepoints {VERB} {query} SAVEPOINT {name}",
            query=query,
        )
    ending = fork_name("", name)
    return tuple(
        ForkedPair(one.name.removesuffix(ending), one.name)
        for one in pipeline(store, fork).queries
        if one.name in made and one.name.endswith(ending)
    )
