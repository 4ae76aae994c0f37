"""What a late batch concerns: its new events, their entities, and where each is replayed from.

Nothing here changes anything; all of it can be found out while the query runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from savepoints.app import App
from savepoints.checkpoint import state_layout
from savepoints.config import QuerySettings, Settings
from savepoints.errors import LateBatchError, NotAlignedError, UsageError
from savepoints.io import Location
from savepoints.model import KafkaOffsets, OutputVersion, Savepoint, lowest_offsets
from savepoints.operations import goal
from savepoints.outputs.readable import unreadable_files
from savepoints.sources import affected, archive, arrivals, hybrid, late, sample, slices
from savepoints.sources.affected import Base
from savepoints.sources.arrivals import Arrivals
from savepoints.sources.events import Decoding
from savepoints.store import ledger, manifest
from savepoints.store.ledger import Merge
from savepoints.store.root import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHOWN = 20


@dataclass(frozen=True)
class Sources:
    """The inputs of a query, and where their events are.

    Attributes:
        app: The application.
        bound: What it is bound to.
        settings: Where Kafka is.
    """

    app: App
    bound: QuerySettings
    settings: Settings

    def topic(self, name: str) -> str:
        """Return the topic of an input."""
        return self.bound.topics.get(name, self.app.inputs[name].topic)

    def archive(self, name: str) -> str:
        """Return the archive of an input.

        Raises:
            UsageError: If the settings name none.
        """
        found = self.bound.archives.get(name)
        if found is None:
            raise UsageError(
                f"the input {name} of {self.app.name} has no archive, where what is merged is kept "
                "for later replays",
                hint=f'name a table for it: [queries.{self.app.name}.archives] {name} = "s3://…"; '
                "as long as Kafka has all events, it may be empty",
                query=self.app.name,
                input=name,
            )
        return found

    def decoding(self, name: str) -> Decoding:
        """Return how an input reads records."""
        one = self.app.inputs[name]
        return Decoding(one.decode, one.entity_key, one.event_time, one.event_id)

    def rows(
        self,
        spark: SparkSession,
        name: str,
        *,
        since: KafkaOffsets | None,
        until: KafkaOffsets,
        entities: DataFrame | None,
        merges: Sequence[str],
    ) -> DataFrame:
        """Read events of an input; see `hybrid.rows`."""
        return hybrid.rows(
            spark,
            self.decoding(name),
            topic=self.topic(name),
            archive=self.archive(name),
            kafka=self.settings.kafka,
            since=since,
            until=until,
            entities=entities,
            merges=merges,
        )

    def clock(self, spark: SparkSession, name: str, until: KafkaOffsets) -> datetime | None:
        """Return the time of the newest event of an input before some offsets; it is exact."""
        known = arrivals.load(self.archive(name))
        mine = {self.topic(name): until.get(self.topic(name), {})}
        whole = known.whole(mine)
        rest = self.rows(spark, name, since=whole, until=mine, entities=None, merges=())
        found = [known.clock(whole), slices.newest([rest])]
        return max((one for one in found if one is not None), default=None)

    def input(self, name: str | None) -> str:
        """Return the input that is meant; an application that has one alone means that.

        Raises:
            UsageError: If it is open, or there is none of that name.
        """
        known = list(self.app.inputs)
        if name is None and len(known) == 1:
            return known[0]
        if name in known:
            return str(name)
        raise UsageError(
            f"{self.app.name} has no input {name}"
            if name
            else f"{self.app.name} has {len(known)} inputs, and which one the batch is of is open",
            hint=f"say one of: --input {', --input '.join(known)}",
            query=self.app.name,
        )


@dataclass(frozen=True)
class Used:
    """A base that entities are replayed from.

    Attributes:
        base: Where they begin.
        savepoint: Its savepoint, None for the empty state.
        entities: How many entities begin there.
    """

    base: Base
    savepoint: Savepoint | None
    entities: int

    def pinned(self, output: str) -> OutputVersion | None:
        """Return the version of an output there; None where entities begin with nothing."""
        outputs = self.savepoint.outputs if self.savepoint else ()
        return next((one for one in outputs if one.name == output), None)


@dataclass
class Scope:
    """What a late batch concerns.

    Attributes:
        spark: A session.
        store: Where the savepoints are.
        sources: The query's inputs.
        query: Name of the query.
        generation: Number of its current generation.
        checkpoint: The generation's checkpoint.
        until: Next-to-read offsets of the cut up to which events are looked at.
        name: The input that the batch is of.
        given: Its events: columns of `archive.SCHEMA`, with the merge's own id.
        merge_id: That id.
        controls: How many control entities are wanted.
    """

    spark: SparkSession
    store: Store
    sources: Sources
    query: str
    generation: int
    checkpoint: Location
    until: KafkaOffsets
    name: str
    given: DataFrame
    merge_id: str
    controls: int
    _kept: list[DataFrame] = field(default_factory=list)

    @cached_property
    def merges(self) -> list[Merge]:
        """The merges that the query's state has, the oldest first."""
        known = ledger.Ledger(self.store.root)
        return known.in_effect(self._ancestry(self.generation))

    @property
    def descent(self) -> tuple[str, ...]:
        """The generations from which the current one descends, as the ledger has them."""
        return tuple(self._ancestry(self.generation).names)

    @property
    def merge_ids(self) -> list[str]:
        """Their ids."""
        return [one.id for one in self.merges]

    @cached_property
    def control_entities(self) -> DataFrame:
        """Entities that the batch does not touch, chosen by chance: `entity` string."""
        touched = self.given.select("entity").distinct()
        uri = self.sources.archive(self.name)
        found = sample.entities(
            self.spark, uri, count=self.controls, without=touched, seed=self.merge_id
        )
        if len(found) < self.controls:
            rest = hybrid.seam(archive.end(uri), self._mine, None).kafka_from
            more = self._rows(self.name, None, since=rest and archive.end(uri))
            found += [
                one
                for one in sample.among(more, self.controls, touched, self.merge_id)
                if one not in found
            ][: self.controls - len(found)]
        return self.spark.createDataFrame([(one,) for one in found], "entity string")

    @cached_property
    def history(self) -> dict[str, DataFrame]:
        """All events of these entities by input: columns of `archive.SCHEMA`."""
        wanted = self._keep(
            self.given.select("entity").unionByName(self.control_entities).distinct()
        )
        return {name: self._keep(self._rows(name, wanted)) for name in self.sources.app.inputs}

    @cached_property
    def late(self) -> DataFrame:
        """The events of the batch that are not known already: columns of `archive.SCHEMA`."""
        known = archive.corrected(self.history[self.name], self.merge_ids)
        news = late.unknown(self.given, known)
        fresh = news.where("op = 'insert'")
        removed = news.where("op = 'remove'")
        # When it happened counts, and not when the one that replaces it did.
        times = known.groupBy("event_id").agg({"event_time": "min"})
        gone = (
            removed.drop("event_time")
            .join(times.withColumnRenamed("min(event_time)", "event_time"), "event_id")
            .select(*self.given.columns)
        )
        return self._keep(fresh.select(*self.given.columns).unionByName(gone))

    def require_removable(self) -> None:
        """Refuse a batch that removes what is not there.

        Raises:
            LateBatchError: Names the first of these events.
        """
        known = archive.corrected(self.history[self.name], self.merge_ids).select("event_id")
        strange = self.given.where("op = 'remove'").join(known, "event_id", "left_anti")
        found = [str(row["event_id"]) for row in strange.select("event_id").collect()]
        if found:
            raise LateBatchError(
                f"the batch removes or replaces {len(found)} events that {self.query} has not "
                f"seen of these entities, such as {min(found)}",
                hint="correct the batch: leave them out, or give them with op insert; an event "
                "that goes to another entity is removed from the one and inserted for the other",
                query=self.query,
                events=found[:_SHOWN],
            )

    @cached_property
    def bases(self) -> list[Base]:
        """Where entities can begin, the newest first."""
        known = {
            name: arrivals.load(self.sources.archive(name)) for name in self.sources.app.inputs
        }
        layout = state_layout.read(self.checkpoint)
        found = []
        for one in goal.history(self.store, self.query):
            offsets = lowest_offsets(one.cut.offsets)
            clock = _clock(tuple(known.values()), offsets)
            if clock is None or not self._is_usable(one, layout):
                continue
            has = ledger.Ledger(self.store.root).in_effect(self._ancestry(one.generation))
            found.append(Base(one.id, clock, offsets, frozenset(each.id for each in has)))
        return affected.thinned(found)

    @cached_property
    def touched(self) -> DataFrame:
        """The entities of the late events: `entity` string, `base` int of `bases`."""
        merged = self.history[self.name].where("merge_id is not null")
        found = self._keep(affected.assigned(self.late, merged, self.bases))
        counts = {
            int(row["base"]): int(row["count"]) for row in found.groupBy("base").count().collect()
        }
        instead = affected.reduced(counts)
        changed = [
            f"when base = {one} then {other}" for one, other in instead.items() if one != other
        ]
        if not changed:
            return found
        return self._keep(
            found.selectExpr("entity", f"case {' '.join(changed)} else base end as base")
        )

    @cached_property
    def used(self) -> dict[int, Used]:
        """The bases that are used, by their index."""
        counted = self.touched.groupBy("base").count().collect()
        counts = {int(row["base"]): int(row["count"]) for row in counted}
        return {
            one: Used(
                self.bases[one],
                None
                if (name := self.bases[one].savepoint_id) is None
                else self.store.catalog.find(name),
                count,
            )
            for one, count in sorted(counts.items())
        }

    @cached_property
    def replayed(self) -> DataFrame:
        """All entities that are replayed: `entity` string, `base` int, `control` boolean.

        Controls begin where most of the others do.
        """
        most = max(self.used, key=lambda one: self.used[one].entities)
        return self._keep(
            self.touched.selectExpr("entity", "base", "false as control").unionByName(
                self.control_entities.selectExpr("entity", f"{most} as base", "true as control")
            )
        )

    def events(self, rows: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        """Return what the bases have not seen of events, with the late ones, corrected.

        Args:
            rows: By input: columns of `archive.SCHEMA`.
        """
        found = {}
        for name, frame in rows.items():
            both = frame.unionByName(self.late) if name == self.name else frame
            kept = archive.applied(both, [*self.merge_ids, self.merge_id])
            entities = self.replayed.select("entity", "base")
            found[name] = affected.after(kept, entities, self.bases)
        return found

    def versioned(self, entities: DataFrame, output: str) -> DataFrame:
        """Return entities with the version of a table at their base.

        Args:
            entities: `entity` string and `base` int.
            output: The output.

        Returns:
            `entity` string and `version` bigint, null for those that begin with nothing.
        """
        cases = " ".join(
            f"when base = {base} then {version}"
            for base, version in self.base_versions(output).items()
            if version is not None
        )
        version = f"case {cases} end" if cases else "null"
        return entities.selectExpr("entity", f"cast({version} as bigint) as version")

    def base_versions(self, output: str) -> dict[int, int | None]:
        """Return the version of a table at each base; None where entities begin with nothing."""
        pinned = {number: one.pinned(output) for number, one in self.used.items()}
        return {number: None if one is None else one.version for number, one in pinned.items()}

    def entity_of(self, output: str) -> str:
        """Return the column of an output with the entity that a row is about."""
        app = self.sources.app
        return app.outputs[output].entity_key or app.inputs[self.name].entity_key

    def release(self) -> None:
        """Let go of what is kept in memory."""
        for one in self._kept:
            one.unpersist()

    @property
    def _mine(self) -> KafkaOffsets:
        topic = self.sources.topic(self.name)
        return {topic: self.until.get(topic, {})}

    def _rows(
        self, name: str, entities: DataFrame | None, *, since: KafkaOffsets | None = None
    ) -> DataFrame:
        topic = self.sources.topic(name)
        return self.sources.rows(
            self.spark,
            name,
            since=since,
            until={topic: self.until.get(topic, {})},
            entities=entities,
            merges=self.merge_ids,
        )

    def _keep(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist()
        self._kept.append(kept)
        return kept

    def _ancestry(self, generation: int) -> ledger.Ancestry:
        return ledger.ancestry(
            self.query,
            generation,
            self.store.generations.all(),
            self.store.catalog.all(),
            ledger.Ledger(self.store.root).all(),
        )

    def _is_usable(self, savepoint: Savepoint, layout: state_layout.Layout) -> bool:
        """Say whether a savepoint has the program's state layout, and its outputs are there."""
        small = self.store.root / manifest.directory(savepoint.id) / "checkpoint"
        if state_layout.read(small) != layout:
            return False
        try:
            return not any(unreadable_files(one) for one in savepoint.outputs)
        except NotAlignedError:
            return False


def _clock(known: Sequence[Arrivals], offsets: KafkaOffsets) -> datetime | None:
    """Return a time that nothing before some offsets is later than; None if it is not known."""
    found = []
    for one in known:
        mine = {topic: parts for topic, parts in offsets.items() if topic in one.end}
        try:
            found.append(one.clock(mine))
        except NotAlignedError:
            return None
    times = [one for one in found if one is not None]
    return max(times) if times and len(times) == len(found) else None
