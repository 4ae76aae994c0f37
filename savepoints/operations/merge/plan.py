"""What a merge is going to do, as values: what is printed, and what a journal keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from savepoints.operations.merge.estimate import Expected, Size
from savepoints.operations.rollback.generation_change import TransitionPlan
from savepoints.operations.rollback.journalled import JournalledPlan
from savepoints.outputs.correct.correct import Correction
from savepoints.plan import Plan
from savepoints.store.tables.merge_ledger import MergeCounts, MergeFacts, ReplayStrategy

VERB, APPEND = "merge", "append"
# How the reason of a pause begins that a merge has asked for.
PAUSED_FOR = "merge "


@dataclass(frozen=True)
class BaseUse:
    """A savepoint that entities are replayed from.

    Attributes:
        savepoint_id: Its id; None for entities that begin without state.
        entities: How many.
    """

    savepoint_id: str | None
    entities: int


@dataclass(frozen=True, kw_only=True)
class SplicePlan(TransitionPlan):
    """How a query continues with the state and the rows of some entities as a replay has them.

    Attributes:
        batch_id: The last batch of the generation that ends.
        place: Where the results of the replay are.
        replayed_batch: Number of the last batch of the replay's own checkpoint.
        entity_fields: By operator, the field of its keys that is the entity.
        corrections: What is corrected in each table.
        first_id: The savepoint that is taken where the new generation begins.
    """

    batch_id: int
    place: str
    replayed_batch: int
    entity_fields: Mapping[str, str]
    corrections: tuple[Correction, ...]
    first_id: str


@dataclass(frozen=True, kw_only=True)
class MergingPlan(SplicePlan):
    """How a query continues with late events merged.

    Attributes:
        facts: The facts about the batch that the ledger will have.
        base_versions: By output: version at each base, by the base's number; None for entities that
            begin without state.
        descent: The generations from which the one that ends descends, as the ledger has them.
        archive: The archive that the events go to.
        still_since: When the query's run was paused for this, RFC 3339; None without a run.
    """

    facts: MergeFacts
    base_versions: Mapping[str, Mapping[str, int | None]]
    descent: tuple[str, ...]
    archive: str
    still_since: str | None

    @property
    def paused(self) -> bool:
        """Whether a run of the query was paused for this, and is to go on afterwards."""
        return self.still_since is not None

    @property
    def of_all(self) -> bool:
        """Whether the state and the rows of all entities are replaced."""
        return self.facts.policy == "replay-all"


@dataclass(frozen=True, kw_only=True)
class AppendingPlan(JournalledPlan):
    """How late events are appended to their topic.

    Attributes:
        operation_id: Its name in the journal, in the ledger, and in the headers of the records.
        facts: The facts about the batch that the ledger will have.
        generation: The generation that runs.
        batch_id: Its newest batch.
        offsets: Its position there, as Spark's JSON.
        descent: The generations from which it descends, as the ledger has them.
        topic: The topic.
        since: The topic's end before, as Spark's JSON.
        place: Where the events are kept until it is done.
    """

    facts: MergeFacts
    generation: int
    batch_id: int
    offsets: str
    descent: tuple[str, ...]
    topic: str
    since: str
    place: str


@dataclass(frozen=True, kw_only=True)
class MergePlan(Plan, MergeCounts):
    """What `merge` is going to do.

    Attributes:
        command: How to do it again as a command line, which also finishes it after a crash.
        operation_id: Its name in the journal, in the ledger, and in the archive.
        input: Name of the input that the batch is of.
        batch: URI of the batch.
        content_hash: Of its events, whatever their order.
        set_aside: Rows of the batch that are not events.
        quarantine: Where they are written; None when there are none, or when they make the merge
            fail.
        until: Only events of the batch from before it are merged; None for all.
        left_out: Rows of the batch that are left out for that; they are not recorded as merged.
        bases: The savepoints that the entities are replayed from.
        events: Events to replay.
        against_short: Why few slices cannot be exact, so that `way` is `faithful`. A short replay
            whose controls differ is followed by a faithful one.
        batches: Batches of the query since the oldest base, which is how many slices the faithful
            way has.
        expected: How long it will take; None when no such merge of the query was done before.
        operators: Stateful operators whose state is spliced.
        outputs: Tables that are corrected.
        generation: The generation that ends.
        merged_by: Id of the merge that has merged just these events; nothing will be done then.
        begun: The interrupted merge that this finishes, as it was begun; None for a new one.
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
    def idle(self) -> str:
        """Why nothing is merged; empty when something is."""
        if not self.has_nothing_to_do:
            return ""
        if self.merged_by is not None:
            return f"nothing to merge: this batch has already been merged by {self.merged_by}"
        why = {0: "the batch has no events", 1: "its only event has already been seen"}.get(
            self.known, f"all {self.known:,} events have already been seen"
        )
        return f"nothing to merge: {why}"

    @property
    def has_nothing_to_do(self) -> bool:
        """Whether the query has all of it already."""
        return self.begun is None and (self.merged_by is not None or self.rows == 0)
