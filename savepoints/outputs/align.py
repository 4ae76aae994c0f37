"""Which version of a Delta output belongs to a batch.

Every batch that writes leaves a `txn` action with its batch id in the commit (Delta protocol,
"Transaction Identifiers"). So the log, walked from the newest commit back, says which version has
exactly the batches up to N. This is done when the savepoint is taken and the answer is kept: after
a rewind, older lineages are ambiguous.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from savepoints.errors import FileSinkError, NotAlignedError, NotFoundError
from savepoints.io import Location, storage_options
from savepoints.model import OutputVersion

if TYPE_CHECKING:
    from deltalake import DeltaTable

_FILE_SINK_LOG = "_spark_metadata"


@dataclass(frozen=True)
class Commit:
    """One commit of a table's log.

    Attributes:
        version: The table version that it made.
        operation: What Delta calls it, such as `MERGE`.
        transactions: Its `txn` actions: version by application id.
        changes_data: Whether rows were added or removed; OPTIMIZE, for one, says that it did not.
    """

    version: int
    operation: str
    transactions: dict[str, int]
    changes_data: bool


def open_table(uri: str, version: int | None = None) -> DeltaTable:
    """Open a Delta table at a version, the newest by default.

    Raises:
        NotFoundError: If there is no Delta table.
        FileSinkError: If it is a directory of Spark's file sink.
        NotAlignedError: If the version cannot be read (any more).
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    location = Location.of(uri)
    try:
        return DeltaTable(
            str(location), version=version, storage_options=storage_options(location.uri)
        )
    except TableNotFoundError:
        if location.list(_FILE_SINK_LOG):
            raise FileSinkError(
                f"{location} is written by Spark's file sink, which silently drops every batch "
                "whose id it has seen, so nothing can be taken back there",
                hint="leave it out, and give a restored query a new directory to write to",
                uri=str(location),
            ) from None
        raise NotFoundError(
            f"there is no Delta table at {location}",
            hint="check the URI of the output",
            uri=str(location),
        ) from None
    except (DeltaError, OSError) as error:
        raise NotAlignedError(
            f"version {version} of {location} cannot be read: {error}",
            hint="it may have been removed by Delta's retention; see delta.logRetentionDuration",
            uri=str(location),
            version=version,
        ) from None


def table_id(table: DeltaTable) -> str:
    """Return Delta's own id of a table."""
    return str(table.metadata().id)


def version_of_batch(name: str, uri: str, app_ids: Sequence[str], batch_id: int) -> OutputVersion:
    """Find the version of an output that holds exactly the batches up to N.

    Args:
        name: What the output is called.
        uri: Its table.
        app_ids: The `txn` application ids under which the query may write; the first that the table
            knows is the one, or the first of all when it knows none yet.
        batch_id: N.

    Raises:
        NotFoundError: If there is no table.
        NotAlignedError: If the log no longer goes back to batch N.
    """
    table = open_table(uri)
    known = (app for app in app_ids if table.transaction_version(app) is not None)
    app_id = next(known, app_ids[0])
    found = _newest_with(uri, table.version(), app_id, batch_id)
    return OutputVersion(
        name, str(Location.of(uri)), table_id(table), found.version, app_id,
        found.transactions.get(app_id),
    )  # fmt: skip


def foreign_commits(uri: str, since: int, owners: tuple[str, ...]) -> list[Commit]:
    """Return commits after a version that changed rows and are not the query's own.

    Args:
        uri: The table.
        since: The version; commits after it are looked at.
        owners: Beginnings of application ids that are the query's own.

    Returns:
        The foreign commits, the newest first.

    Raises:
        NotAlignedError: If the log no longer goes back that far.
    """
    newest = open_table(uri).version()
    later = [commit for commit in commits(uri, newest) if commit.version > since]
    if len(later) < newest - since:
        raise NotAlignedError(
            f"the log of {uri} no longer shows who wrote versions {since + 1} to {newest}",
            hint="roll back state and offsets only: --outputs none",
            uri=uri,
        )
    return [
        commit
        for commit in later
        if commit.changes_data and not any(app.startswith(owners) for app in commit.transactions)
    ]


def commits(uri: str, newest: int) -> Iterator[Commit]:
    """Walk a table's log from the newest commit back, as far as its JSON files are kept."""
    log = Location.of(uri) / "_delta_log"
    for version in range(newest, -1, -1):
        try:
            yield parse_commit(version, log.get(f"{version:020}.json"))
        except FileNotFoundError:
            return


def parse_commit(version: int, data: bytes) -> Commit:
    """Read one commit file of a Delta log."""
    operation, transactions, changes = "", {}, False
    for line in data.decode().splitlines():
        action: dict[str, Any] = json.loads(line)
        if "commitInfo" in action:
            operation = str(action["commitInfo"].get("operation", ""))
        elif "txn" in action:
            transactions[str(action["txn"]["appId"])] = int(action["txn"]["version"])
        elif "add" in action or "remove" in action:
            changes = changes or bool((action.get("add") or action["remove"])["dataChange"])
    return Commit(version, operation, transactions, changes)


def _newest_with(uri: str, newest: int, app_id: str, batch_id: int) -> Commit:
    passed: list[Commit] = []
    for commit in commits(uri, newest):
        if commit.transactions.get(app_id, batch_id + 1) <= batch_id:
            return commit
        passed.append(commit)
    strange = [one for one in passed if one.changes_data and app_id not in one.transactions]
    if strange:
        raise NotAlignedError(
            f"rows were written to {uri} without a transaction id of {app_id}, for example version "
            f"{strange[0].version} ({strange[0].operation}): which batch they belong to is unknown",
            hint="write batches with the options txnAppId and txnVersion, or leave the table out",
            uri=uri,
            batch_id=batch_id,
            app_id=app_id,
        )
    if passed and passed[-1].version == 0:
        # Nothing was written up to that batch: the table as it was made.
        return passed[-1]
    raise NotAlignedError(
        f"the log of {uri} no longer shows which version belongs to batch {batch_id} of {app_id}",
        hint="take the savepoint at a newer batch, or raise delta.logRetentionDuration",
        uri=uri,
        batch_id=batch_id,
        app_id=app_id,
    )
