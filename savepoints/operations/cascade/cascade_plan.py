"""What a reader is going to do to take over a correction of its table: as a journal keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from savepoints.operations.rollback.generation_change import TransitionPlan
from savepoints.outputs.correct.correct import Correction

VERB = "cascade"


@dataclass(frozen=True)
class Followed:
    """The correction that a reader takes over.

    Attributes:
        operation_id: The merge that it comes from, by its name in the journal.
        table_id: Delta's own id of it.
        batch_id: As which batch of that id.
    """

    operation_id: str
    query: str
    table: str
    table_id: str
    app_id: str
    batch_id: int


@dataclass(frozen=True, kw_only=True)
class CascadePlan(TransitionPlan):
    """How a reader goes on with a correction of its table taken over.

    Attributes:
        batch_id: The last batch of the generation that ends.
        place: Where the results of the replay are.
        replayed_batch: Number of the last batch of the replay's own checkpoint.
        entity_fields: By operator, the field of its keys that is the entity.
        corrections: What is corrected in each table of the reader.
        controls: Other entities whose replay was the same as the reader has them.
        paused: A run of the reader was paused for this and is to be resumed.
        first_id: The savepoint that is taken where the new generation begins.
    """

    follows: Followed
    batch_id: int
    place: str
    replayed_batch: int
    entity_fields: Mapping[str, str]
    corrections: tuple[Correction, ...]
    entities: int
    rows_removed: int
    rows_added: int
    controls: int
    paused: bool
    first_id: str
