"""The rows of a store's tables as they were when first read: a verb reads each table once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rows = list[dict[str, Any]]


class Snapshot:
    """The rows of some tables; what is written through it is read again."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._rows: dict[str, Rows] = {}

    def rows(self, table: str, read: Callable[[], Rows]) -> Rows:
        """Return the rows of a table, by its URI, which are read the first time."""
        if table not in self._rows:
            self._rows[table] = read()
        return self._rows[table]

    def forget(self, table: str) -> None:
        """Read a table again the next time."""
        self._rows.pop(table, None)
