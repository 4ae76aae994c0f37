"""Late events combined by an application's functions, without a replay: `merge-function`.

The application runs on the late events alone: it begins with nothing and reads no others. The first
slice reads all of them without a watermark, so that none is dropped; those that follow are empty
and bring the watermark to where the query has it, so that what is over there is over here as well.
What that gives is combined with what the query has, state and rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.checkpoint.cut import CutFiles
from savepoints.checkpoint.logs.kafka_position import lowest_offsets
from savepoints.checkpoint.state import layout
from savepoints.errors import IncompatibleError
from savepoints.io import Location
from savepoints.operations.merge import generation_plan
from savepoints.operations.merge.replay.shadow_replay import ShadowReplay
from savepoints.outputs.correct import correct
from savepoints.outputs.correct.correct import Correction
from savepoints.runtime import scratch_query
from savepoints.runtime.app import App, MergeFunctions
from savepoints.runtime.replay import ReplayBatch
from savepoints.runtime.scratch_query import REPLAY_BATCH
from savepoints.sources.late import affected_entities

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from savepoints.state.merge.combine import Combined, CombinedRows
    from savepoints.state.storage.row_sources import CheckpointRows, SavedRows


def required(app: App) -> MergeFunctions:
    """Return the functions, all of which must be there, that work late events in."""
    if app.merge is None:
        raise IncompatibleError(
            f"the application {app.name} does not define how late events combine with its state",
            hint="define this in App(…, merge=MergeFunctions(states=…, rows=…)), as in "
            "docs/merging.md; or merge without --policy, which replays the events",
            query=app.name,
        )
    if lacking := [name for name in app.outputs if name not in app.merge.rows]:
        raise IncompatibleError(
            f"the application {app.name} does not define how rows of output {lacking[0]} combine",
            hint="add this output to MergeFunctions(rows=…), as in docs/merging.md",
            query=app.name,
            outputs=lacking,
        )
    return app.merge


def require_states(checkpoint: Location, files: CutFiles, functions: MergeFunctions) -> None:
    """Check that the functions combine the state of each operator."""
    _operators(checkpoint, files, functions)


def state(live: CheckpointRows, late: SavedRows, functions: MergeFunctions) -> CombinedRows:
    """Return the state of a query with what late events gave."""
    from savepoints.state.merge import combine as merge_combine

    return merge_combine.CombinedRows(
        live, late, _operators(live.checkpoint, live.files, functions)
    )


def rows(
    spark: SparkSession,
    correction: Correction,
    entities: DataFrame,
    late: DataFrame,
    functions: MergeFunctions,
) -> DataFrame:
    """Return what an output should hold of entities, as `correct.execute` wants it.

    Args:
        entities: `entity` string and `version` bigint, which is null for all.

    Raises:
        SeveralRowsError: If the key of the function does not tell rows apart.
    """
    from savepoints.outputs.correct import combine as correct_combine

    one = functions.rows[correction.live.output.name]
    table = correct.entity_rows(spark, correction)
    return correct_combine.combined(table, entities, late, one.key, one.combine)


def _operators(
    checkpoint: Location, files: CutFiles, functions: MergeFunctions
) -> dict[int, Combined]:
    """Return how each operator is combined."""
    from savepoints.state.merge import combine as merge_combine

    return merge_combine.required(files.operators, layout.read(checkpoint), functions.states)


@dataclass
class LateReplay(ShadowReplay):
    """A run on the late events of a batch and nothing else; of the query it has the watermark."""

    policy_without_strategy = "merge-function"

    def run(self) -> None:
        """Let the application read the late events, and then bring the watermark of the cut."""
        last = self._logged(self.cut, self.files.cut.batch_id)
        self._refuse_arrived(last.offsets)
        self.progress("running the application on the late events alone")
        self.replay.write(
            {
                name: rows.selectExpr("*", f"1 as {REPLAY_BATCH}")
                for name, rows in self.assignment.pending.items()
            }
        )
        self.replay.run(ReplayBatch(0, 0, last.timestamp_ms))
        self.replay.run(ReplayBatch(0, last.watermark_ms, last.timestamp_ms))
        self.batch = last.batch_id

    def try_out(self) -> None:
        """Let the application's functions combine everything once, while the query still runs."""
        from savepoints.state.storage.row_sources import CheckpointRows

        assignment, files = self.assignment, self.files
        functions = required(assignment.live.inputs.app)
        live = CheckpointRows.of(assignment.spark, self.cut, files)
        combined = state(live, self.state(), functions)
        corrections = generation_plan.corrections(
            assignment,
            assignment.live.generation + 1,
            files.cut.batch_id,
            self.policy_without_strategy,
        )
        self.progress("combining the result with the state of the query")
        frames = [
            *(combined.rows(one.operator_id, one.stores[0]) for one in files.operators),
            *(
                rows(
                    assignment.spark,
                    one,
                    affected_entities.versioned(
                        assignment.touched, assignment.base_versions(one.live.output.name)
                    ),
                    self.outputs(),
                    functions,
                )
                for one in corrections
            ),
        ]
        scratch_query.compute(frames, f"MergeFunctions of {assignment.live.name}")

    def follow(self, checkpoint: Location, newest: int) -> None:
        """Bring the watermark that the live query has now; see `ShadowReplay`."""
        if newest <= self.batch:
            return
        before, now = (self._logged(checkpoint, one) for one in (self.batch, newest))
        self._refuse_arrived(now.offsets)
        self.replay.run(ReplayBatch(before.watermark_ms, now.watermark_ms, now.timestamp_ms))
        self.batch = newest

    def _refuse_arrived(self, offsets: Iterable[str | None]) -> None:
        """Refuse late events that the query has read by itself since they were looked for."""
        until, affected = lowest_offsets(offsets), self.assignment.affected
        if until != affected.live.until:
            affected.refuse_arrived(until)

    def fields(self) -> dict[int, str]:
        """Return nothing: rows are combined by their whole keys, whatever the entity is."""
        return {}
