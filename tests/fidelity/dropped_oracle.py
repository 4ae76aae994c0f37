"""What a query dropped as late is merged back, and the run that it has to equal.

The live query reads events that are out of order, and drops some. The truth is the same program
from scratch over the same batches, with just the dropped events where they belong.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq

from savepoints.io import Location
from savepoints.runtime import late_rows
from savepoints.sources.archive import files as archive_files
from savepoints.sources.late import dropped_late
from savepoints.sources.late.dropped_late import Read
from tests.fidelity import merge_families
from tests.fidelity.dropped_cases import Dropping
from tests.fidelity.merge_events import ARCHIVED, BEGINNING, Event
from tests.fidelity.merge_families import SECONDS
from tests.fidelity.merge_oracle import Merge
from tests.fidelity.merge_query import Query


@dataclass
class DroppedMerge(Merge):
    """A merge of what the product finds to be dropped, at the plan of the merge.

    Attributes:
        program: The program, with its own rule.
    """

    program: Dropping = field(kw_only=True)

    def __post_init__(self) -> None:
        placed = merge_families.placed(self.families, self.case.sources, self.case.scale)
        self.events = self.in_time = [one for one in placed if not one.merge]
        self.live = Query(self.spark, self.case, self.place / "live", self.conf)
        self.live.advance(self.in_time, self._phases[0])
        found = self.found_ids = self._found()
        self.live.advance(self.in_time, self._phases[1])
        back = [one for one in self.in_time if (one.source, one.offset) in found]
        gone = [replace(one, merge=1, gone=True, offset=-1 - 2 * at) for at, one in enumerate(back)]
        self.moved = [
            replace(one, merge=1, offset=-2 - 2 * at, batch=self._belongs(one))
            for at, one in enumerate(back)
        ]
        self.given = self.late = [*gone, *self.moved]
        known = {one.id for one in back}
        self.true = [*(one for one in self.in_time if one.id not in known), *self.moved]
        self.truth = Query(self.spark, self.case, self.place / "truth", self.conf)
        for files in self._phases:
            self.truth.advance(self.true, files)
        self.batch = self.live.batch_of(self.cuts[0].spliced, last=True)

    def unmerged(self) -> Query:
        """Return the query as it goes on without the merge."""
        return self._copy("unmerged", self.live)

    def _belongs(self, one: Event) -> int:
        return int(one.t / self.case.scale) // SECONDS

    @property
    def by_hand(self) -> set[tuple[int, int]]:
        """The events that are dropped by the program's own rule: input and offset."""
        found = set()
        marks = {
            one: self.live.watermarks()[self.live.batch_of(one)][0] / 1000 - BEGINNING.timestamp()
            for one in self._phases[0]
        }
        for one in self.in_time:
            if one.batch in marks and one.batch > 0:
                watermark = marks[one.batch - 1]
                if self.program.drops(one.t, watermark):
                    found.add((one.source, one.offset))
        return found

    def _found(self) -> set[tuple[int, int]]:
        """The events that the product finds to be dropped."""
        place = self.place / "found"
        place.mkdir(parents=True)
        numbers = sorted(self.live.watermarks())
        reads = [
            Read(self._ends(before), self._ends(one), self.live.watermarks()[before][0])
            for before, one in pairwise(numbers)
        ]
        behind = {}
        for source, name in enumerate(self.case.app.inputs):
            rows = [one.archived() for one in self.in_time if one.source == source]
            path = place / f"{name}.parquet"
            pq.write_table(pa.Table.from_pylist(rows, ARCHIVED), path)
            arrived = self.spark.read.schema(archive_files.SCHEMA).parquet(str(path))
            behind[name] = dropped_late.behind(arrived, reads)
        where = Location.of(str(place / "rows"))
        lost = late_rows.dropped(self.spark, self.case.app, behind, where).collect()
        return {(int(row["topic"].removeprefix("in")), row["offset"]) for row in lost}

    def _ends(self, batch: int) -> dict[str, dict[int, int]]:
        return {
            f"in{source}": {
                0: sum(one.source == source and one.batch < count for one in self.in_time)
            }
            for source, count in enumerate(self.live.offsets(batch))
        }
