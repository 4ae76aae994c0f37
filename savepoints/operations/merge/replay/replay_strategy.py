"""The two ways of a replay, and the proof that it comes out as the live query has it.

In few slices first, unless something speaks against it; batch by batch where that cannot be exact,
or was seen not to be. Where both are not, the merge is refused, and says what each of them gave.

The short way reads everything up to the batch before the cut as one batch, and evicts nothing until
then. What depends on when the live query evicted, dropped or read the clock differs. What can be
seen of that without a run is a reason against it; the controls find the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints import faults
from savepoints.checkpoint.cut import CutFiles, read_cut
from savepoints.checkpoint.logs.kafka_position import lowest_offsets
from savepoints.checkpoint.state import layout
from savepoints.checkpoint.state.operators import Operator
from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import CheckFailedError, IncompatibleError, SeveralRowsError
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.operations.merge.assignment import Assignment
from savepoints.operations.merge.replay.entity_replay import MergeReplay
from savepoints.outputs.correct import controls as correct_controls
from savepoints.outputs.correct.controls import OutputControls
from savepoints.plan import Progress
from savepoints.sources.late import affected_entities
from savepoints.sources.late.dropped_late import Read, count
from savepoints.spark import threads
from savepoints.store.batch_log import Batch
from savepoints.texts import count_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from savepoints.model import OutputVersion
    from savepoints.state.merge.controls import StateControls


_FORGETS = "dedupeWithinWatermark"
_PROCESSING_TIME = "ProcessingTime"
ALTERNATIVES = (
    "accept a weaker guarantee: --policy replay-all replays all events in order of event time, "
    "--policy append treats late events as if they arrived now, --policy merge-function combines "
    "results with functions of the application (see docs/merging.md)"
)


def against_short(
    assignment: Assignment,
    events: Mapping[str, DataFrame],
    known: Mapping[int, Batch],
    files: CutFiles,
) -> tuple[str, ...]:
    """Return why a replay in few slices cannot be exact; nothing where it may be."""
    reads = [
        Read(
            lowest_offsets(known[one - 1].offsets),
            lowest_offsets(known[one].offsets),
            known[one - 1].watermark_ms,
        )
        for one in sorted(known)
        if one - 1 in known
    ]
    dropped = sum(count(frame, reads) for frame in events.values())
    reasons = reasons_against_short(files.operators, dropped=dropped)
    if files.cut.watermark_ms > 0 and (lost := _lost(assignment, known, files)):
        reasons += (f"it is unknown which events the live query dropped as late: {lost}",)
    return reasons


def reasons_against_short(operators: Sequence[Operator], *, dropped: int = 0) -> tuple[str, ...]:
    """Return why only the faithful way can be exact; nothing where the short one may be.

    Args:
        dropped: How many events of the replayed entities came below the watermark that the live
            query dropped late rows by.
    """
    found = []
    for one in operators:
        what = f"operator {one.operator_id} ({one.name})"
        if one.name == _FORGETS:
            found.append(f"{what} forgets events according to the watermark of each batch")
        if one.properties.get("timeMode") == _PROCESSING_TIME:
            found.append(f"{what} depends on the processing time of each batch")
    if dropped:
        found.append(
            f"{count_text(dropped, 'other event')} came behind the watermark, so the live query "
            "may have dropped them"
        )
    return tuple(found)


def refuse_unknown(
    assignment: Assignment, known: Mapping[int, Batch], files: CutFiles, against: Sequence[str]
) -> None:
    """Refuse a replay batch by batch where not all batches are known."""
    if lost := _lost(assignment, known, files):
        raise IncompatibleError(
            f"{assignment.live.name} cannot be replayed exactly, either in a few large batches "
            f"({'; '.join(against)}) or batch by batch ({lost}). Nothing was changed",
            hint=ALTERNATIVES,
            query=assignment.live.name,
            reasons=list(against),
        )


def replayed(
    assignment: Assignment,
    settings: Settings,
    place: Location,
    cut: Location,
    proof: Savepoint,
    planned: Sequence[str],
    progress: Progress,
) -> MergeReplay:
    """Replay up to a cut, and prove by the controls that it comes out as the live query has it."""
    known = assignment.live.batches()
    replay = MergeReplay(assignment, place, cut, progress, "short", proof)
    files = replay.files
    against = tuple(planned)
    if lowest_offsets(files.cut.offsets) != assignment.live.until:
        against = against_short(assignment, replay.events, known, files)
    if not against:
        seen = _proved(replay, {}, settings)
        if not seen:
            return replay
        against = (seen,)
    refuse_unknown(assignment, known, files, against)
    progress(f"replaying batch by batch: {'; '.join(against)}")
    replay = MergeReplay(assignment, place, cut, progress, "faithful", proof)
    since = range(assignment.first_batch, files.cut.batch_id + 1)
    if seen := _proved(replay, {one: known[one] for one in since}, settings):
        raise CheckFailedError(
            f"{assignment.live.name} cannot be replayed exactly. In a few large batches: "
            f"{'; '.join(against)}. Batch by batch: {seen}. The program may have changed since "
            "these batches first ran, or its results may depend on the time of day, the order of "
            "arrival, or other tables. Nothing was changed",
            hint=ALTERNATIVES,
            query=assignment.live.name,
            checks=[*against, seen],
        )
    return replay


def _proved(replay: MergeReplay, known: Mapping[int, Batch], settings: Settings) -> str:
    """Replay, and return what differs of the controls, in words; empty when nothing does."""
    replay.run(known)
    faults.reach("merge.replayed")
    replay.progress(f"comparing the control entities with {replay.assignment.live.name}")
    try:
        found = compare_controls(
            replay, settings.queries[replay.assignment.live.name], settings.merge.tolerance
        )
    except SeveralRowsError as error:
        if replay.strategy == "short":
            return error.message
        raise
    faults.reach("merge.compared")
    return "" if found.holds else found.text


def _lost(assignment: Assignment, known: Mapping[int, Batch], files: CutFiles) -> str:
    """Return the batches that are needed and unknown; empty when all are known."""
    # That of the base, too: by its watermark the one after it drops late rows.
    first = max(assignment.first_batch - 1, 0)
    lost = [one for one in range(first, files.cut.batch_id + 1) if one not in known]
    if not lost:
        return ""
    missing = count_text(len(lost), "batch")
    return f"the batch log lacks {missing} since batch {first} (first: {lost[0]})"


@dataclass(frozen=True)
class Proof:
    """What became of the control entities."""

    state_rows: int
    state_different: int
    outputs: tuple[OutputControls, ...]
    samples: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether all came out as they are."""
        return not self.state_different and not any(one.entities for one in self.outputs)

    @property
    def text(self) -> str:
        """What differs, with an example."""
        found = []
        if self.state_different:
            found.append(f"{count_text(self.state_different, 'row')} of state")
        found += [
            f"{count_text(one.missing + one.extra, 'row')} of {one.output}"
            for one in self.outputs
            if one.entities
        ]
        return (
            f"{' and '.join(found)} of the control entities, which no late event touches, differ "
            f"from the live query, for example {self.samples[0]}"
        )


