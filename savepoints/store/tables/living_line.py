"""The line that lives: the present generation of a query, and what it began from.

What was rolled back is not on it, so `latest` never gives back the bug that was gone back from.
What a promoted fork had begun from is: the line goes back through the fork to the query itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from savepoints.model import Generation, Place, Savepoint

# How a savepoint left the line, by the verb that began the next generation.
_LEFT = {"rollback": "rolled back", "pipeline rollback": "rolled back"}
# Generations by query and number.
_Begun = Mapping[Place, Generation]


@dataclass(frozen=True)
class Line:
    """A generation and those of the same query that it descends from, if through a fork.

    Attributes:
        newest: By number of the generation, the present one first, its newest batch that counts;
            None where all do. Empty for a query of which no generation is known: then all counts.
    """

    newest: Mapping[int, int | None]
    origins: frozenset[str]

    def has(self, savepoint: Savepoint) -> bool:
        """Return True if a savepoint belongs to the present of the query or its ancestry.

        One that was edited by hand is, if a generation began from it.
        """
        if savepoint.edit is not None and savepoint.id not in self.origins:
            return False
        if not self.newest:
            return True
        newest = self.newest.get(savepoint.generation, -1)
        return newest is None or savepoint.cut.batch_id <= newest

    def backwards(self, savepoints: Iterable[Savepoint]) -> list[Savepoint]:
        """Return those on the line, from its end to its beginning.

        Generation and batch decide, then the time: clocks of different machines need not agree.
        """
        place = {number: nth for nth, number in enumerate(self.newest)}
        return sorted(
            filter(self.has, savepoints),
            key=lambda one: (
                place.get(one.generation, 0),
                -one.cut.batch_id if place else 0,
                one.id not in self.origins,
                -one.created_at.timestamp(),
            ),
        )


def of_query(
    query: str, generations: Iterable[Generation], savepoints: Sequence[Savepoint]
) -> Line:
    """Return the line of a query; of one that has ended, by its newest generation."""
    begun = {one.place: one for one in generations}
    mine = [one for one in begun.values() if one.query == query]
    return _line(query, mine, begun, {one.id: one for one in savepoints})


def whole(
    query: str, generations: Iterable[Generation], savepoints: Sequence[Savepoint]
) -> list[Savepoint]:
    """Return the whole savepoints that a query's present comes from, the newest first."""
    mine = [one for one in savepoints if one.query == query and one.state == "complete"]
    return of_query(query, generations, savepoints).backwards(mine)


def left(savepoints: Sequence[Savepoint], generations: Sequence[Generation]) -> Mapping[str, str]:
    """Find the savepoints of batches that no longer belong to the present of their queries.

    Returns:
        By their ids, how that came about: `rolled back`, or `replaced by` a verb like `promote`.
    """
    begun = {one.place: one for one in generations}
    known = {one.id: one for one in savepoints}
    mine: dict[str, list[Generation]] = defaultdict(list)
    for key in sorted(begun):
        mine[key[0]].append(begun[key])
    saved: dict[str, list[Savepoint]] = defaultdict(list)
    for one in savepoints:
        saved[one.query].append(one)
    return {
        one.id: _LEFT.get(verb, f"replaced by {verb}")
        for query in saved
        for one, verb in _left_by(query, mine[query], saved[query], begun, known)
    }


def _line(
    query: str, mine: Sequence[Generation], begun: _Begun, known: Mapping[str, Savepoint]
) -> Line:
    """Return the line of a query as it is, or was, with some of its generations."""
    numbers = {one.generation for one in mine}
    current = [one.generation for one in mine if one.status == "current"]
    number = max(current or numbers, default=None)
    at = None if number is None else (query, number)
    until: int | None = None
    newest: dict[int, int | None] = {}
    origins = set()
    seen = set()
    while at is not None:
        if at[0] == query:
            newest[at[1]] = until
        # Each is seen once, so the walk ends whatever the store says.
        is_of_then = at not in seen and (at[0] != query or at[1] in numbers)
        generation = begun.get(at) if is_of_then else None
        seen.add(at)
        origin = None if generation is None else generation.origin_among(known)
        if generation is None or generation.begun_from is None or origin is None:
            break
        if origin.query == query:
            origins.add(generation.begun_from)
        at, until = origin.place, origin.batch_id
    return Line(newest, frozenset(origins))


def _left_by(
    query: str,
    mine: Sequence[Generation],
    saved: Sequence[Savepoint],
    begun: _Begun,
    known: Mapping[str, Savepoint],
) -> Iterator[tuple[Savepoint, str]]:
    """Give a query's savepoints that are off its line, with the verb that led it elsewhere.

    Args:
        mine: Its generations, in the order in which they began.
    """
    now = _line(query, mine, begun, known)
    gone = [one for one in saved if one.edit is None and not now.has(one)]
    if not gone:
        return
    # As it was with each generation, which began with the verb.
    lines = [_line(query, mine[: nth + 1], begun, known) for nth in range(len(mine))]
    for one in gone:
        verbs = (
            each.begun_by
            for each, line in zip(mine, lines, strict=True)
            if each.generation > one.generation and not line.has(one)
        )
        yield one, next(verbs, "rollback")
