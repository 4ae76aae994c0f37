"""The ledger: which late batches were merged into which query, with what result.

A Delta table `ledger/`, one row a merge, only ever added to. A merge counts for a generation if the
generation that the merge began is among those from which that one descends, so a rollback to before
a merge takes it out of effect, and one to after it brings it back, without touching the ledger. A
reset to an empty state descends from the generation before it: it reads the merged events again,
each where it belongs, so until it has come to the offsets of the merge they are not in its state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Literal

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, by_partition
from savepoints.errors import NotAlignedError
from savepoints.io import Location
from savepoints.json_values import to_json
from savepoints.model import Generation, OutputVersion, Place, Placed, Savepoint
from savepoints.result import Result
from savepoints.store.tables import columns
from savepoints.store.tables.delta_table import StoreTable
from savepoints.store.tables.open_tables import OpenTables

# What `Merge.batch` is of events that the query had read, and dropped as late.
DROPPED = "dropped"
MergePolicy = Literal["exact", "append", "replay-all", "merge-function"]
ReplayStrategy = Literal["short", "faithful"]

_COLUMNS: columns.Shape = {
    "id": "text", "query": "text", "generation": "long", "input": "text", "batch": "text",
    "content_hash": "text", "rows": "long", "known": "long", "entities": "long",
    "first_event_time": "moment", "last_event_time": "moment", "policy": "text", "way": "text",
    "controls": "long", "controls_differing": "long", "batch_id": "long",
    "offsets": [{"topic": "text", "partition": "int", "offset": "long"}],
    "outputs": [columns.OUTPUT], "descent": ["text"], "pause_seconds": "double", "by": "text",
    "at": "moment",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MergeCounts(Result):
    """How much a merge works in, and how: in its plan, its result and the ledger alike.

    Attributes:
        rows: Events that are merged: of the batch, without those that were known already.
        known: Events of the batch that the query has seen already.
        entities: Entities that the events touch.
        controls: Entities that are replayed although no late event touches them, to prove that
            the query can be replayed.
        policy: What the merge guarantees: `exact`, or what is given up.
        way: How it is replayed: `short`, in few slices, or `faithful`, batch by batch; None for a
            policy that does neither.
    """

    rows: int = 0
    known: int = 0
    entities: int = 0
    controls: int = 0
    policy: MergePolicy = "exact"
    way: ReplayStrategy | None = None

    def counts(self) -> dict[str, Any]:
        """Return these fields alone, to pass them to another of its kind."""
        return {one.name: getattr(self, one.name) for one in fields(MergeCounts)}


@dataclass(frozen=True, kw_only=True)
class MergeFacts(MergeCounts):
    """What a journal and the ledger keep of a batch.

    Attributes:
        input: Name of the input that the batch is of.
        batch: URI of the batch; `dropped` for what the watermark had dropped.
        content_hash: Of the batch's events, whatever their order; see `sources.late`.
        first_event_time: Time of the earliest event; None when all events were known already.
        last_event_time: Time of the latest event.
    """

    input: str
    batch: str
    content_hash: str
    first_event_time: datetime | None
    last_event_time: datetime | None


@dataclass(frozen=True, kw_only=True)
class Merge(Placed, MergeFacts):
    """One late batch that was merged.

    Attributes:
        id: `op-…`, also the merge id of the batch's events in the archive.
        generation: The generation that the merge began; with the policy `append` the one that ran.
        controls_differing: How many control entities did not come out as the live query has them.
        descent: The generations from which the merge's own one descends, as `query/number`: they
            stay known when the savepoints in between are gone.
    """

    id: str
    query: str
    generation: int
    controls_differing: int
    batch_id: int
    offsets: KafkaOffsets
    outputs: tuple[OutputVersion, ...]
    descent: tuple[str, ...]
    pause_seconds: float
    by: str
    at: datetime

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return dict(to_json(self))


@dataclass(frozen=True)
class Ancestry:
    """The generations from which one descends, itself among them.

    Attributes:
        lost: What cannot be followed any further, because the savepoint that a generation began
            from is gone, and an older version of this library began it: that generation and the
            savepoint's id; None when all are known.
    """

    generations: frozenset[Place]
    lost: tuple[Generation, str] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the generations as `Merge.descent` has them."""
        return tuple(f"{query}/{number}" for query, number in sorted(self.generations))


