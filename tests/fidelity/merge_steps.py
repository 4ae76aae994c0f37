"""One late batch on its way into a query, by the product's own means, but without Kafka and store.

Its events are told from known ones, their entities get their bases, the events after these are
replayed beside the query and what the query has read since after them, untouched entities are
compared, the state is spliced, and the outputs are corrected.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from savepoints.io import Location
from savepoints.operations.merge import splice_checkpoint
from savepoints.runtime import replay
from savepoints.runtime.replay import Replay, ReplayBatch
from savepoints.runtime.scratch_query import REPLAY_BATCH
from savepoints.sources.archive import archive
from savepoints.sources.archive import files as archive_files
from savepoints.sources.events import offset_ranges
from savepoints.sources.events.offset_ranges import End
from savepoints.sources.late import affected_entities
from savepoints.sources.late import batch as late_batch
from savepoints.state.merge import controls, splice
from savepoints.state.storage import canonical_table
from savepoints.state.storage.row_sources import CheckpointRows, SavedRows, TableRows
from tests.fidelity.merge_events import ARCHIVED
from tests.fidelity.merge_query import Moved, Query, as_json, content

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tests.fidelity.merge_oracle import Merge

Way = Literal["short", "faithful"]


@dataclass(frozen=True)
class Base:
    """A savepoint, or the empty state: what the product takes of it, and where its rows are.

    Attributes:
        file: The file that was read last.
        query: The query that was saved; None for the empty state.
        batch: The batch of that query.
        known: The same for `affected_entities`.
        canonical: Its rows are taken from a canonical table, and not from its files.
    """

    file: int
    query: Query | None
    batch: int
    known: affected_entities.BaseState
    canonical: bool


@dataclass
class LateBatch:
    """One late batch on its way into a query.

    Attributes:
        merge: What it belongs to.
        query: The query, which has read everything up to the cut.
        number: Of the late batch.
        way: How it is replayed.
    """

    merge: Merge
    query: Query
    number: int
    way: Way

    def __post_init__(self) -> None:
        self.spark, self.case = self.merge.live.session, self.merge.case
        self.cut = self.merge.cuts[self.number - 1]
        self.place = self.merge.place / f"{self.way}-{self.number}"
        self.watermarks = {**self.merge.live.watermarks(), **self.query.watermarks()}
        self.merge_ids = [f"m{one}" for one in range(1, self.number)]
        self._frames: dict[int, DataFrame] = {}

    def run(self) -> Query:
        planned, spliced = (
            self.query.batch_of(file, last=True) for file in (self.cut.planned, self.cut.spliced)
        )
        self.merge.planned_at.append(self.watermarks[planned][0])
        live = self.query.at(spliced)
        news, candidates, replayed = self._scope()
        running = Replay(self.spark, self.case.app, Location.of(str(self.place / "scratch")), live)
        first = min(candidates[row["base"]].batch for row in replayed.collect())
        low = self.watermarks[first][0] if first >= 0 else 0
        if seeds := self._seeds(replayed, candidates):
            moment = self.watermarks[max(first, 0)][1]
            running.seed(seeds, watermark_ms=low, timestamp_ms=moment)
        self._write(running, news, candidates, replayed, first, planned)
        if self.way == "short":
            running.run(ReplayBatch(low, low, self.watermarks[planned - 1][1]))
            self._run(running, [planned])
        else:
            self._run(running, range(first + 1, planned + 1))
        self._compare(running, planned, candidates, replayed)
        self._follow(running, planned, spliced, replayed)
        self._splice(running, live, replayed)
        rows = self._corrected(running, spliced, candidates, replayed.where("not control"))
        target = self.merge.live.place
        return Moved(self.merge.spark, self.case, target, self.merge.conf, rows, self.place)

    def _scope(self) -> tuple[list[DataFrame], list[Base], DataFrame]:
        """Return the late events by source, where entities can begin, and where they do."""
        merge = self.merge
        given = [one for one in merge.given if one.merge == self.number]
        if self.number > 1:  # A batch that overlaps with the one before.
            before = [one for one in merge.late if one.merge == self.number - 1]
            mine = {one.id for one in given}
            given += [one for one in before if one.id not in mine and not one.gone][::2]
        news = []
        for source in range(self.case.sources):
            rows = [
                {**one.archived("insert"), "merge_id": f"m{self.number}"}
                for one in given
                if one.source == source
            ]
            batch = self._frame(f"given-{source}", rows)
            seen = archive.corrected(self._history(source), self.merge_ids)
            news.append(late_batch.unknown(batch, seen).persist())
        candidates = self._candidates()
        known = [one.known for one in candidates]
        late_rows = news[0]
        merged = self._history(0).where("merge_id is not null")
        for source in range(1, self.case.sources):
            late_rows = late_rows.unionByName(news[source])
            merged = merged.unionByName(self._history(source).where("merge_id is not null"))
        touched = affected_entities.assigned(late_rows, merged, known)
        # Not every base is possible for entities that were merged before.
        others = {one.k for one in merge.late if one.merge <= self.number}
        controls = sorted({one.k for one in merge.in_time} - others)
        numbers = sorted({row["base"] for row in touched.select("base").distinct().collect()})
        base = f"element_at(array({', '.join(map(str, numbers))}), int(n % {len(numbers)}) + 1)"
        calm = self.spark.createDataFrame(list(enumerate(controls)), "n int, entity string")
        replayed = (
            touched.selectExpr("entity", "base", "false as control")
            .unionByName(calm.selectExpr("entity", f"{base} as base", "true as control"))
            .persist()
        )
        counted = replayed.where("not control").groupBy("base").count().collect()
        merge.bases = Counter({candidates[row["base"]].file: row["count"] for row in counted})
        return news, candidates, replayed

    def _candidates(self) -> list[Base]:
        found = []
        for at, file in enumerate(self.merge.saved):
            if file >= self.cut.planned:
                continue
            query = self.merge.live if file <= self.merge.cuts[0].spliced else self.query
            batch = query.batch_of(file)
            has = frozenset(self.merge_ids if query is not self.merge.live else ())
            base = affected_entities.BaseState(
                str(file), self._clock(file), self._offsets(query, batch), has
            )
            found.append(Base(file, query, batch, base, at % 2 == 1))
        by_id = {one.known.savepoint_id: one for one in found}
        empty = Base(-1, None, -1, affected_entities.BaseState(), canonical=False)
        ordered = affected_entities.thinned([one.known for one in found])
        return [by_id.get(one.savepoint_id, empty) for one in ordered]

    def _seeds(self, replayed: DataFrame, candidates: Sequence[Base]) -> list[replay.ReplayBase]:
        used = {row["base"] for row in replayed.select("base").distinct().collect()}
        seeds = []
        for number in sorted(used):
            one = candidates[number]
            if one.query is None:
                continue
            live = one.query.at(one.batch)
            rows: SavedRows = CheckpointRows.of(self.spark, live.checkpoint, live.files)
            if one.canonical:
                table = Location.of(str(self.place / f"base-{one.file}"))
                canonical_table.export(self.spark, live.checkpoint, live.files, table)
                rows = TableRows(self.spark, table)
            mine = replayed.where(f"base = {number}").select("entity")
            seeds.append(replay.ReplayBase(mine, rows, live.layout))
        return seeds

    def _write(
        self,
        running: Replay,
        news: Sequence[DataFrame],
        candidates: Sequence[Base],
        replayed: DataFrame,
        first: int,
        planned: int,
    ) -> None:
        """Write the events that are replayed: those after their bases, and the late ones."""
        ends = [
            End(self._offsets(self._run_of(one), one), self._clock(self._file(one)))
            for one in range(first + 1, planned + 1)
        ]
        if self.way == "short":
            before = planned - 1
            offsets = self._offsets(self._run_of(before), before)
            ends = [End(offsets, self._clock(self._file(before)))]
            ends.append(End(self._offsets(self.query, planned), None))
        known = [one.known for one in candidates]
        for source, name in enumerate(self.case.app.inputs):
            both = self._history(source).unionByName(news[source].select(*ARCHIVED.names))
            kept = archive.applied(both, [*self.merge_ids, f"m{self.number}"])
            chosen = affected_entities.after(
                kept, replayed.select("entity", "base"), dict(enumerate(known))
            )
            running.write({name: offset_ranges.numbered(chosen, ends)})

    def _run(self, running: Replay, batches: Sequence[int]) -> None:
        for one in batches:
            before = self.watermarks[one - 1][0] if one else 0
            running.run(ReplayBatch(before, *self.watermarks[one]))

    def _follow(self, running: Replay, planned: int, spliced: int, replayed: DataFrame) -> None:
        """Replay what the query has read since, batch by batch."""
        numbers = range(planned + 1, spliced + 1)
        ends = [End(self._offsets(self.query, one), None) for one in numbers]
        since, until = (self._offsets(self.query, one) for one in (planned, spliced))
        for source, name in enumerate(self.case.app.inputs):
            rows = self._arrived(source).where(offset_ranges.between(since, until))
            mine = rows.join(replayed.select("entity"), "entity", "left_semi")
            running.write({name: offset_ranges.numbered(mine, ends, first=running.batches_run + 1)})
        self._run(running, numbers)

    def _compare(
        self, running: Replay, planned: int, candidates: Sequence[Base], replayed: DataFrame
    ) -> None:
        live, state = self.query.at(planned), running.state()
        fields = self._fields(running, replayed)
        mine = replayed.where("control").select("entity")
        rows = CheckpointRows.of(self.spark, live.checkpoint, live.files)
        self.merge.controls = controls.compare_states(
            rows, state, running.operators, fields, mine, layout=live.layout
        )
        wrote = self._corrected(running, planned, candidates, replayed.where("control"))
        theirs = content(self.case, [row for one in sorted(wrote) for row in wrote[one]])
        known = self.query.rows(planned)
        self.merge.control_outputs = (theirs - known) + (known - theirs)

    def _fields(self, running: Replay, replayed: DataFrame) -> dict[int, str]:
        state, known = running.state(), replayed.select("entity")
        return splice.entity_fields(running.keys(state), state, running.operators, known)

    def _splice(self, running: Replay, live: replay.Live, replayed: DataFrame) -> None:
        target = Location.of(str(self.place / "checkpoint"))
        touched = replayed.where("not control").select("entity")
        fields = self._fields(running, replayed)
        scratch = Location.of(str(self.place / "touched"))
        state = running.state()
        splice_checkpoint.write(self.spark, target, live, state, fields, touched, scratch)
        target.copy_from(live.checkpoint, "metadata", "metadata")

    def _corrected(
        self, running: Replay, last: int, candidates: Sequence[Base], mine: DataFrame
    ) -> dict[int, list[str]]:
        """Return the rows of the batches up to one, of some entities after their base replayed.

        Args:
            running: The replay.
            last: The last of the batches.
            candidates: The bases.
            mine: The entities: entity, and base, its number.
        """
        rows = mine.select("entity", "base").collect()
        begins = {row["entity"]: candidates[row["base"]].batch for row in rows}
        kept: dict[int, list[str]] = {}
        for batch, found in self.query.batches.items():
            if batch <= last:
                whose = [(row, json.loads(row)[self.case.entity]) for row in found]
                kept[batch] = [row for row, k in whose if batch <= begins.get(k, batch)]
        for row in running.outputs().orderBy(REPLAY_BATCH).collect():
            values = row.asDict(recursive=True)
            values.pop(REPLAY_BATCH)
            if values[self.case.entity] in begins:
                kept.setdefault(last, []).append(as_json(values))
        return kept

    def _history(self, source: int) -> DataFrame:
        """Return what the query has seen at the plan: columns of the archive."""
        until = self._offsets(self.query, self.query.batch_of(self.cut.planned, last=True))
        arrived = self._arrived(source).where(offset_ranges.before(until))
        merged = [
            one.archived()
            for one in self.merge.late
            if 0 < one.merge < self.number and one.source == source
        ]
        return arrived.unionByName(self._frame(f"merged-{source}", merged))

    def _arrived(self, source: int) -> DataFrame:
        if source not in self._frames:
            rows = [one.archived() for one in self.merge.in_time if one.source == source]
            self._frames[source] = self._frame(f"arrived-{source}", rows)
        return self._frames[source]

    def _offsets(self, query: Query, batch: int) -> dict[str, dict[int, int]]:
        """Return the next offset of each topic after a batch."""
        files = query.offsets(batch)
        return {
            f"in{source}": {
                0: sum(one.source == source and one.batch < count for one in self.merge.in_time)
            }
            for source, count in enumerate(files)
        }

    def _clock(self, file: int) -> dt.datetime:
        return max(one.time for one in self.merge.in_time if one.batch <= file)

    def _run_of(self, batch: int) -> Query:
        """Return the query that has run a batch."""
        return self.merge.live if batch in self.merge.live.watermarks() else self.query

    def _file(self, batch: int) -> int:
        return self._run_of(batch).offsets(batch)[0] - 1

    def _frame(self, name: str, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
        path = self.place / f"{name}.parquet"
        self.place.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(list(rows), ARCHIVED), path)
        return self.spark.read.schema(archive_files.SCHEMA).parquet(str(path))
