"""Late events alone: what they give when the application begins with nothing and reads no others.

The first slice reads all of them without a watermark, so that none is dropped; those that follow
are empty, and bring the watermark to where the query has it, so that what is over there is over
here as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from savepoints.io import Location
from savepoints.operations.merge import functions as merge_functions
from savepoints.operations.merge import generation_plan
from savepoints.operations.merge.shadow_replay import ShadowReplay
from savepoints.runtime import scratch_query
from savepoints.runtime.replay import ReplayBatch
from savepoints.runtime.scratch_query import REPLAY_BATCH
from savepoints.sources.late import affected_entities


@dataclass
class LateReplay(ShadowReplay):
    """A run on the late events of a batch and nothing else; of the query it has the watermark."""

    policy_without_strategy = "merge-function"

    def run(self) -> None:
        """Let the application read the late events, and then bring the watermark of the cut."""
        last = self._logged(self.cut, self.files.cut.batch_id)
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
        """Let the application's functions combine everything once, while the query still runs.

        Raises:
            IncompatibleError: If one fails, or gives what cannot be used.
        """
        from savepoints.state.storage.row_sources import CheckpointRows

        assignment, files = self.assignment, self.files
        functions = merge_functions.required(assignment.live.inputs.app)
        live = CheckpointRows.of(assignment.spark, self.cut, files)
        state = merge_functions.state(live, self.state(), functions)
        corrections = generation_plan.corrections(
            assignment,
            assignment.live.generation + 1,
            files.cut.batch_id,
            self.policy_without_strategy,
        )
        self.progress("combining the result with the state of the query")
        frames = [
            *(state.rows(one.operator_id, one.stores[0]) for one in files.operators),
            *(
                merge_functions.rows(
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
        self.replay.run(ReplayBatch(before.watermark_ms, now.watermark_ms, now.timestamp_ms))
        self.batch = newest

    def fields(self) -> dict[int, str]:
        """Return nothing: rows are combined by their whole keys, whatever the entity is."""
        return {}
