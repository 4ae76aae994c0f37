"""What is to be done to an output that is taken back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from savepoints.model import OutputVersion
from savepoints.outputs.delta.writable import Engine

# Lower than any batch id, so the replayed batch 0 is not taken for one that was written.
BEFORE_FIRST_BATCH = -1


@dataclass(frozen=True)
class Rewind:
    """What will be done to one output.

    Attributes:
        output: The version to go back to.
        newest: The newest version when this was planned; of a file sink, the newest batch.
        transactions: Batch id by application id, as the table will have them.
        owner: Prefix of the query's own application ids.
        own_rows: Only rows that match this SQL predicate go back; None for all.
        empty: It goes back to an empty table.
        engine: The engine that makes the commit; `spark` needs a session.
    """

    output: OutputVersion
    newest: int
    transactions: Mapping[str, int]
    owner: str
    own_rows: str | None = None
    empty: bool = False
    engine: Engine = "deltalake"
