"""Late events alone: what they give when the application begins with nothing and reads no others.

The first slice reads all of them without a watermark, so that none is dropped; those that follow
are empty, and bring the watermark to where the query has it, so that what is over there is over
here as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from savepoints import scratch
from savepoints.checkpoint import state_layout
from savepoints.checkpoint.layout import CutFiles, read_cut
from savepoints.io import Location
from savepoints.operations import merge_functions, merge_outputs, merging
from savepoints.operations.merge_replay import logged
from savepoints.operations.merge_scope import FROM_NOTHING, Scope
from savepoints.operations.plan import Progress
from savepoints.operations.replay import Live, Replay, Slice
from savepoints.scratch import SLICE
from savepoints.sources import affected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from savepoints.state.saved_rows import CheckpointRows


@dataclass
class LateReplay:
    """A run on the late events of a batch and nothing else.

    Attributes:
        scope: What the batch concerns.
        place: The scratch directory of the merge.
        cut: Files of the live query laid out at the cut up to which its watermark goes.
        progress: Told what happens.
        batch: The last batch of the live query whose watermark has come.
        way: How a replay was done, and this is none.
    """

    scope: Scope
    place: Location
    cut: Location
    progress: Progress
    batch: int = field(init=False, default=-1)
    way: None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Bind the application to the scratch directory."""
        self.files: CutFiles = read_cut(self.cut)
        self.replay = Replay(
            self.scope.spark,
            self.scope.inputs.app,
            self.place / merging.replay_directory("merge-function", None),
            Live(self.cut, self.files),
        )

    def run(self) -> None:
        """Let the application read the late events, and then bring the watermark of the cut."""
        scope = self.scope
        last = logged(scope, self.cut, self.files.cut.batch_id)
        self.progress("running the application on the late events alone")
        late = scope.late.selectExpr("*", f"1 as {SLICE}")
        self.replay.write(
            {
                name: late if name == scope.name else late.limit(0)
                for name in scope.inputs.app.inputs
            }
        )
        self.replay.run(Slice(0, 0, last.timestamp_ms))
        self.replay.run(Slice(0, last.watermark_ms, last.timestamp_ms))
        self.batch = last.batch_id

    def try_out(self) -> None:
        """Let the application's functions combine everything once, while the query still runs.

        Raises:
            IncompatibleError: If one fails, or gives what cannot be used.
        """
        from savepoints.state.saved_rows import CheckpointRows

        scope, files = self.scope, self.files
        functions = merge_functions.required(scope.inputs.app)
        live = CheckpointRows.of(scope.spark, self.cut, files)
        state = merge_functions.state(live, self.state(), state_layout.read(self.cut), functions)
        entities = affected.versioned(scope.from_nothing, FROM_NOTHING)
        corrections = merge_outputs.corrections(
            scope, scope.generation + 1, files.cut.batch_id, "merge-function"
        )
        self.progress("combining what they gave with what the query has")
        frames = [
            *(state.rows(one.operator_id, one.stores[0]) for one in files.operators),
            *(
                merge_functions.rows(scope.spark, one, entities, self.outputs(), functions)
                for one in corrections
            ),
        ]
        scratch.compute(frames, f"MergeFunctions of {scope.query}")

    def follow(self, checkpoint: Location, newest: int) -> None:
        """Bring the watermark that the live query has now.

        Args:
            checkpoint: Its checkpoint.
            newest: Its newest committed batch, or an older one.
        """
        if newest <= self.batch:
            return
        before, now = (logged(self.scope, checkpoint, one) for one in (self.batch, newest))
        self.replay.run(Slice(before.watermark_ms, now.watermark_ms, now.timestamp_ms))
        self.batch = newest

    def state(self) -> CheckpointRows:
        """Return the state that the late events gave."""
        return self.replay.state()

    def outputs(self) -> DataFrame:
        """Return the rows that they gave, with `replay_slice`."""
        return self.replay.outputs()

    def fields(self) -> dict[int, str]:
        """Return nothing: rows are combined by their whole keys, whatever the entity is."""
        return {}