def compare_controls(replay: MergeReplay, bound: QuerySettings, tolerance: float) -> Proof:
    """Compare the controls at the cut up to which was replayed."""
    from savepoints.state.merge import controls as merge_controls
    from savepoints.state.merge import touched_partitions
    from savepoints.state.storage.row_sources import CheckpointRows

    assignment = replay.assignment
    mine = assignment.replayed.where("control")
    app = assignment.live.inputs.app
    rows = replay.outputs()

    def compare_state() -> StateControls:
        whole = CheckpointRows.of(assignment.spark, replay.cut, read_cut(replay.cut))
        place = replay.replay.place / "controls"
        return merge_controls.compare_states(
            touched_partitions.narrowed(whole, mine.select("entity"), place),
            replay.state(),
            replay.replay.operators,
            replay.fields(),
            mine.select("entity"),
            layout=layout.read(replay.cut),
            tolerance=tolerance,
        )

    def compare_output(one: OutputVersion) -> OutputControls:
        return correct_controls.compare_rows(
            assignment.spark,
            one,
            affected_entities.versioned(mine, assignment.base_versions(one.name)),
            rows,
            mode=app.outputs[one.name].mode,
            key=app.outputs[one.name].key,
            entity=assignment.affected.entity_of(one.name),
            everybody=assignment.replayed.select("entity"),
            own_rows=bound.own_rows.get(one.name),
            tolerance=tolerance,
            selection=app.outputs[one.name].selection,
        )

    # Most of the time goes into planning, which one query after the other does on one core.
    with threads.pool() as pool:
        of_state = pool.submit(compare_state)
        outputs = tuple(pool.map(compare_output, replay.proof.outputs))
        state = of_state.result()
    samples = [
        f"{one.entity} in operator {one.operator_id}: {one.live} live, {one.replayed} replayed"
        for one in state.sample
    ] + [f"{each} in {one.output}" for one in outputs for each in one.sample]
    return Proof(state.rows, state.different, outputs, tuple(samples))
