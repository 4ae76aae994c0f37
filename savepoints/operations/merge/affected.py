"""What of a late batch is new to the query, and all events of the entities that it touches.

Nothing here changes the query; all of it can be found out while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.errors import LateBatchError, NotAlignedError
from savepoints.operations.merge.live_query import LiveQuery
from savepoints.operations.merge.workspace import Workspace
from savepoints.sources.archive import archive, sample_entities
from savepoints.sources.events.events import without_records
from savepoints.sources.late import batch as late_batch
from savepoints.sources.late.batch import KnownOtherwise, LateBatch
from savepoints.texts import count_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHOWN = 20


@dataclass(frozen=True)
class Affected:
    """The new events of a late batch and the entities that they touch.

    Attributes:
        work: Where they are kept.
        merge_id: The merge's own id, which its events have in the archive.
        late: The events that the query has not seen: columns of `archive.SCHEMA`.
        rows: How many they are; one that is removed and inserted counts once.
        otherwise: Those of the batch that the query has seen with other content; not merged.
        controls: Entities that the batch does not touch, drawn at random: `entity` string.
        history: By input, all events of both that the query has seen: columns of `archive.SCHEMA`.
    """

    work: Workspace
    live: LiveQuery
    input: str
    merge_id: str
    late: DataFrame
    rows: int
    otherwise: KnownOtherwise
    controls: DataFrame
    history: Mapping[str, DataFrame]

    @property
    def spark(self) -> SparkSession:
        """The session of the merge."""
        return self.work.spark

    def entity_of(self, output: str) -> str:
        """Return the column of an output with the entity that a row is about."""
        app = self.live.inputs.app
        return app.outputs[output].entity_key or app.inputs[self.input].entity_key

    def with_late(self, rows: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        """Return events with the late ones, corrected; by input, columns of `archive.SCHEMA`."""
        merges = [*self.live.merge_ids, self.merge_id]
        found = {}
        for name, frame in rows.items():
            both = frame.unionByName(self.late) if name == self.input else frame
            found[name] = archive.applied(both, merges, self.live.merged_at)
        return found

    def refuse_arrived(self, until: KafkaOffsets) -> None:
        """Refuse late events that have come by themselves meanwhile: they would count twice."""
        self.refuse_among(
            self.live.events(
                self.spark,
                self.input,
                since=self.live.until,
                until=until,
                entities=self.late.select("entity").distinct(),
                of=without_records,
            )
        )

    def refuse_among(self, arrived: DataFrame) -> None:
        """Refuse late events that are among some that have arrived; see `refuse_arrived`."""
        same = arrived.join(self.late, "event_id", "left_semi").select("event_id").first()
        if same is not None:
            raise NotAlignedError(
                f"the event {same['event_id']} of the batch also arrived in topic "
                f"{self.live.inputs.topic(self.input)} during the merge and would be counted "
                "twice; nothing was changed",
                hint="run the merge again: it will skip this event",
                query=self.live.name,
            )


def find(
    work: Workspace,
    live: LiveQuery,
    name: str,
    given: DataFrame,
    *,
    batch: LateBatch,
    merge_id: str,
    controls: int,
) -> Affected:
    """Compare a late batch with the events that the query has seen.

    Args:
        given: Its events: columns of `archive.SCHEMA`, with the merge's own id.
        batch: What was found out about it.
    """
    spark = work.spark
    chosen = _controls(spark, live, name, given, controls, merge_id)
    both = given.select("entity").unionByName(chosen).distinct()
    wanted = work.keep(both, "affected/entities")
    history = {
        each: work.keep(
            live.events(
                spark,
                each,
                since=live.beginning,
                until=live.until,
                entities=wanted,
                merges=live.merge_ids,
            ),
            f"affected/history/{each}",
        )
        for each in live.inputs.app.inputs
    }
    known = archive.corrected(history[name], live.merge_ids, live.merged_at)
    if batch.removed:
        _require_removable(live, given, known)
        news = _news_and_removed(given, known)
    else:
        news = late_batch.unknown(given, known)
    late = work.keep(news, "affected/late")
    rows = late.select("event_id", "entity").distinct().count()
    otherwise = KnownOtherwise()
    if rows < batch.rows:
        decoding = live.inputs.decoding(name)
        otherwise = late_batch.known_otherwise(given, known, decoding)
        _refuse_moved(live, otherwise)
    return Affected(work, live, name, merge_id, late, rows, otherwise, chosen, history)


def _controls(
    spark: SparkSession, live: LiveQuery, name: str, given: DataFrame, count: int, seed: str
) -> DataFrame:
    """Draw entities that the batch does not touch: `entity` string."""
    if not count:
        return spark.createDataFrame([], "entity string")
    touched = given.select("entity").distinct()
    uri = live.inputs.archive(name)
    found = sample_entities.entities(spark, uri, count=count, without=touched, seed=seed)
    if len(found) < count:
        since = after_archive(archive.end(uri), live.beginning)
        more = live.events(
            spark, name, since=since, until=live.until, merges=live.merge_ids, of=without_records
        )
        others = sample_entities.among(more, count, touched, seed)
        found += [one for one in others if one not in found][: count - len(found)]
    return spark.createDataFrame([(one,) for one in found], "entity string")


def after_archive(archived: KafkaOffsets, beginning: KafkaOffsets) -> KafkaOffsets:
    """Return where a query's events begin that are not archived.

    Args:
        archived: The end of the archive; of a partition that was added it may have nothing.
        beginning: Where the query's events begin.
    """
    return {
        topic: {
            part: max(first, archived.get(topic, {}).get(part, first))
            for part, first in parts.items()
        }
        for topic, parts in beginning.items()
    }


def _refuse_moved(live: LiveQuery, otherwise: KnownOtherwise) -> None:
    """Refuse an event that the query has seen of another entity: it is no new one, nor this one."""
    if otherwise.moved is not None:
        raise LateBatchError(
            f"{live.name} has seen the event {otherwise.moved} of the late batch under another "
            "entity than the batch has it",
            hint="to move it, remove it from the old entity (op remove) in a batch of its own and "
            "then insert it for the new one; if ids are unique only within an entity, add the "
            "entity's column to event_id of the application's Input(…), and archive the topic "
            "again at another URI",
            query=live.name,
            events=[otherwise.moved],
        )


def _news_and_removed(given: DataFrame, known: DataFrame) -> DataFrame:
    """Return the events of a batch that are not known, and those that it removes."""
    news = late_batch.unknown(given, known)
    fresh = news.where("op = 'insert'")
    # When it happened counts, and not when the one that replaces it did.
    times = known.groupBy("event_id", "entity").agg({"event_time": "min"})
    gone = (
        news.where("op = 'remove'")
        .drop("event_time")
        .join(times.withColumnRenamed("min(event_time)", "event_time"), ["event_id", "entity"])
        .select(*given.columns)
    )
    return fresh.select(*given.columns).unionByName(gone)


def _require_removable(live: LiveQuery, given: DataFrame, known: DataFrame) -> None:
    removed = given.where("op = 'remove'")
    unknown = removed.join(known, ["event_id", "entity"], "left_anti")
    found = [str(row["event_id"]) for row in unknown.select("event_id").collect()]
    if found:
        raise LateBatchError(
            f"the late batch removes or replaces {count_text(len(found), 'event')} that "
            f"{live.name} has never seen under the entity named in the batch, for example "
            f"event {min(found)}",
            hint="leave these events out of the batch, or change their op to insert; to move an "
            "event to another entity, use op remove with the old entity, and then, in a second "
            "batch, op insert with the new one",
            query=live.name,
            events=found[:_SHOWN],
        )
