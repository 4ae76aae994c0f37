"""The position of a Delta source: which table it reads, by the table's id, and how far.

Source: `org.apache.spark.sql.delta.sources.DeltaSourceOffset`. The table's path is not in it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class TablePosition:
    """How far a Delta source has read its table.

    Attributes:
        table_id: Delta's own id of the table, `metaData.id` in its log.
        version: The first version that it has not read completely; all before it are read.
        index: Of that version, the number of the last file that is read; negative for none.
        in_snapshot: It still reads the table as it was at that version when the query began.
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
