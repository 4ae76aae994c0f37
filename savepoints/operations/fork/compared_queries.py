"""The queries of a comparison: what each is bound to, where it stands, and how it goes on.

They go side by side to one end (`ComparisonRun`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from savepoints.checkpoint import position
from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.checkpoint.position import CheckpointPosition
from savepoints.config.settings import KafkaSettings, QuerySettings, Settings
from savepoints.errors import UsageError
from savepoints.io import Location
from savepoints.model import Generation
from savepoints.operations.fork import same_batches
from savepoints.operations.fork.same_batches import Approach
from savepoints.runtime import app as apps
from savepoints.runtime.app import App
from savepoints.runtime.bounded import bounded_run
from savepoints.runtime.bounded.bounded_run import KafkaEnd
from savepoints.sources.combined import availability
from savepoints.sources.kafka.offsets import count
from savepoints.store.root import Store
from savepoints.uri import spelled

if TYPE_CHECKING:
    from savepoints.sources.kafka.offsets import Ranges


@dataclass(frozen=True)
class ComparedQuery:
    """A query, what it is bound to, and where it stands.

    Attributes:
        application: Its program, under the name of the query.
    """

    query: str
    generation: Generation
    bound: QuerySettings
    application: App
    position: CheckpointPosition

    @property
    def checkpoint(self) -> Location:
        """Where it lives."""
        return Location.of(self.generation.checkpoint)

    @property
    def topics(self) -> tuple[str, ...]:
        """What it reads."""
        app, topics = self.application, self.bound.topics
        return tuple(sorted({topics.get(one, app.kafka_input(one).topic) for one in app.inputs}))

    def within(self, end: KafkaOffsets) -> CheckpointPosition:
        """Return where it stands; a batch that goes beyond the end is planned anew."""
        if self.position.begun is None or bounded_run.is_within(self.position.begun_positions, end):
            return self.position
        return replace(self.position, begun=None, begun_positions=())


@dataclass(frozen=True)
class ComparisonRun:
    """All queries, on their way to one end."""

    queries: Sequence[ComparedQuery]
    end: KafkaEnd

    @cached_property
    def approaches(self) -> dict[str, Approach]:
        """How each of them comes to where the furthest is."""
        leader = min(
            self.queries,
            key=lambda compared: (
                count(self.end.reached(compared.position), self.end.ends),
                compared.within(self.end.ends).begun is None,
            ),
        )
        recorded = same_batches.recorded_in(leader.checkpoint)
        furthest = leader.within(self.end.ends)
        return {
            compared.query: Approach()
            if compared is leader
            else same_batches.approach(
                compared.query, compared.within(self.end.ends), leader.query, furthest, recorded
            )
            for compared in self.queries
        }

    @property
    def problems(self) -> tuple[str, ...]:
        """Why batches cannot be the same."""
        found = (one.problem for one in self.approaches.values())
        return tuple(f"the queries will run different batches: {one}" for one in found if one)


def compared_query(store: Store, query: str, settings: Settings) -> ComparedQuery:
    """Find a query and what it runs.

    Raises:
        UsageError: If it reads a table.
    """
    generation = store.generations.current(query)
    bound = settings.bound(query, "it cannot be run")
    application = apps.load_for(query, bound)
    if tables := ", ".join(application.table_inputs):
        raise UsageError(
            f"compare works only for queries that read from Kafka, but {query} reads from Delta: "
            f"{tables}",
            hint="fork the query as part of its pipeline (savepoints pipeline fork QUERY "
            "SAVEPOINT NAME), then compare the pipelines: savepoints pipeline compare QUERY NAME",
            query=query,
        )
    return ComparedQuery(
        query, generation, bound, application, position.read(Location.of(generation.checkpoint))
    )


def topics_of(queries: Sequence[ComparedQuery]) -> list[str]:
    """Return the topics that all of them read, which must be the same."""
    first = queries[0]
    for other in queries[1:]:
        if other.topics != first.topics:
            raise UsageError(
                f"the queries read different topics: {first.query} reads "
                f"{', '.join(first.topics)}; {other.query} reads {', '.join(other.topics)}",
                hint="compare queries that read the same topics, or correct "
                "[queries.NAME.topics] in the settings",
            )
    return list(first.topics)


def ranges_of(queries: Sequence[ComparedQuery], settings: KafkaSettings) -> Ranges:
    """Return what there is of their topics, of Kafka and of the archives that each of them has."""
    return availability.ranges(topics_of(queries), settings, common_archives(queries))


def common_archives(queries: Sequence[ComparedQuery]) -> list[str]:
    """Return the archives that each of them has."""
    found = (set(map(spelled, compared.bound.archives.values())) for compared in queries)
    return sorted(set.intersection(*found))


def other_settings(queries: Sequence[ComparedQuery]) -> tuple[str, ...]:
    """Say whose batches are of another size here than when it runs alone."""
    first = queries[0]
    most = first.bound.max_offsets_per_trigger
    return tuple(
        f"max_offsets_per_trigger of {compared.query} is "
        f"{compared.bound.max_offsets_per_trigger or 'none'}; for the comparison, all queries use "
        f"that of {first.query}: {most or 'none'}"
        for compared in queries[1:]
        if compared.bound.max_offsets_per_trigger != most
    )
