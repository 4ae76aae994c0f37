"""Which savepoint has a tag: one of a query at most, so that a tag is a name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from savepoints.errors import TargetExistsError
from savepoints.model import Savepoint
from savepoints.store.tables import catalog


def tagged(
    savepoints: Iterable[Savepoint], query: str, tags: Sequence[str], *, but: Collection[str] = ()
) -> dict[str, str]:
    """Return which savepoint of a query, other than some, has which of these tags."""
    return {
        tag: one.id
        for one in catalog.select(savepoints, query=query)
        for tag in one.tags
        if tag in tags and one.id not in but
    }


def holders(
    savepoints: Iterable[Savepoint], tag: str, queries: Collection[str]
) -> dict[str, Savepoint]:
    """Return the savepoint of each of some queries that has a tag, by query.

    Raises:
        AmbiguousNameError: If two of one query have it, as after a move that was killed.
    """
    found: dict[str, list[Savepoint]] = {}
    for one in catalog.select(savepoints, tag=tag):
        if one.query in queries:
            found.setdefault(one.query, []).append(one)
    for several in found.values():
        if len(several) > 1:
            raise catalog.ambiguous(tag, several)
    return {query: one for query, (one,) in found.items()}


def require_free(
    savepoints: Iterable[Savepoint], query: str, tags: Sequence[str], *, but: Collection[str] = ()
) -> None:
    """Refuse tags that savepoints of a query, other than some, have.

    Raises:
        TargetExistsError: If one is taken.
    """
    for tag, holder in tagged(savepoints, query, tags, but=but).items():
        raise TargetExistsError(
            f"savepoint {holder} of {query} already has the tag {tag!r}",
            hint=f"choose another tag, or move this one: savepoints tag NAME {tag} --move",
            tag=tag,
            savepoint=holder,
        )
