"""What a late batch concerns: its new events, their entities, and where each is replayed from.

Nothing here changes anything; all of it can be found out while the query runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from savepoints.checkpoint import position
from savepoints.checkpoint.state import layout
from savepoints.errors import (
    IncompatibleError,
    LateBatchError,
    NotAlignedError,
)
from savepoints.io import Location
from savepoints.model import KafkaOffsets, lowest_offsets
from savepoints.operations.merge import bases as merge_bases
from savepoints.operations.merge import lineage
from savepoints.operations.merge.bases import Assigned, Used
from savepoints.operations.merge.lineage import GenerationHistory, Reach
from savepoints.runtime.inputs import Inputs
from savepoints.sources.archive import archive, sample_entities
from savepoints.sources.late import affected_entities, batch
from savepoints.sources.late.affected_entities import BaseState
from savepoints.store.root import Store
from savepoints.store.tables.merge_ledger import Merge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHOWN = 20
# Versions of a table by base (see `MergeScope.base_versions`) if all entities begin with nothing.
FROM_NOTHING: Mapping[str, int | None] = {"0": None}


@dataclass
class MergeScope:
    """What a late batch concerns.

    Attributes:
        until: Next-to-read offsets of the cut up to which events are looked at.
        name: The input that the batch is of.
        given: Its events: columns of `archive.SCHEMA`, with the merge's own id.
        place: An empty directory, where what is found out is kept until the merge is over.
    """

    spark: SparkSession
    store: Store
    inputs: Inputs
    query: str
    generation: int
    checkpoint: Location
    until: KafkaOffsets
    name: str
    given: DataFrame
    merge_id: str
    controls: int
    place: Location
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @cached_property
    def merges(self) -> list[Merge]:
        """The merges that the query's state has, the oldest first."""
        return self._lineage.in_effect(self.query, self.generation)

    @property
    def descent(self) -> tuple[str, ...]:
        """The generations from which the current one descends, as the ledger has them."""
        return self._lineage.ancestry(self.query, self.generation).names

    @property
    def merge_ids(self) -> list[str]:
        """Their ids."""
        return [one.id for one in self.merges]

    @property
    def reached(self) -> dict[str, KafkaOffsets]:
        """By merge, the offsets up to which records had been read then."""
        return {one.id: one.offsets for one in self.merges}

    def require_archived(self) -> None:
        """Check that the archives have the events of all these merges.

        Raises:
            NotFoundError: If one has not: a replay would silently take that merge back.
        """
        for one in self.merges:
            self.inputs.require_merged(one, self.query)

    @cached_property
    def beginning(self) -> KafkaOffsets:
        """Where the query began to read."""
        return lowest_offsets(position.read(self.checkpoint).initial.values())

    @cached_property
    def control_entities(self) -> DataFrame:
        """Entities that the batch does not touch, chosen by chance: `entity` string."""
        if not self.controls:
            return self.spark.createDataFrame([], "entity string")
        touched = self.given.select("entity").distinct()
        uri = self.inputs.archive(self.name)
        wanted = self.controls
        found = sample_entities.entities(
            self.spark, uri, count=wanted, without=touched, seed=self.merge_id
        )
        if len(found) < wanted:
            since = archive.end(uri) or self.beginning
            more = self._rows(self.name, None, since, self.until, self.merge_ids)
            others = sample_entities.among(more, wanted, touched, self.merge_id)
            found += [one for one in others if one not in found][: wanted - len(found)]
        return self.spark.createDataFrame([(one,) for one in found], "entity string")

    @cached_property
    def history(self) -> dict[str, DataFrame]:
        """All events of these entities by input: columns of `archive.SCHEMA`."""
        wanted = self._materialize(
            self.given.select("entity").unionByName(self.control_entities).distinct()
        )
        return {
            name: self._materialize(
                self._rows(name, wanted, self.beginning, self.until, self.merge_ids)
            )
            for name in self.inputs.app.inputs
        }

    @cached_property
    def known(self) -> DataFrame:
        """The events of these entities that the query has seen, of the batch's input."""
        return archive.corrected(self.history[self.name], self.merge_ids, self.reached)

    @cached_property
    def late(self) -> DataFrame:
        """The events of the batch that are not known already: columns of `archive.SCHEMA`."""
        news = batch.unknown(self.given, self.known)
        fresh = news.where("op = 'insert'")
        removed = news.where("op = 'remove'")
        # When it happened counts, and not when the one that replaces it did.
        times = self.known.groupBy("event_id", "entity").agg({"event_time": "min"})
        gone = (
            removed.drop("event_time")
            .join(times.withColumnRenamed("min(event_time)", "event_time"), ["event_id", "entity"])
            .select(*self.given.columns)
        )
        return self._materialize(fresh.select(*self.given.columns).unionByName(gone))

    def require_removable(self) -> None:
        """Refuse a batch that removes what is not there."""
        removed = self.given.where("op = 'remove'")
        unknown = removed.join(self.known, ["event_id", "entity"], "left_anti")
        found = [str(row["event_id"]) for row in unknown.select("event_id").collect()]
        if found:
            raise LateBatchError(
                f"the batch removes or replaces {len(found)} events that {self.query} has not "
                f"seen of these entities, such as {min(found)}",
                hint="correct the batch: leave them out, or give them with op insert; an event "
                "that goes to another entity is removed from the one and inserted for the other",
                query=self.query,
                events=found[:_SHOWN],
            )

    def arrived(
        self, since: KafkaOffsets, until: KafkaOffsets, *, of_all: bool = False
    ) -> dict[str, DataFrame]:
        """Read what has arrived of the replayed entities since the batch was looked at.

        Returns:
            By input: columns of `archive.SCHEMA`.

        Raises:
            NotAlignedError: If one of the late events has come by itself: it would count twice.
        """
        whose = None if of_all else self.replayed.select("entity")
        found = {
            name: self._materialize(self._rows(name, whose, since, until, ()))
            for name in self.inputs.app.inputs
        }
        self._refuse_late(found[self.name])
        return found

    def require_none_arrived(self, until: KafkaOffsets) -> None:
        """Refuse late events that have come by themselves since they were looked at.

        Raises:
            NotAlignedError: If one has: it would count twice.
        """
        whose = self.late.select("entity").distinct()
        self._refuse_late(self._rows(self.name, whose, self.until, until, ()))

    def _refuse_late(self, arrived: DataFrame) -> None:
        same = arrived.join(self.late, "event_id", "left_semi").select("event_id").first()
        if same is not None:
            raise NotAlignedError(
                f"the event {same['event_id']} of the batch has arrived in "
                f"{self.inputs.topic(self.name)} while the merge was under way, and would count "
                "twice",
                hint="nothing was changed; run the merge again, which leaves it out",
                query=self.query,
            )

    @cached_property
    def reach(self) -> Reach:
        """How far back the query's state can be told from its events."""
        return lineage.reach(self.store, self.query)

    @cached_property
    def candidates(self) -> list[BaseState]:
        """Where entities can begin, the newest first and the empty state last."""
        return merge_bases.candidates(
            self.store,
            self.query,
            self.inputs,
            layout.read(self.checkpoint),
            self._lineage,
            self.reach,
            self.beginning,
        )

    @cached_property
    def assigned(self) -> Assigned:
        """The entities with the numbers of their bases.

        Raises:
            IncompatibleError: If one would have to begin before something that no event tells of.
        """
        bases = self.candidates
        found = self._assigned(bases)
        if len(found.counts) > affected_entities.MOST_BASES:
            found = self._assigned(affected_entities.kept(found.counts, bases))
        self.require_replayable(found.counts.get(len(found.bases) - 1, 0))
        return found

    def _assigned(self, bases: list[BaseState]) -> Assigned:
        entities = self._materialize(affected_entities.assigned(self.late, self._merged, bases))
        rows = entities.groupBy("base").count().collect()
        counts = {int(row["base"]): int(row["count"]) for row in rows}
        return Assigned(entities, bases, dict(sorted(counts.items())))

    @property
    def touched(self) -> DataFrame:
        """The entities of the late events: `entity` string, `base` int."""
        return self.assigned.entities

    @property
    def from_nothing(self) -> DataFrame:
        """The entities of the late events, for what no base is needed: as `touched`."""
        return self.late.selectExpr("entity", "0 as base").distinct()

    @cached_property
    def used(self) -> dict[int, Used]:
        """The bases that are used, by their number."""
        found = {}
        for number, count in self.assigned.counts.items():
            base = self.assigned.bases[number]
            name = base.savepoint_id
            found[number] = Used(
                base, None if name is None else self.store.catalog.find(name), count
            )
        return found

    @cached_property
    def replayed(self) -> DataFrame:
        """All entities that are replayed: `entity` string, `base` int, `control` boolean.

        The controls are spread over the bases, since each may be wrong in its own way. Those with
        events of earlier merges are left out: not every base is possible for them.
        """
        numbers = ", ".join(map(str, self.used))
        base = f"element_at(array({numbers}), int(pmod(hash(entity), {len(self.used)})) + 1)"
        controls = self.control_entities
        for frame in self.history.values():
            controls = controls.join(
                frame.where("merge_id is not null").select("entity"), "entity", "left_anti"
            )
        return self._materialize(
            self.touched.selectExpr("entity", "base", "false as control").unionByName(
                controls.selectExpr("entity", f"{base} as base", "true as control")
            )
        )

    @cached_property
    def pending(self) -> dict[str, DataFrame]:
        """What the bases have not seen of the events looked at and of the late ones, by input.

        Columns of `archive.SCHEMA`, without what the late ones take away.
        """
        entities = self.replayed.select("entity", "base")
        bases = {number: one.base for number, one in self.used.items()}
        return {
            name: self._materialize(affected_entities.after(kept, entities, bases))
            for name, kept in self.with_late(self.history).items()
        }

    def with_late(self, rows: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        """Return events with the late ones, corrected.

        Args:
            rows: By input: columns of `archive.SCHEMA`.
        """
        merges = [*self.merge_ids, self.merge_id]
        found = {}
        for name, frame in rows.items():
            both = frame.unionByName(self.late) if name == self.name else frame
            found[name] = archive.applied(both, merges, self.reached)
        return found

    def everything(self, until: KafkaOffsets) -> dict[str, DataFrame]:
        """Return all events of all entities before some offsets: columns of `archive.SCHEMA`."""
        return {
            name: self._rows(name, None, self.beginning, until, self.merge_ids)
            for name in self.inputs.app.inputs
        }

    def require_replayable(self, entities: int) -> None:
        """Refuse entities that have to be replayed from before something that no event tells of.

        Raises:
            IncompatibleError: If there are such.
        """
        if entities and self.reach.ends_with:
            raise IncompatibleError(
                f"{entities} of the entities would have to be replayed from before what no event "
                f"tells of: {self.reach.ends_with}",
                hint="merge what is newer than that alone, or correct their state by hand: "
                f"savepoints edit latest --query {self.query}",
                query=self.query,
                entities=entities,
            )

    def base_versions(self, output: str) -> dict[str, int | None]:
        """Return the version of a table at each base; None where entities begin with nothing."""
        pinned = {str(number): one.pinned(output) for number, one in self.used.items()}
        return {number: None if one is None else one.version for number, one in pinned.items()}

    def entity_of(self, output: str) -> str:
        """Return the column of an output with the entity that a row is about."""
        app = self.inputs.app
        return app.outputs[output].entity_key or app.inputs[self.name].entity_key

    @property
    def _merged(self) -> DataFrame:
        """Events of earlier merges of these entities, of all inputs."""
        frames = [
            one.where("merge_id is not null").select("entity", "event_time", "merge_id")
            for one in self.history.values()
        ]
        found = frames[0]
        for more in frames[1:]:
            found = found.unionByName(more)
        return found

    def _rows(
        self,
        name: str,
        entities: DataFrame | None,
        since: KafkaOffsets,
        until: KafkaOffsets,
        merges: Sequence[str],
    ) -> DataFrame:
        return self.inputs.rows(
            self.spark, name, since=since, until=until, entities=entities, merges=merges
        )

    def _materialize(self, frame: DataFrame) -> DataFrame:
        """Return rows from files, with which a plan begins anew.

        What Spark only keeps in memory it still plans from its very beginning, in each query and
        each step of one: half of a merge's time where events are few.
        """
        place = (self.place / str(next(self._numbers))).uri.hadoop
        frame.write.parquet(place)
        return self.spark.read.schema(frame.schema).parquet(place)

    @cached_property
    def _lineage(self) -> GenerationHistory:
        return GenerationHistory.of(self.store)
