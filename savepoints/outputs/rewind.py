"""Taking a Delta output back to a version: its rows and its transaction ids in one commit.

Delta's RESTORE alone leaves the `txn` entries, and then every replayed batch is taken for one that
was already written and silently dropped (delta-io/delta#1813). deltalake can put lowered `txn`
actions into the same commit, which the protocol allows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.errors import NotAlignedError
from savepoints.io import Location
from savepoints.model import OutputVersion, utc_now
from savepoints.outputs import align

if TYPE_CHECKING:
    from deltalake import DeltaTable

_OPERATION_VERSION = 1
_UNDONE = 0
# Lower than any batch id, so the replayed batch 0 is not taken for one that was written.
_BEFORE_FIRST_BATCH = -1
_VECTOR = re.compile(r"deletion_vector_[0-9a-f-]+\.bin")


@dataclass(frozen=True)
class Rewind:
    """What is to be done to one output.

    Attributes:
        output: The version to go back to.
        newest: The newest version when this was planned.
        transactions: Batch id by application id that the table is to have afterwards.
        owner: Beginning of the application ids that are the query's own.
    """

    output: OutputVersion
    newest: int
    transactions: Mapping[str, int]
    owner: str


def plan(output: OutputVersion, owner: str, new_app_id: str) -> Rewind:
    """Find out what taking an output back would mean, and refuse what would lose others' rows.

    Args:
        output: The version that belongs to the savepoint.
        owner: Beginning of the application ids that are the query's own.
        new_app_id: Application id under which the next generation writes; a query that writes
            under its own id goes on with the old one.

    Raises:
        NotFoundError: If the table is gone.
        NotAlignedError: If the version cannot be read, the table is another one by now, or others
            have written to it since.
    """
    table = align.open_table(output.uri)
    if align.table_id(table) != output.table_id:
        raise NotAlignedError(
            f"{output.uri} is not the table that the savepoint knows: its id is "
            f"{align.table_id(table)}, not {output.table_id}",
            hint="it was deleted and made anew: roll back with --outputs none and rebuild it",
            uri=output.uri,
        )
    if gone := unreadable_files(output):
        raise NotAlignedError(
            f"version {output.version} of {output.uri} lacks {len(gone)} files, such as {gone[0]}",
            hint="VACUUM removed them; roll back state and offsets only: --outputs none",
            uri=output.uri,
            files=gone,
        )
    refuse_foreign(output, output.version, owner)
    reached = _BEFORE_FIRST_BATCH if output.app_version is None else output.app_version
    transactions = {output.app_id: reached, new_app_id: reached}
    return Rewind(output, table.version(), transactions, owner)


def refuse_foreign(output: OutputVersion, since: int, owner: str) -> None:
    """Refuse to take an output back when others wrote to it after a version.

    Raises:
        NotAlignedError: Names their commits.
    """
    foreign = align.foreign_commits(output.uri, since, (owner, output.app_id, "op-"))
    if foreign:
        first = foreign[-1]
        raise NotAlignedError(
            f"others have written to {output.uri} since version {since}: "
            f"{len(foreign)} commits, the first is version {first.version} ({first.operation})",
            hint="their rows would be lost; roll back state and offsets only: --outputs none",
            uri=output.uri,
            versions=[commit.version for commit in foreign],
        )


def execute(rewind: Rewind, operation_id: str) -> int:
    """Take the output back, in one commit; doing it again for the same operation does nothing.

    Args:
        rewind: What was planned.
        operation_id: Put into the commit as a transaction id, which is how a repetition after a
            crash finds out that it was done.

    Returns:
        The version that the commit made, or the newest one when it had been made before.

    Raises:
        NotAlignedError: If others have written to the table since the plan.
    """
    table = align.open_table(rewind.output.uri)
    if table.transaction_version(operation_id) == _OPERATION_VERSION:
        return int(table.version())
    refuse_foreign(rewind.output, rewind.newest, rewind.owner)
    return _take_back(
        table, rewind.output.version, {**rewind.transactions, operation_id: _OPERATION_VERSION}
    )


def _take_back(table: DeltaTable, version: int, transactions: Mapping[str, int]) -> int:
    """Commit rows of an older version together with transaction ids; returns the new version."""
    from deltalake import CommitProperties, Transaction

    now_ms = int(utc_now().timestamp() * 1000)
    properties = CommitProperties(
        app_transactions=[Transaction(app, at, now_ms) for app, at in transactions.items()]
    )
    if table.version() == version:
        # Nothing to take back, and RESTORE refuses the present: only the transaction ids change.
        table.create_write_transaction(
            actions=[], mode="append", schema=table.schema(), commit_properties=properties
        )
    else:
        table.restore(version, commit_properties=properties)
    table.update_incremental()
    return int(table.version())


def undo(rewind: Rewind, operation_id: str) -> int | None:
    """Bring an output back to what it was before a rewind, in one commit.

    Args:
        rewind: What was planned, and maybe done.
        operation_id: The operation that did it.

    Returns:
        The version that the commit made; None when there was nothing to undo.

    Raises:
        NotAlignedError: If others have written to the table since.
    """
    table = align.open_table(rewind.output.uri)
    if table.transaction_version(operation_id) != _OPERATION_VERSION:
        return None
    refuse_foreign(rewind.output, rewind.newest, rewind.owner)
    before = align.open_table(rewind.output.uri, rewind.newest)
    reached = {app: before.transaction_version(app) for app in rewind.transactions}
    known = {app: _BEFORE_FIRST_BATCH if at is None else at for app, at in reached.items()}
    return _take_back(table, rewind.newest, {**known, operation_id: _UNDONE})


def unreadable_files(output: OutputVersion) -> list[str]:
    """Return the files of a pinned version that are gone, for example by VACUUM.

    Those are data files; when none of them is gone, the first deletion vector that is.

    Raises:
        NotFoundError: If the table is gone.
        NotAlignedError: If the version's log is gone.
    """
    there = {info.path for info in Location.of(output.uri).list()}
    table = align.open_table(output.uri, output.version)
    root = f"{Location.of(output.uri)}/".lstrip("/")
    needed = table.file_uris()
    gone = [uri for uri in needed if uri.lstrip("/").removeprefix(root) not in there]
    return gone or _lost_vectors(table, output)


def _lost_vectors(table: DeltaTable, output: OutputVersion) -> list[str]:
    """Read the deletion vectors, without which rows that were deleted would come back."""
    from deltalake.exceptions import DeltaError

    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return []
    try:
        for _ in table.deletion_vectors():
            pass
    except DeltaError as error:
        lost = _VECTOR.search(str(error))
        if lost is None or "not found" not in str(error).lower():
            raise NotAlignedError(
                f"version {output.version} of {output.uri}: its deletion vectors cannot be read: "
                f"{str(error)[:300]}",
                hint="roll back state and offsets only: --outputs none",
                uri=output.uri,
            ) from None
        return [lost.group()]
    return []
