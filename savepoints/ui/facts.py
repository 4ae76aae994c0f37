"""What a page is drawn from: all that the store and Kafka say, read once and frozen."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from savepoints.errors import VerificationError
from savepoints.model import Generation, Savepoint
from savepoints.operations.inspect.availability import Availability
from savepoints.operations.inspect.topology import Topology
from savepoints.store.locks.journal import Operation
from savepoints.store.tables import living_line
from savepoints.store.tables.events import Event
from savepoints.store.tables.merge_ledger import Merge
from savepoints.ui.families import families


@dataclass(frozen=True)
class SourceFacts:
    """What was found out about a query outside of the store.

    Attributes:
        topology: Where it stands; None when that is not known.
        problem: Why it is not known; empty when it is, or when nobody asked.
        newest: Whether its newest savepoint is restorable, and until when; None when nobody asked.
        each: By id of a savepoint, whether it is restorable; empty when nobody asked.
    """

    topology: Topology | None = None
    problem: str = ""
    newest: Availability | None = None
    each: Mapping[str, Availability] = field(default_factory=dict)


@dataclass(frozen=True)
class StoreFacts:
    """A store as it was at a moment.

    Attributes:
        savepoints: The newest first, without those that are being removed.
        generations: The newest first, by query.
        operations: With a journal, the newest first.
        events: The newest first.
        merges: Late batches that were merged.
        sources: By query, what was found out besides.
        busy: Queries that a process works on now, with its verb.
        damaged: By query, what files that say what is done with it could not be read.
        since: The page shows what is not older; answers are of everything. None for all.
    """

    store: str
    at: datetime
    savepoints: tuple[Savepoint, ...] = ()
    generations: tuple[Generation, ...] = ()
    operations: tuple[Operation, ...] = ()
    events: tuple[Event, ...] = ()
    merges: tuple[Merge, ...] = ()
    sources: Mapping[str, SourceFacts] = field(default_factory=dict)
    busy: Mapping[str, str] = field(default_factory=dict)
    damaged: Mapping[str, tuple[VerificationError, ...]] = field(default_factory=dict)
    since: datetime | None = None

    @property
    def queries(self) -> tuple[str, ...]:
        """Names of the queries that have savepoints or generations, sorted."""
        named = {one.query for one in self.generations} | {one.query for one in self.savepoints}
        return tuple(sorted(named))

    @cached_property
    def left(self) -> Mapping[str, str]:
        """The savepoints whose batches no longer count, with how that came; see `living_line`."""
        return living_line.left(self.savepoints, self.generations)

    def newest_alive(self, query: str) -> Savepoint | None:
        """Return what `latest` means for a query, None when it has no whole savepoint."""
        return next(iter(living_line.whole(query, self.generations, self.savepoints)), None)

    def of(self, queries: Collection[str]) -> StoreFacts:
        """Return the part of it that is of some queries, or of none."""
        return replace(
            self,
            savepoints=tuple(one for one in self.savepoints if one.query in queries),
            generations=tuple(one for one in self.generations if one.query in queries),
            operations=tuple(one for one in self.operations if any(map(one.concerns, queries))),
            # `verify --all` is of no query, and concerns each.
            events=tuple(one for one in self.events if one.query in {None, *queries}),
            merges=tuple(one for one in self.merges if one.query in queries),
            sources={name: one for name, one in self.sources.items() if name in queries},
        )

    @cached_property
    def families(self) -> Mapping[tuple[str, ...], StoreFacts]:
        """The part of each family, which is all that an answer about one of its queries needs."""
        return {one: self.of(one) for one in families(self.savepoints, self.generations)}

    def is_undo(self, begun: Generation) -> bool:
        """Return True if a generation began because an operation was undone."""
        return any(one.is_undo and begun.place in one.generations_begun for one in self.operations)

    def shows(self, moment: datetime) -> bool:
        """Return True if the page shows what happened then."""
        return self.since is None or moment >= self.since
