"""The inputs of an application as it is bound, and where their events are: Kafka and archives."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.config.settings import KafkaSettings, QuerySettings
from savepoints.errors import NotFoundError, UsageError
from savepoints.io import Location
from savepoints.runtime.app import App
from savepoints.sources.archive import progress, same_decoding
from savepoints.sources.archive import table as archive_table
from savepoints.sources.archive.progress import ArchiveProgress
from savepoints.sources.combined import archive_then_kafka, availability
from savepoints.sources.events import offset_ranges
from savepoints.sources.events.events import Decoding, EventsOf, events, without_records
from savepoints.store.tables.merge_ledger import Merge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from savepoints.sources.kafka.offsets import Ranges


@dataclass(frozen=True)
class Inputs:
    """The inputs of an application, and where their events are."""

    app: App
    bound: QuerySettings
    kafka: KafkaSettings

    @property
    def topics(self) -> list[str]:
        """The topics that the query reads."""
        return sorted({self.topic(name) for name in self.app.inputs})

    def table(self, name: str) -> str:
        """Return the table of an input that is one."""
        return self.bound.tables[name]

    @property
    def archives(self) -> tuple[str, ...]:
        """The archives of its inputs."""
        return tuple(self.bound.archives.values())

    def ranges(self) -> Ranges:
        """Return what there is of its topics, in Kafka and in archives."""
        return availability.ranges(self.topics, self.kafka, self.archives)

    def topic(self, name: str) -> str:
        """Return the topic of an input."""
        return self.bound.topics.get(name, self.app.kafka_input(name).topic)

    def sharing(self, name: str) -> list[str]:
        """Return the other inputs that read the topic of one."""
        mine = self.topic(name)
        return [one for one in self.app.inputs if one != name and self.topic(one) == mine]

    def archive(self, name: str) -> str:
        """Return the archive of an input, which the settings must name."""
        found = self.bound.archives.get(name)
        if found is None:
            raise UsageError(
                f"the input {name} of {self.app.name} has no archive, but needs one to keep merged "
                "events for later replays",
                hint=f"set one in [queries.{self.app.name}.archives] in the settings: {name} = "
                '"s3://bucket/path"; the archive may be empty as long as Kafka still has all '
                "events",
                query=self.app.name,
                input=name,
            )
        return found

    def decoding(self, name: str) -> Decoding:
        """Return how an input reads records."""
        one = self.app.kafka_input(name)
        return Decoding(one.decode, one.entity_key, one.event_time, one.event_id)

    def require_same_decoding(self, spark: SparkSession) -> None:
        """Check that the archives have the events as the program decodes them now."""
        for name, uri in self.bound.archives.items():
            if name in self.app.inputs:
                same_decoding.require(spark, uri, self.decoding(name))

    def rows(
        self,
        spark: SparkSession,
        name: str,
        *,
        since: KafkaOffsets | None,
        until: KafkaOffsets,
        entities: DataFrame | None,
        merges: Sequence[str],
        of: EventsOf = events,
    ) -> DataFrame:
        """Read events of an input; see `archive_then_kafka.rows`."""
        return archive_then_kafka.rows(
            spark,
            self.decoding(name),
            topic=self.topic(name),
            archive=self.bound.archives.get(name),
            kafka=self.kafka,
            since=since,
            until=until,
            entities=entities,
            merges=merges,
            of=of,
        )

    def clock(
        self, spark: SparkSession, name: str, until: KafkaOffsets, *, since: KafkaOffsets
    ) -> datetime | None:
        """Return the time of the newest event of an input before some offsets; it is exact.

        Args:
            since: Where the query began: Kafka may have lost what was before.
        """
        known = self.arrivals(name)
        mine = {self.topic(name): until.get(self.topic(name), {})}
        whole = known.whole(mine)
        found = [known.clock(whole)]
        if whole != mine:
            topic = self.topic(name)
            begin = {topic: {**since.get(topic, {}), **whole.get(topic, {})}}
            rest = self._arrived(spark, name, begin, mine)
            found.append(offset_ranges.newest([rest]))
        return max((one for one in found if one is not None), default=None)

    def clocks(
        self,
        spark: SparkSession,
        name: str,
        begin: KafkaOffsets | None,
        positions: Sequence[KafkaOffsets],
        wanted: datetime,
        *,
        since: KafkaOffsets,
    ) -> list[datetime]:
        """Return the time of the newest event of an input before each of some positions.

        Args:
            begin: A position before these; None for where the query began.
            since: Where that is.

        Returns:
            Exact times up to the first that reaches `wanted`, and then that one.
        """
        topic, known = self.topic(name), self.arrivals(name)
        mine = [{topic: one.get(topic, {})} for one in positions]

        def reaches(position: KafkaOffsets) -> bool:
            least = known.clock(known.whole(position))
            return least is not None and least >= wanted

        last = bisect_left(mine, True, key=reaches)  # noqa: FBT003  (what is looked for)
        few = mine[: last + 1]
        start = None if begin is None else self.clock(spark, name, begin, since=since)
        rows = self._arrived(spark, name, since if begin is None else begin, few[-1])
        found = offset_ranges.clocks(rows, few, start or offset_ranges.NEVER)
        return found + found[-1:] * (len(mine) - len(few))

    def _arrived(
        self, spark: SparkSession, name: str, since: KafkaOffsets, until: KafkaOffsets
    ) -> DataFrame:
        return self.rows(
            spark, name, since=since, until=until, entities=None, merges=(), of=without_records
        )

    def require_merged(self, one: Merge, query: str) -> None:
        """Check that an input's archive has a merge's events: a replay would take it back."""
        uri = self.bound.archives.get(one.input, "") if one.input in self.app.inputs else ""
        table = archive_table.open_if_exists(Location.of(uri)) if uri else None
        if table is None or not archive_table.has(table, one.id, 0):
            where = f"the archive of {one.input}" + (f", {uri}" if uri else " (none is set)")
            raise NotFoundError(
                f"the events of the merge {one.id} are in the state of {query}, but not in {where}",
                hint=f"set {one.input} in [queries.{query}.archives] to the archive that has "
                "these events, or roll back to a savepoint from before the merge; to list the "
                f"savepoints: savepoints list --query {query}",
                merge=one.id,
            )

    def arrivals(self, name: str) -> ArchiveProgress:
        """Return what has arrived in the archive of an input; nothing where it has none."""
        uri = self.bound.archives.get(name)
        return ArchiveProgress("", ()) if uri is None else progress.load(uri)

    def input(self, name: str | None) -> str:
        """Return the input that is meant; an application that has one alone means that."""
        known = list(self.app.inputs)
        if name is None and len(known) == 1:
            return known[0]
        if name in known:
            return str(name)
        raise UsageError(
            f"{self.app.name} has no input {name}"
            if name
            else (
                f"{self.app.name} has {len(known)} inputs: choose the one that the batch belongs to"
            ),
            hint=f"use one of: --input {', --input '.join(known)}",
            query=self.app.name,
        )
