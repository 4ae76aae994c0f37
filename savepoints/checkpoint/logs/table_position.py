"""The position of a Delta source: which table it reads, by the table's id, and how far.

Source: `org.apache.spark.sql.delta.sources.DeltaSourceOffset`. The table's path is not in it. As
the end of a planned batch (`planned_batch`), the position after a version makes the batch read
exactly up to that version; a first batch that ends there reads the table as it was at that version.
To let a restored reader skip versions, such as a rewind that it must not see, its position belongs
into `offsets/N-1` and `offsets/N` alike (`source_positions`): on a start Delta reads the commits
between the two once more.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

# Written for "before all files of the version"; in memory Delta has a lower number for it, below
# those of a version that changes the schema.
_BEFORE_ALL = -1
_LOWEST = -100
# "At" and "after" a change of the schema: only positions of format 3 may have these.
_OF_SCHEMA = (-20, -19)


@dataclass(frozen=True)
class TablePosition:
    """How far a Delta source has read its table.

    Attributes:
        table_id: Delta's own id of the table, `metaData.id` in its log.
        version: The first version that it has not read completely.
        index: Number of the last file read of that version; negative for none.
        in_snapshot: Whether it is still reading the table's rows as of the version at which the
            query began.
    """

    table_id: str
    version: int
    index: int
    in_snapshot: bool

    def behind(self, newest: int) -> int:
        """Return how many versions are not read completely, of a table at its newest version.

        Negative when the position lies beyond the table's end.
        """
        return newest + 1 - self.version

    @property
    def text(self) -> str:
        """The position as Delta writes it into the offset log; the reverse of `parse`."""
        data = {
            "sourceVersion": 3 if self.index in _OF_SCHEMA else 1,
            "reservoirId": self.table_id,
            "reservoirVersion": self.version,
            "index": self.index,
            "isStartingVersion": self.in_snapshot,
        }
        return json.dumps(data, separators=(",", ":"))

    def is_beyond(self, end: TablePosition) -> bool:
        """Return True if more is read than up to another position in the same table."""
        return self._order > end._order

    @property
    def _order(self) -> tuple[int, int]:
        return self.version, _LOWEST if self.index == _BEFORE_ALL else self.index


def after(table_id: str, version: int) -> TablePosition:
    """Return where a reader is that has read every version up to this one, and nothing after it.

    Args:
        version: -1 for a reader that has read nothing.
    """
    return TablePosition(table_id, version + 1, _BEFORE_ALL, in_snapshot=False)


def parse(position: str | None) -> TablePosition | None:
    """Read a source's position, as the offset log has it.

    Returns:
        None for another kind of source, and for a position that lacks the table or the version.
    """
    try:
        data = json.loads(position or "")
        return TablePosition(
            str(data["reservoirId"]),
            int(data["reservoirVersion"]),
            int(data.get("index", -1)),
            bool(data.get("isStartingVersion", False)),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
