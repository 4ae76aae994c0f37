"""The two ways of a replay, and the proof that it comes out as the live query has it.

In few slices first, unless something speaks against it; batch by batch where that cannot be exact,
or was seen not to be. Where both are not, the merge is refused, and says what each of them gave.

The short way reads everything up to the batch before the cut as one batch, and evicts nothing until
then. What depends on when the live query evicted, dropped or read the clock differs. What can be
seen of that without a run is a reason against it; the controls find the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from savepoints import faults
from savepoints.checkpoint.cut import CutFiles
from savepoints.checkpoint.logs.kafka_position import lowest_offsets
from savepoints.checkpoint.state.operators import Operator, goes_by_clock
from savepoints.config.settings import Settings
from savepoints.errors import CheckFailedError, IncompatibleError, SeveralRowsError
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.operations.merge.assignment import Assignment
from savepoints.operations.merge.replay import controls
from savepoints.operations.merge.replay.entity_replay import MergeReplay
from savepoints.plan import Progress
from savepoints.sources.late.dropped_late import Read, count
from savepoints.store.batch_log import Batch
from savepoints.texts import count_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FORGETS = "dedupeWithinWatermark"
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
        if goes_by_clock(one):
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
        found = controls.compare_controls(
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
