"""Queries and their forks brought to equal cuts: both have read the same, level by level.

What both read, topics or tables of queries that are not forked, is read to one end. What each of
them reads of another forked query is read to its end: that one, and its fork, are at equal cuts
already, and stand still. So nobody has to say which batch of one table belongs to which of another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from savepoints.checkpoint.logs.kafka_position import kafka_position
from savepoints.checkpoint.logs.table_position import TablePosition
from savepoints.config.settings import Settings
from savepoints.errors import IncompatibleError
from savepoints.io import Location
from savepoints.model import Generation
from savepoints.operations.fork import exact_run
from savepoints.operations.fork.verdict import RunCost
from savepoints.operations.pipeline_fork.forked_pairs import ForkedPair
from savepoints.plan import Progress
from savepoints.runtime.archive_of import archives_of
from savepoints.runtime.bounded import end_offsets, table_ends
from savepoints.sources import delta_versions
from savepoints.sources.combined import availability
from savepoints.store.locks.lease import Lease
from savepoints.store.root import Store

LATEST = "latest"


@dataclass(frozen=True)
class EqualCuts:
    """Some queries and their forks, all of whose leases are held.

    Attributes:
        settings: Completed.
        until: `latest` or a time (RFC 3339): where what both read ends.
        held: By query, its lease.
    """

    store: Store
    settings: Settings
    until: str
    held: Mapping[str, Lease]
    progress: Progress

    def meet(self, pairs: Sequence[ForkedPair]) -> dict[str, RunCost]:
        """Run all of them to equal cuts.

        Args:
            pairs: Writers before readers.

        Returns:
            By query what it cost; without those that were there already.

        Raises:
            IncompatibleError: If one reads a topic and a table, or the two read different topics.
            UsageError: If one has read more than up to the end already.
            SourceDataGoneError: If Kafka or the log of a table no longer has what comes next.
            SavepointsError: If a query fails.
        """
        costs: dict[str, RunCost] = {}
        for pair in pairs:
            costs |= self._meet(pair)
        return costs

    def catch_up(self, query: str) -> None:
        """Run one query to the end of what it reads; the others need not stand still."""
        generation = self.store.generations.current(query)
        if topics := sorted(exact_run.position_of(generation).offsets):
            end = self._offsets(query, topics)
        else:
            own = self._reads(query)
            end = table_ends.to_text(dict(self._end(one, LATEST, query) for one in own))
        self._run([generation], [end])

    def _meet(self, pair: ForkedPair) -> dict[str, RunCost]:
        both = [self.store.generations.current(one) for one in (pair.live, pair.fork)]
        live, fork = (exact_run.position_of(one) for one in both)
        if live.offsets.keys() != fork.offsets.keys() or (live.offsets and self._reads(pair.live)):
            raise _mixed(pair)
        if live.offsets:
            ends = self._offsets(pair.live, sorted(live.offsets))
            return self._run(both, [ends, ends])
        return self._run(both, self._tables(pair))

    def _reads(self, query: str) -> tuple[str, ...]:
        """Return the tables that a query reads."""
        tables = self.settings.queries[query].tables.values()
        return tuple(dict.fromkeys(str(Location.of(one)) for one in tables))

    def _offsets(self, query: str, topics: list[str]) -> str:
        archives = archives_of(self.settings, query)
        return kafka_position(
            end_offsets.resolve(
                self.store,
                self.until,
                query=query,
                ranges=availability.ranges(topics, self.settings.kafka, archives),
                settings=self.settings.kafka,
                archives=archives,
            )
        )

    def _tables(self, pair: ForkedPair) -> list[str]:
        """Return where each of the two ends: in what both read alike, in their own at its end."""
        live, fork = self._reads(pair.live), self._reads(pair.fork)
        common = {one: self._end(one, self.until, pair.live) for one in live if one in fork}
        return [
            table_ends.to_text(
                dict(common[one] if one in common else self._end(one, LATEST, query) for one in own)
            )
            for query, own in ((pair.live, live), (pair.fork, fork))
        ]

    def _end(self, uri: str, until: str, query: str) -> tuple[str, TablePosition]:
        tables = [delta_versions.read(uri)]
        (found,) = table_ends.resolve(self.store, until, query=query, tables=tables).items()
        return found

    def _run(self, both: Sequence[Generation], ends: Sequence[str]) -> dict[str, RunCost]:
        costs = {}
        for generation, end in zip(both, ends, strict=True):
            cost = exact_run.to(
                end,
                generation,
                self.store,
                settings=self.settings,
                check=self.held[generation.query].check,
                progress=self.progress,
            )
            if cost is not None:
                costs[generation.query] = cost
        return costs


def _mixed(pair: ForkedPair) -> IncompatibleError:
    return IncompatibleError(
        f"{pair.live} and {pair.fork} cannot be run to the same positions, because they read "
        "different Kafka topics, or tables as well as topics",
        hint="choose queries that both read only tables, or only the same topics",
        query=pair.live,
    )
