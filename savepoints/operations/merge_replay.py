"""The replay of a merge: beside the running query up to where it stands, then after it.

Short: everything up to the batch before a cut is one slice, with the watermark of the base, so that
nothing is dropped or evicted; the batch of the cut is another, with the watermarks that the live
query had then. From there on each batch of the live query is a slice of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from savepoints.checkpoint import offset_log, state_layout
from savepoints.checkpoint.layout import CutFiles, read_cut
from savepoints.checkpoint.offset_log import OffsetLogEntry
from savepoints.checkpoint.state_layout import Layout
from savepoints.errors import NoCommittedBatchError
from savepoints.io import Location, in_parallel
from savepoints.model import KafkaOffsets, Savepoint, lowest_offsets
from savepoints.operations import export
from savepoints.operations.merge_scope import Scope, Used
from savepoints.operations.plan import Progress
from savepoints.operations.replay import Base, Live, Replay, Slice
from savepoints.sources import slices
from savepoints.sources.slices import End
from savepoints.store import canonical

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from savepoints.state.saved_rows import CheckpointRows, SavedRows


@dataclass
class MergeReplay:
    """A replay of what a late batch concerns.

    Attributes:
        scope: What it concerns.
        place: An empty directory.
        cut: Files of the live query laid out at the cut where the replay is compared with it.
        proof: The savepoint that they are of.
        progress: Told what happens.
    """

    scope: Scope
    place: Location
    cut: Location
    proof: Savepoint
    progress: Progress
    batch: int = field(init=False, default=-1)

    def __post_init__(self) -> None:
        """Bind the application to the scratch directory."""
        self.files: CutFiles = read_cut(self.cut)
        scope = self.scope
        self.replay = Replay(
            scope.spark, scope.sources.app, self.place / "replay", Live(self.cut, self.files)
        )

    def run(self) -> None:
        """Replay everything up to the cut."""
        batch = self.files.cut.batch_id
        last = self._logged(self.cut, batch)
        before = self._logged(self.cut, batch - 1) if batch > 0 else None
        ends = [End(lowest_offsets(last.sources), None)]
        low = self._seed(last)
        if before is not None:
            offsets = lowest_offsets(before.sources)
            ends.insert(0, End(offsets, self._clock(offsets)))
        self._write(lowest_offsets(last.sources), ends)
        if before is not None:
            self.progress(f"replaying up to batch {batch - 1}")
            self.replay.run(Slice(low, low, before.timestamp_ms))
        self.progress(f"replaying batch {batch}")
        late = before.watermark_ms if before is not None else 0
        self.replay.run(Slice(late, last.watermark_ms, last.timestamp_ms))
        self.batch = batch

    def follow(self, checkpoint: Location, newest: int) -> None:
        """Replay the batches that the live query has run since.

        Args:
            checkpoint: Its checkpoint.
            newest: Its newest committed batch, or an older one.

        Raises:
            NoCommittedBatchError: If it no longer has the offsets of a batch.
        """
        if newest <= self.batch:
            return
        self.progress(f"replaying batches {self.batch + 1} to {newest}")
        logged = [self._logged(checkpoint, one) for one in range(self.batch, newest + 1)]
        positions = [lowest_offsets(one.sources) for one in logged]
        rows = self.scope.arrived(positions[0], positions[-1])
        first = self.replay.slices + 1
        self.replay.write(
            {
                name: slices.numbered(frame, [End(one, None) for one in positions[1:]], first=first)
                for name, frame in rows.items()
            }
        )
        for before, one in pairwise(logged):
            self.replay.run(Slice(before.watermark_ms, one.watermark_ms, one.timestamp_ms))
        self.batch = newest

    def state(self) -> CheckpointRows:
        """Return the state after the last batch that was replayed."""
        return self.replay.state()

    def outputs(self) -> DataFrame:
        """Return the rows that the application gave, with `replay_slice`."""
        return self.replay.outputs()

    def fields(self) -> dict[int, str]:
        """Return by operator the field of its keys that is the entity.

        Raises:
            IncompatibleError: If an operator is not kept by the entity.
        """
        from savepoints.state import splice

        saved = self.state()
        return splice.entity_fields(
            self.replay.keys(saved),
            saved,
            self.replay.operators,
            self.scope.replayed.select("entity"),
        )

    def _clock(self, until: KafkaOffsets) -> datetime | None:
        scope = self.scope
        return scope.sources.clock(scope.spark, scope.name, until)

    def _write(self, until: KafkaOffsets, ends: Sequence[End]) -> None:
        """Write what the scope has looked at, and what arrived since, for the first slices."""
        scope = self.scope
        rows = scope.pending
        if until != scope.until:
            more = scope.arrived(scope.until, until)
            rows = {name: frame.unionByName(more[name]) for name, frame in rows.items()}
        self.replay.write({name: slices.numbered(one, ends) for name, one in rows.items()})

    def _seed(self, last: OffsetLogEntry) -> int:
        """Give the entities the state of their bases; return the lowest watermark of these."""
        used = self.scope.used
        watermarks = [0 if one.savepoint is None else self._watermark(one) for one in used.values()]
        low = min(watermarks, default=0)
        seeds = [
            Base(
                self.scope.replayed.where(f"base = {number}").select("entity"),
                self._saved(number, one),
                self._layout(one),
            )
            for number, one in used.items()
            if one.savepoint is not None
        ]
        if seeds and self.replay.operators:
            self.progress(f"taking {sum(one.entities for one in used.values())} states from bases")
            self.replay.seed(seeds, watermark_ms=low, timestamp_ms=last.timestamp_ms)
        return low

    def _watermark(self, one: Used) -> int:
        """Return the watermark that the batch of a base ran with: what it has dropped is gone."""
        assert one.savepoint is not None
        stored = self.scope.store.manifest(one.savepoint.id)
        path = f"offsets/{one.savepoint.cut.batch_id}"
        file = next(each for each in stored.native if each.path == path)
        return offset_log.parse(self.scope.store.root.get(file.stored_at), path).watermark_ms

    def _saved(self, number: int, one: Used) -> SavedRows:
        """Return the state rows of a base."""
        from savepoints.state.saved_rows import CheckpointRows, TableRows

        assert one.savepoint is not None
        scope = self.scope
        if "canonical" in one.savepoint.forms:
            return TableRows(scope.spark, canonical.table(scope.store.root, one.savepoint.id).uri)
        laid_out = self.place / f"base-{number}"
        export.mount(scope.store.manifest(one.savepoint.id), scope.store, laid_out)
        return CheckpointRows.of(scope.spark, laid_out, read_cut(laid_out))

    def _layout(self, one: Used) -> Layout:
        """Return the fields of the state of a base."""
        assert one.savepoint is not None
        root = self.scope.store.root
        schemas = [
            file
            for file in self.scope.store.manifest(one.savepoint.id).native
            if state_layout.is_schema(file.path)
        ]
        found = in_parallel(lambda file: root.get(file.stored_at), schemas)
        paths = [file.path for file in schemas]
        return state_layout.of_files(dict(zip(paths, found, strict=True)))

    def _logged(self, checkpoint: Location, batch: int) -> OffsetLogEntry:
        path = f"offsets/{batch}"
        try:
            return offset_log.parse(checkpoint.get(path), path)
        except FileNotFoundError:
            raise NoCommittedBatchError(
                f"{checkpoint} no longer has the offsets of batch {batch}, which the replay needs",
                hint="run the merge again, while less is going on; or raise "
                "spark.sql.streaming.minBatchesToRetain",
                checkpoint=str(checkpoint),
                batch_id=batch,
            ) from None
