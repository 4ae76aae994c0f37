"""The replay of a merge: beside the running query up to where it stands, then after it.

Short: everything up to the batch before a cut is one slice, with the watermark of the base, so that
nothing is dropped or evicted; the batch of the cut is another, with the watermarks that the live
query had then.

Faithful: each batch of the live query since the oldest base is a slice, with the watermarks and the
processing time that it had. Late events are in the first batch by whose end something newer had
come: there they would have been, in the order of event time. No batch is left out or put together
with the next one, though none of the entities has an event in it: it may evict and emit, and timers
may fire.

Of all entities: every event there is and the late ones are one slice, without a watermark, and the
watermark of the cut comes in a second one without events, so that nothing is dropped.

From the cut on each batch of the live query is a slice of its own, either way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, lowest_offsets
from savepoints.checkpoint.state import layout
from savepoints.checkpoint.state.layout import Layout
from savepoints.io import Location, in_parallel
from savepoints.model import Savepoint
from savepoints.operations.merge import assignment as assigned
from savepoints.operations.merge import source_ends
from savepoints.operations.merge.assignment import Used
from savepoints.operations.merge.replay.shadow_replay import ShadowReplay
from savepoints.operations.savepoint import export, restore
from savepoints.runtime.replay import PARTITIONS, ReplayBase, ReplayBatch
from savepoints.sources.events import offset_ranges
from savepoints.sources.events.offset_ranges import End
from savepoints.store import scratch
from savepoints.store.batch_log import Batch
from savepoints.store.savepoint import canonical
from savepoints.texts import count_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from savepoints.state.storage.row_sources import SavedRows


@dataclass
class MergeReplay(ShadowReplay):
    """A replay of what a late batch concerns, or of everything.

    `way` is None if all entities are replayed.

    Attributes:
        events: The events up to the cut that are replayed, by input: columns of `archive.SCHEMA`.
    """

    policy_without_strategy = "replay-all"

    proof: Savepoint
    # The batch after which the fields of the entities were found, and they.
    _proved: tuple[int, dict[int, str]] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Read what has arrived meanwhile; a late event among it would count twice."""
        super().__post_init__()
        assignment, until = self.assignment, lowest_offsets(self.files.cut.offsets)
        affected, live = assignment.affected, assignment.live
        self.events: Mapping[str, DataFrame] = assignment.pending
        if until == live.until:
            return
        if self.strategy is None:
            affected.refuse_arrived(until)
            self.events = affected.with_late(live.all_events(assignment.spark, until))
        else:
            more = self._arrived(live.until, until, self.files.cut.batch_id)
            self.events = {
                name: frame.unionByName(more[name]) for name, frame in self.events.items()
            }

    def run(self, batches: Mapping[int, Batch]) -> None:
        """Replay everything up to the cut.

        Args:
            batches: Those of the live query, by number; the faithful way needs all of them from
                `Assignment.first_batch` to the cut.
        """
        if self.strategy is None:
            self._run_all()
        elif self.strategy == "short":
            self._run_short()
        else:
            self._run_each([batches[one] for one in sorted(batches)])
        self.batch = self.files.cut.batch_id

    def _run_all(self) -> None:
        last = self._logged(self.cut, self.files.cut.batch_id)
        ends = [End(lowest_offsets(last.offsets), None)]
        self.progress("replaying all events")
        self._write(dict.fromkeys(self.events, ends))
        self.replay.run(ReplayBatch(0, 0, last.timestamp_ms))
        self.replay.run(ReplayBatch(0, last.watermark_ms, last.timestamp_ms))

    def _run_short(self) -> None:
        batch = self.files.cut.batch_id
        last = self._logged(self.cut, batch)
        before = self._logged(self.cut, batch - 1) if batch > 0 else None
        ends = [End(lowest_offsets(last.offsets), None)]
        low = self._seed(last)
        if before is not None:
            offsets = lowest_offsets(before.offsets)
            ends.insert(0, End(offsets, self._clock(offsets) or offset_ranges.NEVER))
        self._write(dict.fromkeys(self.events, ends))
        if before is not None:
            self.progress(f"replaying all events up to batch {batch - 1}")
            self.replay.run(ReplayBatch(low, low, before.timestamp_ms))
        self.progress(f"replaying batch {batch}")
        late = before.watermark_ms if before is not None else 0
        self.replay.run(ReplayBatch(late, last.watermark_ms, last.timestamp_ms))

    def _run_each(self, batches: Sequence[Batch]) -> None:
        """Replay each batch from the one after the oldest base on."""
        used = self.assignment.used.values()
        bases = [one.savepoint.cut for one in used if one.savepoint is not None]
        oldest = min(bases, key=lambda one: one.batch_id) if len(bases) == len(used) else None
        begin = None if oldest is None else lowest_offsets(oldest.offsets)
        late = self._seed(batches[0])
        judged = [*zip(batches, [late, *(one.watermark_ms for one in batches[:-1])], strict=True)]
        source_ends.require_even(self.assignment.live.name, judged)
        positions = [lowest_offsets(one.offsets) for one in batches]
        self._write({name: self._ends(name, begin, positions) for name in self.events})
        for number, (one, late) in enumerate(judged, 1):
            self.progress(f"replaying batch {one.batch_id} ({number} of {len(batches)})")
            self.replay.run(ReplayBatch(late, one.watermark_ms, one.timestamp_ms))

    def follow(self, checkpoint: Location, newest: int) -> None:
        """Replay the batches that the live query has run since; see `ShadowReplay`."""
        if newest <= self.batch:
            return
        self.progress(f"replaying batches {self.batch + 1} to {newest}")
        ran = [self._logged(checkpoint, one) for one in range(self.batch, newest + 1)]
        source_ends.require_even(
            self.assignment.live.name, [(one, before.watermark_ms) for before, one in pairwise(ran)]
        )
        positions = [lowest_offsets(one.offsets) for one in ran]
        rows = self._arrived(positions[0], positions[-1], newest)
        first = self.replay.batches_run + 1
        self.replay.write(
            {
                name: offset_ranges.numbered(
                    frame, [End(one, None) for one in positions[1:]], first=first
                )
                for name, frame in rows.items()
            }
        )
        for before, one in pairwise(ran):
            self.replay.run(ReplayBatch(before.watermark_ms, one.watermark_ms, one.timestamp_ms))
        self.batch = newest

    def fields(self) -> dict[int, str]:
        """Return the fields of the entities, nothing for all of them; see `ShadowReplay`.

        Found once for each batch up to which was replayed: the query is paused in the end.
        """
        if self.strategy is None:
            return {}
        if self._proved is None or self._proved[0] != self.batch:
            self._proved = self.batch, self._fields()
        return self._proved[1]

    def _fields(self) -> dict[int, str]:
        from savepoints.state.merge import splice

        saved = self.state()
        return splice.entity_fields(
            self.replay.keys(saved),
            saved,
            self.replay.operators,
            self.assignment.replayed.select("entity"),
        )

    def _arrived(
        self, since: KafkaOffsets, until: KafkaOffsets, batch: int
    ) -> dict[str, DataFrame]:
        """Keep what the query has read of the replayed entities, up to a batch of it."""
        return assigned.keep_arrived(
            self.assignment,
            since,
            until,
            f"{self.name}/arrived/{batch}",
            of_all=self.strategy is None,
        )

    def _clock(self, until: KafkaOffsets) -> datetime | None:
        affected = self.assignment.affected
        return affected.live.clock(affected.spark, affected.input, until)

    def _ends(
        self, name: str, begin: KafkaOffsets | None, positions: Sequence[KafkaOffsets]
    ) -> list[End]:
        """Return where each batch ends for an input, by its offsets and by its clock."""
        merged = self.events[name].where("merge_id is not null")
        newest = offset_ranges.newest([merged])
        if newest is None:
            return [End(one, None) for one in positions]
        live, spark = self.assignment.live, self.assignment.spark
        clocks = live.inputs.clocks(spark, name, begin, positions, newest, since=live.beginning)
        both = [*map(End, positions, clocks)]
        return [*both[:-1], End(positions[-1], None)]

    @property
    def _partitions(self) -> int:
        """Those of the query for a replay of all entities, whose state is its whole state then."""
        return PARTITIONS if self.strategy else self.files.cut.partitions or PARTITIONS

    def _write(self, ends: Mapping[str, Sequence[End]]) -> None:
        self.replay.write(
            {name: offset_ranges.numbered(one, ends[name]) for name, one in self.events.items()}
        )

    def _seed(self, last: Batch) -> int:
        """Give the entities the state of their bases; return the lowest watermark of these."""
        used = self.assignment.used
        watermarks = [0 if one.savepoint is None else self._watermark(one) for one in used.values()]
        low = min(watermarks, default=0)
        seeds = [
            self._base(number, one) for number, one in used.items() if one.savepoint is not None
        ]
        if seeds and self.replay.operators:
            entities = self.assignment.entities
            self.progress(
                f"copying the state of {count_text(entities, 'entity')} from earlier savepoints"
            )
            self.replay.seed(seeds, watermark_ms=low, timestamp_ms=last.timestamp_ms)
        return low

    def _base(self, number: int, one: Used) -> ReplayBase:
        """Return what those entities begin from that have a savepoint in common."""
        from savepoints.state.merge import touched_partitions

        entities = self.assignment.replayed.where(f"base = {number}").select("entity")
        place = self.replay.place / f"base-{number}"
        saved = touched_partitions.narrowed(self._saved(number, one), entities, place)
        return ReplayBase(entities, saved, self._layout(one))

    def _watermark(self, one: Used) -> int:
        """Return the watermark that the batch of a base ran with: what it has dropped is gone."""
        assert one.savepoint is not None
        store = self.assignment.live.store
        return restore.saved_offsets(store, store.manifest(one.savepoint.id)).watermark_ms

    def _saved(self, number: int, one: Used) -> SavedRows:
        """Return the state rows of a base."""
        from savepoints.state.storage.row_sources import CheckpointRows, TableRows

        assert one.savepoint is not None
        spark, store = self.assignment.spark, self.assignment.live.store
        if "canonical" in one.savepoint.forms:
            return TableRows(spark, canonical.table(store.root, one.savepoint.id))
        # In the store, which copies files itself.
        place = scratch.place_of(store, self.assignment.affected.merge_id)
        laid_out = place / f"base-{number}"
        export.mount(store.manifest(one.savepoint.id), store, laid_out)
        return CheckpointRows.of(spark, laid_out, read_cut(laid_out))

    def _layout(self, one: Used) -> Layout:
        """Return the fields of the state of a base."""
        assert one.savepoint is not None
        root = self.assignment.live.store.root
        schemas = [
            file
            for file in self.assignment.live.store.manifest(one.savepoint.id).native
            if layout.is_schema(file.path)
        ]
        found = in_parallel(lambda file: root.get(file.stored_at), schemas)
        paths = [file.path for file in schemas]
        return layout.of_files(dict(zip(paths, found, strict=True)))
