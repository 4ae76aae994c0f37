"""A run of an application beside the live query, which it follows batch by batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from savepoints.checkpoint.cut import CutFiles, read_cut
from savepoints.errors import NoCommittedBatchError
from savepoints.io import Location
from savepoints.operations.merge import source_ends
from savepoints.operations.merge.assignment import Assignment
from savepoints.plan import Progress
from savepoints.runtime import scratch_query
from savepoints.runtime.replay import PARTITIONS, Live, Replay
from savepoints.store import batch_log, scratch
from savepoints.store.batch_log import Batch
from savepoints.store.tables.merge_ledger import MergePolicy, ReplayStrategy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from savepoints.state.storage.row_sources import CheckpointRows


@dataclass
class ShadowReplay(ABC):
    """A replay up to a cut of the live query, and after it.

    Attributes:
        strategy: How it is replayed; None for a policy that does neither.
    """

    # The policy whose replays have no way.
    policy_without_strategy: ClassVar[MergePolicy]

    assignment: Assignment
    place: Location
    cut: Location
    progress: Progress
    strategy: ReplayStrategy | None
    batch: int = field(init=False, default=-1)

    def __post_init__(self) -> None:
        """Bind the application to the scratch directory."""
        self.files: CutFiles = read_cut(self.cut)
        source_ends.require_one_position(self.assignment.live.name, self.files)
        policy = self.policy_without_strategy
        self.name = scratch.replay_directory(policy, self.strategy)
        self.replay = Replay(
            self.assignment.spark,
            self.assignment.live.inputs.app,
            self.place / self.name,
            Live(self.cut, self.files),
            self._partitions,
        )

    @abstractmethod
    def follow(self, checkpoint: Location, newest: int) -> None:
        """Replay the batches run since by the live query, which must still have their offsets."""

    @abstractmethod
    def fields(self) -> dict[int, str]:
        """Return by operator the key field that is the entity; nothing if none is needed."""

    @property
    def results(self) -> tuple[str, ...]:
        """The directories of `place` with the state and the rows that it gave."""
        return f"{self.name}/{scratch_query.CHECKPOINT}", f"{self.name}/{scratch_query.RESULTS}"

    def state(self) -> CheckpointRows:
        """Return the state after the last batch that was replayed."""
        return self.replay.state()

    def outputs(self) -> DataFrame:
        """Return the rows that the application gave, with `replay_slice`."""
        return self.replay.outputs()

    @property
    def _partitions(self) -> int:
        return PARTITIONS

    def _logged(self, checkpoint: Location, batch: int) -> Batch:
        """Return what a batch of the live query was, from its checkpoint or from the batch log."""
        if (found := batch_log.read_from_checkpoint(checkpoint, batch)) is not None:
            return found
        live = self.assignment.live
        copied = batch_log.read(live.store.root, live.name, live.generation)
        if batch not in copied:
            raise NoCommittedBatchError(
                f"the checkpoint {checkpoint} no longer has the offsets of batch {batch}, "
                "which the replay needs",
                hint="run the merge again when the query is under less load, or raise "
                "spark.sql.streaming.minBatchesToRetain",
                checkpoint=str(checkpoint),
                batch_id=batch,
            )
        return copied[batch]
