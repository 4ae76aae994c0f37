"""Merges without Kafka and without a store, and the full replay that they have to equal.

A live query runs over batches from which some events are missing. They are replayed beside it while
it goes on, spliced in, and it goes on with more batches. The truth is the same program from scratch
over the same batches, each with the late events that would have come in it: those up to the time of
its newest event.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fidelity import merge_families
from tests.fidelity.merge_events import Event
from tests.fidelity.merge_families import FILES, ONCE, Cut, Family
from tests.fidelity.merge_query import Case, Moved, Query
from tests.fidelity.merge_steps import LateBatch, Way

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from savepoints.state.merge.controls import StateControls

Rows = Mapping[Any, Counter[str]]


@dataclass(frozen=True)
class Outcome:
    """The rows that differ from the truth; none for an exact merge.

    Attributes:
        state: Of the state when the late events have been merged.
        outputs: Of the outputs then.
        later: Of what each later batch gave.
        state_in_the_end: Of the state after these.
        outputs_in_the_end: Of the outputs after these.
    """

    state: Counter[str]
    outputs: Counter[str]
    later: Counter[str]
    state_in_the_end: Counter[str]
    outputs_in_the_end: Counter[str]

    @property
    def parts(self) -> tuple[Counter[str], ...]:
        in_the_end = self.state_in_the_end, self.outputs_in_the_end
        return self.state, self.outputs, self.later, *in_the_end

    @property
    def exact(self) -> bool:
        return not any(self.parts)

    @property
    def families(self) -> set[int]:
        """The families that came out wrong."""
        return {one for rows in self.parts for one in merge_families.families_in(rows)}

    def __str__(self) -> str:
        return ", ".join(
            f"{len(rows)} rows of {one.name} such as {sorted(rows)[:3]}"
            for one, rows in zip(fields(self), self.parts, strict=True)
            if rows
        )


def different(one: Rows, other: Rows) -> Counter[str]:
    """Return the rows that only one side has, whatever the part."""
    found = Counter[str]()
    for part in {*one, *other}:
        found += one.get(part, Counter()) - other.get(part, Counter())
        found += other.get(part, Counter()) - one.get(part, Counter())
    return found


@dataclass
class Merge:
    """One case with some families: the live query, the truth, and merges of the one into the other.

    Attributes:
        spark: What all share.
        case: The program.
        place: A directory of its own.
        families: The events.
        cuts: When late batches are merged.
        conf: Settings besides.
        saved: After which files there are savepoints.
        bases: How many entities began from which file at the last merge; -1 is nothing.
        controls: What became of the state of untouched entities at the last merge.
        control_outputs: Rows of them that came out otherwise.
        planned_at: The watermark at the plan of each merge.
    """

    spark: SparkSession
    case: Case
    place: Path
    families: Sequence[Family]
    cuts: Sequence[Cut] = ONCE
    conf: Mapping[str, str] = field(default_factory=dict)
    saved: Sequence[int] = (0, 2)
    bases: Counter[int] = field(default_factory=Counter)
    controls: StateControls = field(init=False)
    control_outputs: Counter[str] = field(init=False)
    planned_at: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        events = merge_families.placed(self.families, self.case.sources, self.case.scale)
        self.events = events
        self.in_time = [one for one in events if not one.merge]
        known = {one.id for one in self.in_time}
        self.given = [one for one in events if one.merge]
        self.late = [one for one in self.given if one.gone or one.id not in known]
        gone = {one.id for one in self.late if one.gone}
        self.true = [one for one in (*self.in_time, *self.late) if one.id not in gone]
        self.live = Query(self.spark, self.case, self.place / "live", self.conf)
        self.truth = Query(self.spark, self.case, self.place / "truth", self.conf)
        for files in self._phases:
            self.truth.advance(self.true, files)
        for files in self._phases[:2]:
            self.live.advance(self.in_time, files)
        self.batch = self.live.batch_of(self.cuts[0].spliced, last=True)

    @property
    def _phases(self) -> list[range]:
        """The files that a query reads between two stops: at each plan, and at each splice."""
        ends = [0, *(one + 1 for cut in self.cuts for one in (cut.planned, cut.spliced)), FILES]
        return [range(*one) for one in pairwise(ends)]

    @property
    def situations(self) -> Counter[str]:
        """How many late events there were in each situation when they were merged."""
        return merge_families.situations(self.events, self.cuts, self.planned_at, self.case.scale)

    def merged(self, way: Way = "short") -> Query:
        """Merge all late batches; return the query that goes on from there."""
        query = self.live
        self.planned_at = []
        for number in range(1, len(self.cuts) + 1):
            if number > 1:
                for files in self._phases[2 * number - 2 : 2 * number]:
                    query.advance(self.in_time, files)
            query = LateBatch(self, query, number, way).run()
        return query

    def unspliced(self, merged: Query) -> Query:
        """Return the query as it goes on with corrected outputs, but with the state it had."""
        return self._copy("unspliced", merged)

    def appended(self) -> Outcome:
        """Compare a query that reads the late events when they arrive, after all others."""
        query = self._copy("appended", self.live)
        first = self.cuts[-1].spliced + 1
        now = [replace(one, batch=first) for one in self.late if not one.gone]
        return self.outcome(query, [*self.in_time, *now])

    def _copy(self, name: str, gave: Query) -> Query:
        """Return the live query as it stands at the splice, which has given what another has."""
        place = self.place / name
        shutil.copytree(self.live.checkpoint, place / "checkpoint")
        rows = {batch: [*found] for batch, found in gave.batches.items() if batch <= self.batch}
        return Moved(self.spark, self.case, self.live.place, self.conf, rows, place)

    def outcome(self, merged: Query, coming: Sequence[Event] | None = None) -> Outcome:
        """Compare a query with the truth, at the last merge and after more batches.

        Args:
            merged: It stands at the last cut.
            coming: What it reads from there on; by default what arrives in time.
        """
        cut = self.cuts[-1].spliced
        batch = self.truth.batch_of(cut, last=True)
        known = set(merged.batches)
        state = different(merged.state(batch), self.truth.state(batch))
        outputs = different({"": merged.rows(batch)}, {"": self.truth.rows(batch)})
        merged.advance(self.in_time if coming is None else coming, range(cut + 1, FILES))
        later = different(
            {one: Counter(rows) for one, rows in merged.batches.items() if one not in known},
            {one: Counter(rows) for one, rows in self.truth.batches.items() if one > batch},
        )
        last = max(self.truth.watermarks())
        in_the_end = different(merged.state(last), self.truth.state(last))
        contents = different({"": merged.rows(last)}, {"": self.truth.rows(last)})
        return Outcome(state, outputs, later, in_the_end, contents)
