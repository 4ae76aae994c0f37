"""What a merge is going to do; `prepare` finds it out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from savepoints.config.settings import Settings
from savepoints.operations.merge.append import AppendingPlan
from savepoints.operations.merge.apply import MergingPlan
from savepoints.operations.merge.estimate import Expected, Size
from savepoints.operations.merge.scope import MergeScope
from savepoints.plan import Plan
from savepoints.sources.late.batch import LateBatch
from savepoints.store.tables.merge_ledger import MergeCounts, ReplayStrategy

if TYPE_CHECKING:
    from savepoints.runtime.app import App

# How the reason of a pause begins that a merge has asked for.
PAUSED_FOR = "merge "
# Below the scratch directory: rows of the batch that are no events.
SET_ASIDE = "set-aside"


@dataclass(frozen=True)
class BaseUse:
    """A savepoint that entities are replayed from.

    Attributes:
        savepoint_id: Its id; None for those that begin with nothing.
        entities: How many.
    """

    savepoint_id: str | None
    entities: int


@dataclass(frozen=True, kw_only=True)
class MergePlan(Plan, MergeCounts):
    """What `merge` is going to do.

    Attributes:
        command: How to do it again as a command line, which also finishes it after a crash.
        operation_id: Its name in the journal, in the ledger, and in the archive.
        input: Name of the input that the batch is of.
        batch: URI of the batch.
        content_hash: Of its events, whatever their order.
        set_aside: Rows of the batch that are no events.
        quarantine: Where they go; None when there are none, or they refuse the batch.
        until: Only events of the batch from before it are merged; None for all.
        left_out: Rows of the batch that are left out for that; they are not recorded as merged.
        bases: The savepoints that the entities are replayed from.
        events: Events to replay.
        against_short: Why few slices cannot be exact, so that `way` is `faithful`. A short replay
            whose controls differ is followed by a faithful one.
        batches: Batches of the query since the oldest base: as many slices has the faithful way.
        expected: How long it will take; None when no such merge of the query was done before.
        operators: Stateful operators whose state is spliced.
        outputs: Tables that are corrected.
        generation: The generation that ends.
        merged_by: Id of the merge that has merged just these events; nothing will be done then.
        begun: A merge that was interrupted; it is finished as it was begun.
    """

    command: str
    operation_id: str
    input: str
    batch: str
    content_hash: str = ""
    set_aside: int = 0
    quarantine: str | None = None
    until: datetime | None = None
    left_out: int = 0
    bases: tuple[BaseUse, ...] = ()
    events: int = 0
    against_short: tuple[str, ...] = ()
    batches: int = 0
    expected: Expected | None = None
    operators: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    generation: int = 0
    merged_by: str | None = None
    begun: MergingPlan | AppendingPlan | None = None

    def size(self, way: ReplayStrategy | None) -> Size:
        """Return what its time depends on, when it is replayed in some way."""
        return Size(self.policy, way, self.rows, self.events, self.batches)

    @property
    def has_nothing_to_do(self) -> bool:
        """Whether the query has all of it already."""
        return self.begun is None and (self.merged_by is not None or self.rows == 0)


@dataclass
class Prepared:
    """A plan, and what was found out for it, which the execution goes on with.

    Attributes:
        plan: The plan.
        late: The batch.
        scope: What it concerns.
        app: The application.
        settings: Completed by bindings.
    """

    plan: MergePlan
    late: LateBatch
    scope: MergeScope
    app: App
    settings: Settings
