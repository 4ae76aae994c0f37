"""The one commit of a rewind: rows and transaction ids of a Delta table together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from savepoints.errors import LEAVE_OUTPUTS, NotAlignedError
from savepoints.io_errors import plain
from savepoints.moments import epoch_ms, utc_now
from savepoints.outputs.delta import batch_version, log
from savepoints.outputs.rewind import shared_table

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable


def take_back(
    table: DeltaTable,
    uri: str,
    version: int,
    transactions: Mapping[str, int],
    predicate: str | None = None,
) -> int:
    """Commit rows of an older version together with transaction ids.

    Args:
        predicate: Only rows that match are replaced by those of the version that match.

    Returns:
        The version that the commit made.

    Raises:
        IncompatibleError: If the columns changed since the version, with a predicate.
    """
    from deltalake.exceptions import DeltaError

    since, properties = int(table.version()), _properties(transactions, version)
    try:
        if predicate is not None:
            shared_table.replace(table, uri, predicate, version, properties)
        elif since != version:
            # Columns and properties of the version come back with it; the protocol never goes down.
            table.restore(
                version,
                # It looks for all files in the table's directory; that they are there was seen.
                ignore_missing_files=True,
                commit_properties=properties,
            )
        return _with_ids(table, uri, since, transactions, properties)
    except (DeltaError, OSError) as error:
        raise _failed(uri, since, transactions, error) from None


def remove_all(
    table: DeltaTable, uri: str, transactions: Mapping[str, int], predicate: str | None = None
) -> int:
    """Remove all rows, or those that match, with transaction ids; return the new version."""
    from deltalake.exceptions import DeltaError

    since, properties = int(table.version()), _properties(transactions, None)
    try:
        if predicate is not None:
            shared_table.remove(table, predicate, properties)
        else:
            # Without one, deltalake sees no conflict with an OPTIMIZE, whose files would stay.
            properties.max_commit_retries = 0
            table.delete(commit_properties=properties)
        return _with_ids(table, uri, since, transactions, properties)
    except (DeltaError, OSError) as error:
        raise _failed(uri, since, transactions, error) from None


def _with_ids(
    table: DeltaTable,
    uri: str,
    since: int,
    transactions: Mapping[str, int],
    properties: CommitProperties,
) -> int:
    """Return the version of the commit with the transaction ids; make it where no row changed.

    RESTORE would refuse that, DELETE do nothing. It is found by the ids and in the log: a newer
    version may be another writer's, and a table may forget ids.
    """
    if (made := _version_with(uri, since, transactions)) is not None:
        return made
    table.update_incremental()
    table.create_write_transaction(
        actions=[], mode="append", schema=table.schema(), commit_properties=properties
    )
    made = _version_with(uri, since, transactions)
    assert made is not None, "it was committed"
    return made


def _version_with(uri: str, since: int, transactions: Mapping[str, int]) -> int | None:
    """Return the newest version after another whose commit has transaction ids, None if none."""
    return next(
        (
            one.version
            for one in batch_version.commits_since(uri, since)
            if transactions.items() <= one.transactions.items()
        ),
        None,
    )


def _properties(transactions: Mapping[str, int], back_to: int | None) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    now_ms = epoch_ms(utc_now())
    return CommitProperties(
        custom_metadata={} if back_to is None else {log.BACK_TO: str(back_to)},
        app_transactions=[Transaction(app, at, now_ms) for app, at in transactions.items()],
    )


def _failed(
    uri: str, since: int, transactions: Mapping[str, int], error: Exception
) -> NotAlignedError:
    later = batch_version.commits_since(uri, since)
    others = [one for one in later if not transactions.items() <= one.transactions.items()]
    if others:
        # Of a conflict deltalake says only how often it has tried.
        said = ", ".join(f"version {one.version} ({one.operation})" for one in reversed(others))
        return NotAlignedError(
            f"{uri} could not be rewound and was not changed, because others wrote to it at that "
            f"moment: {said}",
            hint="stop whatever writes to the table (OPTIMIZE and VACUUM, too), then run the "
            "command again",
            uri=uri,
        )
    return NotAlignedError(
        f"{uri} could not be rewound and was not changed: {plain(str(error))[:500]}",
        hint=f"run the command again, or {LEAVE_OUTPUTS}",
        uri=uri,
    )
