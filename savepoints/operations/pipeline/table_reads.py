"""What a savepoint has read of tables that go back, and what it has to read to be where they end.

A reader is at the cut when it has read every version of the table up to the one that the writer's
savepoint holds, and none after it. One that is behind can be brought there by a planned batch, one
that is ahead cannot, and one before an earlier rewind would have to read across that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from savepoints.checkpoint.logs import table_position
from savepoints.checkpoint.logs.table_position import TablePosition
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.operations.pipeline import group_check
from savepoints.outputs.correct.commit import mark as correction_of
from savepoints.outputs.delta import log


@dataclass(frozen=True)
class TableRead:
    """One source of a reader, and the table behind it that goes back.

    Attributes:
        source: Number of the source, in the order of the offset log.
        writer: Query that writes the table.
        output: Name of the output.
        table_uri: Where the table is.
        table_id: Delta's own id of it.
        position: The source's position in the reader's savepoint, as Spark's JSON.
        version: The version that the writer's savepoint holds, up to which the reader has to read.
        behind: Versions with rows that it has not read of these.
    """

    source: int
    writer: str
    output: str
    table_uri: str
    table_id: str
    position: str
    version: int
    behind: int

    @property
    def end(self) -> TablePosition:
        """Where the source is when it has read exactly what the writer's savepoint holds."""
        return table_position.after(self.table_id, self.version)


def reads_of(reader: Savepoint, writers: Sequence[Savepoint]) -> tuple[tuple[TableRead, ...], str]:
    """Find out how far a savepoint has read the tables that savepoints of others hold.

    Returns:
        What it has read, and why it cannot be brought to where the tables end; empty when it can.
    """
    for ahead in group_check.reads([reader], writers):
        if ahead.problem:
            return (), str(ahead)
    found = []
    for number, text in enumerate(reader.cut.offsets):
        if (position := table_position.parse(text)) is None:
            continue
        for writer in writers:
            for output in writer.outputs:
                if (output.kind, output.table_id) != ("delta", position.table_id):
                    continue
                behind, problem = behind_of(position, output.uri, output.version)
                if problem:
                    return (), f"{reader.query} {problem}"
                found.append(
                    TableRead(
                        number, writer.query, output.name, output.uri, output.table_id,
                        position.text, output.version, behind,
                    )
                )  # fmt: skip
    return tuple(found), ""


def unreadable_files(read: TableRead) -> list[str]:
    """Return the files that are gone of the versions that a reader still has to read."""
    position = table_position.parse(read.position)
    if not read.behind or position is None:
        return []
    there = {info.path for info in Location.of(read.table_uri).list()}
    return [
        path
        for version in range(position.version, read.version + 1)
        for path in _files(read.table_uri, version)
        if "://" not in path and not path.startswith("/") and path not in there
    ]


def behind_of(position: TablePosition, uri: str, version: int) -> tuple[int, str]:
    """Return how many versions with rows are left to read up to one, and why they cannot be.

    Returns:
        The reason as the end of a sentence about the reader; empty when it can.
    """
    # Of a snapshot that is read in parts, some is left whatever its version changed.
    behind, oldest = int(position.in_snapshot), version + 1
    for commit in log.commits(uri, version):
        if commit.version < position.version:
            return behind, ""
        oldest = commit.version
        if what := _impassable(commit):
            return 0, (
                f"is at version {position.version} of {uri} and cannot read on to "
                f"version {version}, because version {commit.version} {what}"
            )
        behind += commit.changes_data
    if oldest <= max(position.version, 0) or position.version > version:
        return behind, ""
    return 0, (
        f"is at version {position.version} of {uri} and cannot read on to version "
        f"{version}, because the log before version {oldest} is gone"
    )


def _impassable(commit: log.Commit) -> str:
    """Say what a commit did that a reader must not read; empty for all that it may."""
    if commit.back_to is not None or commit.operation == "RESTORE":
        return "rewound the table"
    # A compaction right after a correction has the same mark, and changes no rows.
    is_correction = commit.changes_data and correction_of(commit.user_metadata)
    return "is the correction of a merge" if is_correction else ""


def _files(uri: str, version: int) -> Iterator[str]:
    """Return the data and change files that a commit added, below the table's directory."""
    for line in log.log_of(uri).get(f"{version:020}.json").splitlines():
        action = json.loads(line)
        for kind in ("add", "cdc"):
            if kind in action:
                yield unquote(action[kind]["path"])