@dataclass(frozen=True)
class Ledger:
    """The merges of a store."""

    root: Location
    tables: OpenTables = field(default_factory=OpenTables, compare=False, repr=False)

    def all(self, query: str | None = None) -> list[Merge]:
        """Return the merges, of one query or all, the newest first."""
        found = [_from_row(row) for row in self._table.rows()]
        return sorted(
            (one for one in found if query is None or one.query == query),
            key=lambda one: (one.at, one.id),
            reverse=True,
        )

    def add(self, merge: Merge) -> None:
        """Add a merge; one that is there already, by its id, changes nothing."""
        row = _to_row(merge)

        def decide(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [] if any(known["id"] == merge.id for known in rows) else [row]

        self._table.change(("id",), decide)

    @property
    def _table(self) -> StoreTable:
        return StoreTable(self.root / "ledger", columns.schema(_COLUMNS), self.tables)


def ancestry(
    query: str,
    generation: int,
    generations: Iterable[Generation],
    savepoints: Iterable[Savepoint],
    merges: Iterable[Merge],
) -> Ancestry:
    """Find out from which generations one descends.

    Args:
        generations: All of the store; a fork descends from those of another query.
        merges: All of the store; they know from what their generations descend.
    """
    recorded = {one.place: one.descent for one in merges}
    by_number = {one.place: one for one in generations}
    known = {one.id: one for one in savepoints}
    found: set[Place] = set()
    at: Place | None = (query, generation)
    while at is not None and at not in found:
        found.add(at)
        if at in recorded:
            found.update(_generation(name) for name in recorded[at])
            break
        reached = by_number.get(at)
        if reached is not None and reached.is_empty_reset:
            # It reads everything once more, what was merged, too.
            at = max((one for one in by_number if one < at and one[0] == at[0]), default=None)
            continue
        if reached is None or reached.begun_from is None:
            break
        origin = reached.origin_among(known)
        if origin is None:
            return Ancestry(frozenset(found), (reached, reached.begun_from))
        at = origin.place
    return Ancestry(frozenset(found))


def in_effect(merges: Sequence[Merge], ancestry: Ancestry) -> list[Merge]:
    """Return the merges that a generation has in its state, the oldest first."""
    if ancestry.lost is not None:
        lost, gone = ancestry.lost
        # A generation descends only from what there was when it began.
        unsure = [
            one
            for one in merges
            if one.place not in ancestry.generations
            and one.policy != "append"
            and (one.query != lost.query or one.generation < lost.generation)
            and one.at <= lost.begun_at
        ]
        if unsure:
            raise NotAlignedError(
                f"it is unknown whether generation {lost.generation} of {lost.query} includes "
                f"the merge {unsure[0].id}, because the savepoint {gone}, from which this "
                "generation began, was deleted",
                hint="copy that savepoint back from another store, if there is a copy: "
                f"savepoints copy {gone} DEST --store OTHER",
                merges=[one.id for one in unsure],
                savepoint=gone,
            )
    # What was appended to the topic arrived there, and is in a state or not as anything that did.
    mine = [one for one in merges if one.place in ancestry.generations and one.policy != "append"]
    return sorted(mine, key=lambda one: (one.at, one.id))


def find_same_batch(merges: Iterable[Merge], input_name: str, content_hash: str) -> Merge | None:
    """Return the merge of a batch with just these events into an input, None when there is none.

    Args:
        merges: Those in effect: one that was rolled back does not count.
    """
    return next(
        (one for one in merges if (one.input, one.content_hash) == (input_name, content_hash)), None
    )


def _generation(name: str) -> Place:
    query, _, number = name.rpartition("/")
    return query, int(number)


def _to_row(merge: Merge) -> dict[str, Any]:
    return {
        **vars(merge),
        "offsets": [
            {"topic": topic, "partition": partition, "offset": offset}
            for topic, partition, offset in by_partition(merge.offsets)
        ],
        "outputs": [vars(one) for one in merge.outputs],
        "descent": list(merge.descent),
    }


def _from_row(row: Mapping[str, Any]) -> Merge:
    offsets: KafkaOffsets = {}
    for one in row["offsets"]:
        offsets.setdefault(one["topic"], {})[one["partition"]] = one["offset"]
    outputs = tuple(OutputVersion(**one) for one in row["outputs"])
    descent = tuple(row["descent"])
    return Merge(**{**row, "offsets": offsets, "outputs": outputs, "descent": descent})
