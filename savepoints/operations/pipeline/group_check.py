"""Whether savepoints of several queries fit together: nobody has read more than the writer holds.

A savepoint of a query has read, of each Delta table, what its sources' positions say, and holds, of
each table that it writes, one version. Restored together they continue as if all had been stopped
at one moment if every reader's position lies within the version of the writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from savepoints.checkpoint.logs import table_position
from savepoints.checkpoint.logs.table_position import TablePosition
from savepoints.io import in_parallel
from savepoints.model import OutputVersion, Savepoint
from savepoints.outputs.delta import log


@dataclass(frozen=True)
class GroupRead:
    """A table that one savepoint of a group holds and another has read.

    Attributes:
        writer: Query of the savepoint that holds it.
        reader: Query of the savepoint that has read it.
        table_uri: Where the table is.
        version: The version that the writer's savepoint holds.
        read: The newest version of which the reader has read rows, or the snapshot that it is
            reading; -1 for none.
        problem: Why the two do not fit together; empty when they do.
    """

    writer: str
    reader: str
    table_uri: str
    version: int
    read: int
    problem: str

    def __str__(self) -> str:
        """Say why they do not fit together."""
        return (
            f"{self.reader} is ahead of {self.writer}: {self.problem} of {self.table_uri}, "
            f"but the savepoint of {self.writer} ends at version {self.version}"
        )


def reads(readers: Sequence[Savepoint], writers: Sequence[Savepoint]) -> tuple[GroupRead, ...]:
    """Compare what savepoints have read with what savepoints hold, each one of a query."""
    pairs = [
        (writer, reader, output, position)
        for reader in readers
        for text in reader.cut.offsets
        if (position := table_position.parse(text))
        for writer in writers
        for output in writer.outputs
        if output.kind == "delta" and output.table_id == position.table_id
    ]
    return tuple(in_parallel(lambda pair: _read(*pair), pairs))


def _read(
    writer: Savepoint, reader: Savepoint, output: OutputVersion, position: TablePosition
) -> GroupRead:
    newest, problem = _newest(position), ahead(output, position)
    return GroupRead(writer.query, reader.query, output.uri, output.version, newest, problem)


def ahead(output: OutputVersion, position: TablePosition) -> str:
    """Say what a reader at a position has read beyond an output's version; empty for nothing.

    Commits without rows, as OPTIMIZE makes them, do not count.
    """
    newest = _newest(position)
    if newest <= output.version:
        return ""
    seen = newest + 1
    for commit in log.commits(output.uri, newest):
        if commit.version <= output.version:
            return ""
        if commit.changes_data:
            return f"it has read version {commit.version} ({commit.operation or 'commit'})"
        seen = commit.version
    if seen == output.version + 1:
        return ""
    return f"it has read version {newest}, and versions before {seen} are gone from the log"


def _newest(position: TablePosition) -> int:
    # A snapshot is read at its version also before its first file.
    is_begun = position.index >= 0 or position.in_snapshot
    return position.version if is_begun else position.version - 1
