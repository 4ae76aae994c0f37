"""Who uses which savepoint or scratch directory now, so that nobody removes it meanwhile.

A reader places `uses/<savepoint id>/<operation id>.json`, which lives as long as a lease does, and
then looks whether the savepoint still exists. Whoever removes one marks it as expired first and
looks for readers then. So at least one of the two sees the other. A scratch directory has the sign
of whoever makes it before it has any file, and until it has none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from savepoints.errors import SavepointsError
from savepoints.io import Location, in_parallel
from savepoints.model import new_id
from savepoints.moments import utc_now
from savepoints.store.locks import lease

_LOG = logging.getLogger(__name__)

_DIRECTORY = "uses"


@contextmanager
def using(root: Location, name: str, verb: str) -> Iterator[None]:
    """Say, for the while, that a savepoint or a scratch directory is being used."""
    path = f"{_DIRECTORY}/{name}/{new_id('op', utc_now())}.json"
    mark = lease.mark(root, path, name, verb)
    try:
        yield
    finally:
        mark.release()
        try:
            root.delete([path])
        except SavepointsError as error:
            # It was released, or ends by itself.
            _LOG.warning("could not delete %s: %s", path, error)


def holders(root: Location) -> dict[str, tuple[str, ...]]:
    """Return who uses what: for each id, what is done by which process."""
    found: dict[str, tuple[str, ...]] = {}
    for path, record in _marks(root).items():
        if not record.is_free():
            name = path.split("/")[1]
            who = f"{record.verb} by {record.who}"
            found[name] = (*found.get(name, ()), who)
    return found


def leftovers(root: Location) -> list[str]:
    """Return the marks of readers that are gone."""
    return [path for path, record in _marks(root).items() if record.is_free()]


def _marks(root: Location) -> dict[str, lease.LeaseRecord]:
    paths = [info.path for info in root.list(_DIRECTORY) if info.path.endswith(".json")]
    records = in_parallel(lambda path: lease.read(root, path), paths)
    return {path: one for path, one in zip(paths, records, strict=True) if one is not None}
