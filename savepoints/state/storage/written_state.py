"""What the writers of state stores return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from savepoints.checkpoint.logs.commit_log import StateIds


@dataclass(frozen=True)
class WrittenState:
    """What was written.

    Attributes:
        ids: The ids of the stores, for the commit log; empty with checkpoint format 1.
        rows: Rows that the writer was given, by operator, counted while it wrote them.
    """

    ids: StateIds
    rows: Mapping[int, int]
