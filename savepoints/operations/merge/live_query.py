"""The query that late events are merged into, as it stands: known from the store, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from savepoints.checkpoint import position
from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, by_partition, lowest_offsets
from savepoints.checkpoint.state import avro, layout
from savepoints.errors import IncompatibleError, SourceDataGoneError
from savepoints.io import Location
from savepoints.model import Generation, Savepoint
from savepoints.operations.rollback import skipped_records
from savepoints.operations.savepoint.history import named_as_now
from savepoints.runtime import program
from savepoints.runtime.archive_of import is_before
from savepoints.runtime.inputs import Inputs
from savepoints.sources.events import offset_ranges
from savepoints.sources.events.events import EventsOf, events
from savepoints.sources.kafka import topics
from savepoints.sources.kafka.offsets import Ranges
from savepoints.sources.kafka.reset_targets import Skips
from savepoints.store import lineage
from savepoints.store.batch_log import Batch
from savepoints.store.lineage import GenerationHistory, Reach, ReadOtherwise
from savepoints.store.root import Store
from savepoints.store.tables.merge_ledger import Merge
from savepoints.texts import count_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class LiveQuery:
    """A query at the cut up to which its events are compared with a late batch.

    Attributes:
        until: Next-to-read offsets of that cut.
        reach: How far back the query's state can be told from its events.
        beginning: Where its events begin: the offsets that it began with or, in a merge that may go
            without the first events, the first that there still are.
        lost: Those of `beginning` before which events are gone; empty if all are there.
        skipped: What arrived and was never read.
    """

    store: Store
    inputs: Inputs
    name: str
    generation: int
    checkpoint: Location
    until: KafkaOffsets
    beginning: KafkaOffsets
    lost: KafkaOffsets
    history: GenerationHistory
    reach: Reach
    merges: tuple[Merge, ...]
    skipped: Skips

    @classmethod
    def read(
        cls,
        store: Store,
        inputs: Inputs,
        live: Generation,
        until: KafkaOffsets,
        *,
        partial_history: bool = False,
        across_promotions: bool = False,
    ) -> LiveQuery:
        """Read what the store and the checkpoint know of it.

        Args:
            partial_history: Go without its first events where they are gone.
            across_promotions: Go back to before promotions and the starts of forks.

        Raises:
            NotAlignedError: If a savepoint is gone from which one of its generations began, or the
                journal of a reset that kept its state.
            NotFoundError: If an archive lacks the events of one of its merges: a replay would
                silently take that merge back.
        """
        checkpoint = Location.of(live.checkpoint)
        history = GenerationHistory.of(store)
        initial = lowest_offsets(position.read(checkpoint).initial.values())
        # Of partitions that were added later, and where nobody wrote it down, from the first one.
        beginning = {
            topic: {**dict.fromkeys(parts, 0), **initial.get(topic, {})}
            for topic, parts in until.items()
        }
        merges = tuple(
            one
            for one in history.in_effect(live.query, live.generation)
            if not history.begins_behind(live, one, initial)
        )
        for one in merges:
            inputs.require_merged(one, live.query)
        lost = raised(beginning, inputs.ranges()) if partial_history else {}
        return cls(
            store,
            inputs,
            live.query,
            live.generation,
            checkpoint,
            until,
            {topic: {**parts, **lost.get(topic, {})} for topic, parts in beginning.items()},
            lost,
            history,
            lineage.reach(store, live.query, across_promotions=across_promotions),
            merges,
            skipped_records.find(store, history, history.ancestry(live.query, live.generation)),
        )

    @property
    def descent(self) -> tuple[str, ...]:
        """The generations from which the current one descends, as the ledger has them."""
        return self.history.ancestry(self.name, self.generation).names

    @property
    def merge_ids(self) -> list[str]:
        """The ids of its merges."""
        return [one.id for one in self.merges]

    @property
    def merged_at(self) -> dict[str, KafkaOffsets]:
        """By merge, the offsets up to which records had been read then."""
        return {one.id: one.offsets for one in self.merges}

    def savepoints(self) -> list[Savepoint]:
        """Return those that its present comes from, as far back as it goes, the newest first."""
        found = [
            named_as_now(one, self.inputs.bound.outputs)
            for one in self.history.savepoints
            if one.state == "complete" and self.reach.has(one)
        ]
        return sorted(found, key=lambda one: one.cut.batch_id, reverse=True)

    def batches(self) -> dict[int, Batch]:
        """Read the batches that made its present, as far as they are known."""
        return lineage.batches(self.store, self.reach, self.checkpoint)

    def read_otherwise(self, frame: DataFrame, *, since: Savepoint | None) -> ReadOtherwise | None:
        """Find batches that another program than the present one has read, if one has.

        Args:
            frame: What the present program makes; see `program.frame`.
            since: Only batches after this savepoint; None for all.
        """
        mine = program.digest(program.text(frame), frame, self.inputs)
        return lineage.read_otherwise(self.store, self.reach, mine, since)

    def events(
        self,
        spark: SparkSession,
        name: str,
        *,
        since: KafkaOffsets,
        until: KafkaOffsets,
        entities: DataFrame | None = None,
        merges: Sequence[str] = (),
        of: EventsOf = events,
    ) -> DataFrame:
        """Return events of an input that the query has read, without running a job.

        Args:
            entities: Of these alone: `entity` string; None for all.
            of: What of each event; see `archive_then_kafka.rows`.

        Returns:
            Columns of `archive.SCHEMA`, as far as `of` returns them.
        """
        rows = self.inputs.rows(
            spark, name, since=since, until=until, entities=entities, merges=merges, of=of
        )
        return offset_ranges.without(rows, self.skipped)

    def clock(self, spark: SparkSession, name: str, until: KafkaOffsets) -> datetime | None:
        """Return the time of the newest event of an input before some offsets; it is exact."""
        return self.inputs.clock(spark, name, until, since=self.beginning)

    def all_events(self, spark: SparkSession, until: KafkaOffsets) -> Mapping[str, DataFrame]:
        """Return all events before some offsets, by input, without running a job."""
        return {
            name: self.events(spark, name, since=self.beginning, until=until, merges=self.merge_ids)
            for name in self.inputs.app.inputs
        }

    def refuse_partial(self) -> None:
        """Refuse to go without the first events, if some are gone, and say how to allow it."""
        if lost := raised(self.beginning, self.inputs.ranges()):
            raise SourceDataGoneError(
                f"the first events that {self.name} has read are gone; there are those of "
                f"{text(lost)}. So it is unknown whether it has seen an event of the batch",
                hint="if it has seen none of them, and what is gone is older, merge with "
                "--partial-history (see docs/merging.md)",
                query=self.name,
                offsets=lost,
            )

    def refuse_compacted(self) -> None:
        """Refuse a compacted topic that is not archived as far as the query has read it.

        Raises:
            SourceDataGoneError: If so. Kafka may have removed events that are in the state.
        """
        described = topics.describe(self.inputs.topics, self.inputs.kafka)
        for name in self.inputs.app.inputs:
            topic = self.inputs.topic(name)
            if topic not in described or not described[topic].compacts:
                continue
            archived = self.inputs.arrivals(name).end.get(topic, {})
            if any(
                end > max(self.beginning[topic][part], archived.get(part, 0))
                for part, end in self.until.get(topic, {}).items()
            ):
                raise SourceDataGoneError(
                    f"topic {topic} is compacted, and {self.name} has read records of it that are "
                    "not archived: some may have been removed since, and a replay would miss them",
                    hint="stop the query, archive what it has read, and merge then: python -m "
                    f"savepoints.jobs.archive {self.name} {name} --until latest; or merge them as "
                    "if they arrived now: --policy append",
                    query=self.name,
                    topic=topic,
                )

    def has_all_since(self, offsets: KafkaOffsets) -> bool:
        """Return True if all events from some offsets on are there."""
        return all(
            offsets.get(topic, {}).get(part, 0) >= first
            for topic, part, first in by_partition(self.lost)
        )

    def require_replayable(self, entities: int) -> None:
        """Refuse entities that have to be replayed from before something that no event tells of."""
        if entities and self.lost:
            self._require_archived(entities)
            raise SourceDataGoneError(
                f"{count_text(entities, 'entity')} cannot be replayed, because {self.name} has no "
                f"savepoint that was taken after the first events that still exist "
                f"({text(self.lost)}) and before their late events",
                hint="merge only events that are newer than such a savepoint, or choose another "
                "--policy (see docs/merging.md)",
                query=self.name,
                entities=entities,
            )
        if entities and self.reach.is_promotion:
            raise IncompatibleError(
                f"{count_text(entities, 'entity')} would be replayed from before "
                f"{self.reach.ends_with}, and another program may have read these events",
                hint="merge with --across-promotions to replay them through the present program "
                "(see docs/merging.md), or merge only events that are newer",
                query=self.name,
                entities=entities,
            )
        if entities and self.reach.is_of_driver:
            raise IncompatibleError(
                f"{count_text(entities, 'entity')} would be replayed from before the first "
                f"savepoint that a driver took of {self.name}: it is unknown with what state it "
                f"began, and which program has read these events ({self.reach.ends_with})",
                hint="merge only events that are newer than that savepoint; or let a query of "
                "another name begin with all events: savepoints bootstrap NAME --until latest (see "
                "docs/how-to/state-from-a-batch.md)",
                query=self.name,
                entities=entities,
            )
        if entities and self.reach.ends_with:
            raise IncompatibleError(
                f"a replay of {count_text(entities, 'entity')} would lose a change to the state "
                f"that no event caused: {self.reach.ends_with}",
                hint="merge only events that are newer than that change, or correct the state "
                f"by hand: savepoints edit latest --query {self.name} --where CONDITION --set "
                "FIELD=VALUE --reason WHY",
                query=self.name,
                entities=entities,
            )
        if entities and any(map(avro.is_evolved, layout.read(self.checkpoint).values())):
            raise IncompatibleError(
                f"the state of {count_text(entities, 'entity')} cannot be replayed from the first "
                f"events: {self.name} has rows of several Avro schemas since its program was "
                "changed, and those of such a replay would be taken for rows of the oldest one",
                hint="merge only events that are newer than a savepoint taken since the change, "
                "or merge them as if they arrived now: --policy append",
                query=self.name,
                entities=entities,
            )

    def _require_archived(self, entities: int) -> None:
        """Refuse inputs of which nothing is archived: so no savepoint is known to be old enough."""
        for name in self.inputs.app.inputs:
            topic = self.inputs.topic(name)
            is_read = not is_before({topic: self.until.get(topic, {})}, self.beginning)
            if is_read and topic not in self.inputs.arrivals(name).end:
                raise SourceDataGoneError(
                    f"{count_text(entities, 'entity')} cannot be replayed from a savepoint, "
                    f"because nothing of {name} is archived: it is unknown which savepoints of "
                    f"{self.name} are older than the late events",
                    hint=f"name an archive for {name} in [queries.{self.name}.archives] in the "
                    f"settings, then: python -m savepoints.jobs.archive {self.name} {name} "
                    "--until latest",
                    query=self.name,
                    entities=entities,
                )


def raised(beginning: KafkaOffsets, ranges: Ranges) -> KafkaOffsets:
    """Return the first offset of each partition whose first events since some offsets are gone."""
    found: KafkaOffsets = {}
    for topic, part, offset in by_partition(beginning):
        there = ranges.get(topic, {}).get(part)
        if there is not None and there.earliest > offset:
            found.setdefault(topic, {})[part] = there.earliest
    return found


def text(offsets: KafkaOffsets) -> str:
    """Write offsets for people."""
    return ", ".join(
        f"{topic} partition {part} from {offset}" for topic, part, offset in by_partition(offsets)
    )
