"""What a reader is going to do to take over a correction of its table: as a journal keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from savepoints.operations.merge.plan import SplicePlan

VERB = "cascade"


@dataclass(frozen=True)
class Followed:
    """The correction that a reader takes over.

    Attributes:
        operation_id: The merge that it comes from, by its name in the journal.
        query: The query that writes the table.
        table: The table that is corrected.
        table_id: Delta's own id of it.
        app_id: Transaction id under which the correction is committed.
        batch_id: As which batch of that id.
    """

    operation_id: str
    query: str
    table: str
    table_id: str
    app_id: str
    batch_id: int


@dataclass(frozen=True, kw_only=True)
class CascadePlan(SplicePlan):
    """How a reader goes on with a correction of its table taken over.

    Attributes:
        follows: The correction that the reader takes over.
        entities: How many entities of the reader are replayed for it.
        rows_removed: How many rows go from the reader's tables.
        rows_added: How many rows the replay has instead.
        controls: Other entities whose replay was the same as the reader has them.
        paused: A run of the reader was paused for this and is to be resumed.
    """

    follows: Followed
    entities: int
    rows_removed: int
    rows_added: int
    controls: int
    paused: bool
