"""`locate`: where the outputs of a query are now, for those who read them.

A promotion can let a query go on in the tables of its fork. Readers that ask here before they open
a table go there with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from savepoints.operations.savepoint import history
from savepoints.result import Result
from savepoints.store import bindings
from savepoints.store.root import Store
from savepoints.uri import Uri


@dataclass(frozen=True)
class Located(Result):
    """Where the outputs of a query are.

    Attributes:
        query: Name of the query.
        generation: Its current generation.
        since: When that began.
        outputs: Table URI by output name.
    """

    query: str
    generation: int
    since: datetime
    outputs: dict[str, str]


def locate(store: Store, query: str) -> Located:
    """Return where the outputs of a query are now; reads only the store, and no table.

    Raises:
        QueryNotFoundError: If the store has no query of that name.
    """
    store = store.snapshot()
    current = store.generations.current(query)
    found = history.output_uris(store, query, bindings.complete(store))
    places = {name: _anywhere(uri) for name, uri in found.items()}
    return Located(query, current.generation, current.begun_at, places)


def _anywhere(uri: str) -> str:
    """Write a local path from the root on: a program knows no `~`, and may run elsewhere."""
    place = Uri.parse(uri)
    return str(place) if place.scheme == "file" else uri
