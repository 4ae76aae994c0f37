"""Lanes: one for each generation of each query of a family, as a commit graph has its branches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from savepoints.model import Generation, Place, Placed, Savepoint
from savepoints.operations.inspect.topology import Topology
from savepoints.store.tables import living_line
from savepoints.ui.facts import StoreFacts

# By the first savepoint of a query that has run before: that batch is older.
_REGISTERED = frozenset({"create", "attach", ""})
# What begins a generation without another one having stopped for it.
_FRESH = frozenset({"run", "create", "attach", "fork", "pipeline fork", "seed", "bootstrap"})


@dataclass(frozen=True)
class Lane(Placed):
    """A generation.

    Attributes:
        row: Its place in the drawing, from the top.
        begun_at: When it began, or what is first known of it.
        ended_at: When it ended, or now.
        current: It is the one that `run` starts.
        begun_by: The verb; empty when the store does not know the generation.
        begun_from: The savepoint it began from, None without one.
        counts_until: From then on its batches were rolled back; None when all of them count.
        origin: Row of the savepoint that it began from and when that was committed; None where
            the drawing does not have it.
    """

    query: str
    generation: int
    row: int
    begun_at: datetime
    ended_at: datetime
    current: bool
    begun_by: str = ""
    begun_from: str | None = None
    counts_until: datetime | None = None
    origin: tuple[int, datetime] | None = None

    def counts(self, moment: datetime) -> bool:
        """Return True if what was committed then still counts."""
        return self.counts_until is None or moment <= self.counts_until

    def moment_of(self, saved: Savepoint) -> datetime:
        """Return where a savepoint stands: at its cut, or when it was edited.

        The first of a generation may be of a batch that another one has committed.
        """
        return saved.created_at if saved.edit else max(saved.cut.committed_at, self.begun_at)


@dataclass(frozen=True)
class Downtime:
    """Between the last known batch of a generation and the first of the next.

    Attributes:
        row: Of the next generation.
        begin: When the last batch was committed.
        end: When the first was, or now.
        over: A batch of the next generation is known.
    """

    row: int
    begin: datetime
    end: datetime
    over: bool

    @property
    def span(self) -> timedelta:
        """How long it lasted, at most."""
        return self.end - self.begin


def lanes(facts: StoreFacts, family: Sequence[str]) -> tuple[Lane, ...]:
    """Lay out the generations of a family: of each query the newest on top, forks below.

    Args:
        family: Names of queries, each before its forks.
    """
    shown = [
        one
        for query in family
        for one in _generations(facts, query)
        if facts.shows(one.ended_at or facts.at)
    ]
    rows = {one.place: row for row, one in enumerate(shown)}
    by_id = {one.id: one for one in facts.savepoints}
    return tuple(_lane(facts, one, rows, by_id.get(one.begun_from or "")) for one in shown)


def downtimes(facts: StoreFacts, drawn: Sequence[Lane]) -> Iterator[Downtime]:
    """Find when a query is not known to have committed a batch, around a change of generation."""
    for lane in drawn:
        if lane.begun_by in _FRESH or lane.begun_by == "":
            continue
        older = [
            one.cut.committed_at
            for one in facts.savepoints
            if one.query == lane.query
            and one.generation < lane.generation
            and one.cut.committed_at <= lane.begun_at
        ]
        batches = _batches_of(facts, lane)
        if older and (batches or (lane.current and not _has_read_all(facts, lane))):
            first = min(batches, default=facts.at)
            yield Downtime(lane.row, max(older), first, bool(batches))


def _has_read_all(facts: StoreFacts, lane: Lane) -> bool:
    """Return whether there is nothing for a generation to read, as far as its sources are known."""
    place = _place_of(facts, lane)
    return place is not None and all(one.lag == 0 for one in place.sources)


def _place_of(facts: StoreFacts, lane: Lane) -> Topology | None:
    """Return where the query stands, if that is in this generation."""
    sources = facts.sources.get(lane.query)
    place = sources.topology if sources else None
    return place if place and place.generation == lane.generation else None


def _batches_of(facts: StoreFacts, lane: Lane) -> list[datetime]:
    """Return when batches that the generation ran itself were committed, as far as known."""
    found = [
        one.cut.committed_at
        for one in facts.savepoints
        if one.place == lane.place and one.cut.committed_at >= lane.begun_at
    ]
    place = _place_of(facts, lane)
    if place and place.committed_at >= lane.begun_at:
        found.append(place.committed_at)
    return found


def _generations(facts: StoreFacts, query: str) -> list[Generation]:
    """Return the generations of a query, the newest first, also those only savepoints tell of."""
    known = {one.generation: one for one in facts.generations if one.query == query}
    for one in facts.savepoints:
        if one.query == query and one.generation not in known:
            times = [
                it.cut.committed_at
                for it in facts.savepoints
                if it.place == (query, one.generation)
            ]
            known[one.generation] = Generation(
                query, one.generation, "", "ended", min(times), "", ended_at=max(times)
            )
    return [known[number] for number in sorted(known, reverse=True)]


def _lane(
    facts: StoreFacts, one: Generation, rows: dict[Place, int], origin: Savepoint | None
) -> Lane:
    line = living_line.of_query(one.query, facts.generations, facts.savepoints)
    until: datetime | None = None
    if line.newest and one.generation not in line.newest:
        until = one.begun_at
    elif (newest := line.newest.get(one.generation)) is not None:
        # That of the batch itself, unless its savepoint expired: only present generations need it.
        until = max(
            (
                it.cut.committed_at
                for it in facts.savepoints
                if it.place == one.place and it.cut.batch_id <= newest
            ),
            default=one.begun_at,
        )
    row = rows.get(origin.place) if origin else None
    mine = [it.cut.committed_at for it in facts.savepoints if it.place == one.place]
    return Lane(
        one.query,
        one.generation,
        rows[one.place],
        min([one.begun_at, *mine]) if one.begun_by in _REGISTERED else one.begun_at,
        facts.at if one.status == "current" else (one.ended_at or one.begun_at),
        one.status == "current",
        "undo" if facts.is_undo(one) else one.begun_by,
        one.begun_from,
        until,
        (row, origin.cut.committed_at) if origin and row is not None else None,
    )
