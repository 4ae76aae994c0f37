"""Events: what was done to a store, by whom and with what result.

A Delta table `events/`, one row each time a verb ended, only ever added to. Metrics are counted
from it, and it is the answer to "who did that, and when?".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from savepoints.io import Location
from savepoints.store.tables import columns
from savepoints.store.tables.delta_table import StoreTable
from savepoints.store.tables.merge_ledger import DROPPED
from savepoints.store.tables.open_tables import OpenTables

Result = Literal["done", "failed", "skipped"]
# The parameter of a drill that has the operators whose state it could not compare.
NOT_COMPARED = "not_compared"
# The parameter of a verification that names the queries of which it found a savepoint broken.
BROKEN = "broken"

_COLUMNS: columns.Shape = {
    "id": "text", "at": "moment", "verb": "text", "who": "text", "result": "text", "query": "text",
    "savepoint": "text", "parameters": [{"key": "text", "value": "text"}], "error": "text",
    "message": "text", "seconds": "double", "bytes": "long", "rows": "long",
}  # fmt: skip


@dataclass(frozen=True)
class Event:
    """One verb that ended.

    Attributes:
        id: `op-…`; that of the operation if the verb's plan names one.
        at: When it ended.
        verb: For example `create`.
        who: User and host, and the process.
        result: `done`, `failed`, or `skipped` because another did the same.
        query: Name of the query, None for verbs on the whole store.
        savepoint: Id of the savepoint that it made or read, None without one.
        parameters: Arguments of the verb, with secrets masked.
        error: Class of the error, None when it did not fail.
        message: A remark on the result; for a failed verb, the error's message.
        seconds: How long it took.
        bytes: Bytes that it wrote or read, None if they were not counted.
        rows: State rows that it wrote or read, None if they were not counted.
    """

    id: str
    at: datetime
    verb: str
    who: str
    result: Result
    query: str | None = None
    savepoint: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    message: str = ""
    seconds: float = 0.0
    bytes: int | None = None
    rows: int | None = None

    @property
    def broken(self) -> frozenset[str]:
        """Queries of which a verification found a savepoint broken."""
        return frozenset(filter(None, self.parameters.get(BROKEN, "").split(", ")))

    @property
    def merged_dropped(self) -> bool:
        """Whether what Spark had dropped was merged by it, also if that was nothing."""
        what = (self.verb, self.result, self.parameters.get("batch"))
        return what == ("merge", "done", DROPPED)


@dataclass(frozen=True)
class Events:
    """The events of a store."""

    root: Location
    tables: OpenTables = field(default_factory=OpenTables, compare=False, repr=False)

    def all(self) -> list[Event]:
        """Return all events, the newest first."""
        found = [_from_row(row) for row in self._table.rows()]
        return sorted(found, key=lambda one: (one.at, one.id), reverse=True)

    def append(self, event: Event) -> None:
        """Add an event."""
        parameters = [{"key": key, "value": value} for key, value in event.parameters.items()]
        self._table.append([{**vars(event), "parameters": parameters}])

    @property
    def _table(self) -> StoreTable:
        return StoreTable(self.root / "events", columns.schema(_COLUMNS), self.tables)


def _from_row(row: dict[str, Any]) -> Event:
    parameters = {pair["key"]: pair["value"] for pair in row["parameters"]}
    return Event(**{**row, "parameters": parameters})
