"""Which version of an output belongs to a batch.

Every batch that writes to a Delta table leaves a `txn` action with its batch id in the commit
(Delta protocol, "Transaction Identifiers"). So the log, walked from the newest commit back, says
which version has exactly the batches up to N; where its older commits were cleaned up, a log
checkpoint may still say it. This is done when the savepoint is taken and the answer is kept: after
a rewind, older lineages are ambiguous.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.delta_reader import open_delta
from savepoints.errors import (
    LEAVE_OUTPUTS,
    FileSinkError,
    IncompatibleError,
    NotAlignedError,
    NotFoundError,
)
from savepoints.io import Location
from savepoints.io_errors import plain
from savepoints.model import OutputVersion
from savepoints.outputs.delta import log
from savepoints.outputs.delta.log import Commit
from savepoints.outputs.delta.write import is_later_generation, is_same_generation
from savepoints.outputs.file_sink import file_sink
from savepoints.spark.columns import quoted
from savepoints.uri import Uri

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType

# After such a time Delta forgets a transaction id, and a checkpoint without it says nothing.
RETENTION_OF_IDS = "delta.setTransactionRetentionDuration"
# Clocks of two machines that write one table differ by less.
_CLOCKS_APART_MS = 24 * 3600 * 1000


@dataclass(frozen=True)
class _Found:
    version: int
    app_version: int | None


def has_batch(uri: str, app: str, batch_id: int) -> bool:
    """Return True if a table, if there is one, has a batch, by the transaction id that wrote it."""
    try:
        newest = open_table(uri).transaction_version(app)
    except NotFoundError:
        return False
    return newest is not None and newest >= batch_id


def was_written(
    uri: str, app: str, batch_id: int, begun_ms: int, *, drivers: Iterable[str] = ()
) -> bool:
    """Return True if a table, if there is one, has a batch, even if it has forgotten the id.

    Args:
        app: The id that only the query's generation writes under.
        drivers: Ids that a driver of the user's writes under. Other generations of the query may
            have written batches of the same numbers under them, which count for older.
        begun_ms: When the batch was begun, in milliseconds since 1970 by its driver's clock.
            Commits from before cannot have it, and are not looked at.

    Raises:
        NotAlignedError: If the table has forgotten the id and its log does not go back so far.
    """
    try:
        table = open_table(uri)
    except NotFoundError:
        return False
    version, forgets = int(table.version()), RETENTION_OF_IDS in table.metadata().configuration
    newest = table.transaction_version(app)
    if newest is None and forgets:
        newest = _logged(uri, app, version, begun_ms - _CLOCKS_APART_MS)
    if newest is not None and newest >= batch_id:
        return True
    for driver in drivers:
        known = table.transaction_version(driver)
        if forgets if known is None else known >= batch_id:
            # By one clock, which is that of the driver that has begun the batch.
            since = _logged(uri, driver, version, begun_ms)
            if since is not None and since >= batch_id:
                return True
    return False


def _logged(uri: str, app: str, newest: int, since_ms: int) -> int | None:
    """Return what the newest commit under a transaction id recorded, None if there is none."""
    oldest = newest + 1
    for commit in log.commits(uri, newest):
        if commit.timestamp_ms is not None and commit.timestamp_ms < since_ms:
            return None
        if app in commit.transactions:
            return commit.transactions[app]
        oldest = commit.version
    if oldest == 0:
        return None
    raise NotAlignedError(
        f"{uri} forgets transaction ids ({RETENTION_OF_IDS}), and its log no longer shows what was "
        f"written under {app}",
        hint="roll back to a savepoint: savepoints rollback latest; to keep ids and the log "
        f"longer, raise {RETENTION_OF_IDS} and delta.logRetentionDuration",
        uri=uri,
        app_id=app,
    )


def open_table(uri: str, version: int | None = None) -> DeltaTable:
    """Open a Delta table at a version, by default the newest.

    Raises:
        NotFoundError: If there is no table.
        FileSinkError: If a file sink of Spark writes there.
        NotAlignedError: If the version is gone.
    """
    from deltalake.exceptions import DeltaError, TableNotFoundError

    location = Location.of(uri)
    try:
        table = open_delta(location, version=version)
    except TableNotFoundError:
        if file_sink.is_one(location):
            raise FileSinkError(
                f"{location} is written by Spark's file sink and is not a Delta table",
                hint="name a Delta table, or a location that is still empty",
                uri=str(location),
            ) from None
        if version is not None:
            # deltalake says the same where only the commits up to the version are gone.
            raise _lost(location, version) from None
        raise NotFoundError(
            f"there is no Delta table at {location}",
            hint="correct the URI of the output",
            uri=str(location),
        ) from None
    except (DeltaError, OSError) as error:
        what = str(location) if version is None else f"version {version} of {location}"
        raise NotAlignedError(
            f"{what} cannot be read: {plain(str(error))[:500]}",
            hint="check whether Delta's retention (delta.logRetentionDuration) has removed "
            "commits that are needed, and whether you have permission to read the table",
            uri=str(location),
            version=version,
        ) from None
    if version is not None and not log.is_whole(uri, version):
        raise _lost(location, version)
    return table


def _lost(location: Location, version: int) -> NotAlignedError:
    newest = open_table(str(location)).version()
    return NotAlignedError(
        f"version {version} of {location} can no longer be read: its log, now at version {newest}, "
        "does not go back so far (delta.logRetentionDuration)",
        hint=f"choose a newer savepoint: savepoints list; or {LEAVE_OUTPUTS}",
        uri=str(location),
        version=version,
    )


def require_columns(uri: str, written: StructType) -> None:
    """Check that a table has all columns that are to be written, and name those it lacks.

    MERGE updates and inserts those that the table has, and silently drops the values of others.
    """
    refuse_lacking(uri, {field.name for field in open_table(uri).schema().fields}, written)


def refuse_lacking(uri: str, there: Iterable[str], written: StructType) -> None:
    """Refuse columns that a table with these does not have; see `require_columns`."""
    known = {name.casefold() for name in there}
    if lacking := [field for field in written.fields if field.name.casefold() not in known]:
        names = [field.name for field in lacking]
        columns = ", ".join(f"{quoted(one.name)} {one.dataType.simpleString()}" for one in lacking)
        raise IncompatibleError(
            f"{uri} lacks columns that the program writes: {', '.join(names)}; their values would "
            "be dropped",
            hint=f"add them with Spark SQL: ALTER TABLE delta.`{Uri.parse(uri).for_spark}` ADD "
            f"COLUMNS ({columns}), or remove them from what the program writes; once they are "
            "added, a program that does not write them can no longer upsert into the table",
            uri=uri,
            columns=names,
        )


def table_id(table: DeltaTable) -> str:
    """Return Delta's own id of a table."""
    return str(table.metadata().id)


def version_of_batch(name: str, uri: str, app_ids: Sequence[str], batch_id: int) -> OutputVersion:
    """Find the version of an output that holds exactly the batches up to N.

    Args:
        app_ids: The `txn` application ids under which the query may write. Its batches are looked
            for under all of them, and under those of the same generation that call the output
            otherwise, as an App and a driver may; the first that the table knows is the one under
            which it continues, or the first of all when it knows none yet.
    """
    location = Location.of(uri)
    try:
        table = open_table(uri)
    except FileSinkError:
        return file_sink.version_of_batch(name, location, batch_id)
    if known := _known(uri, table, app_ids):
        app_id, found = known[0], _of_writer(uri, table, app_ids, batch_id)
    else:
        app_id, found = app_ids[0], _of_nobody(uri, table, app_ids, batch_id)
    return OutputVersion(
        name, str(location), table_id(table), found.version, app_id, found.app_version
    )


def present(name: str, uri: str, app_id: str) -> OutputVersion:
    """Return an output as it is now, whatever batch that is."""
    location = Location.of(uri)
    try:
        table = open_table(uri)
    except FileSinkError:
        return file_sink.present(name, location)
    at = table.transaction_version(app_id)
    return OutputVersion(name, str(location), table_id(table), int(table.version()), app_id, at)


def foreign_commits(uri: str, since: int, owner: str, app_ids: tuple[str, ...]) -> list[Commit]:
    """Return commits after a version that changed rows and are not the query's own.

    Returns:
        The foreign commits, the newest first.
    """
    return [
        one
        for one in commits_since(uri, since)
        if one.changes_data and not one.written_by(owner, app_ids)
    ]


def commits_since(uri: str, since: int) -> list[Commit]:
    """Return all commits after a version that the log goes back to, the newest first."""
    newest = open_table(uri).version()
    later = []
    for commit in log.commits(uri, newest):
        if commit.version <= since:
            break
        later.append(commit)
    if len(later) < newest - since:
        raise NotAlignedError(
            f"{uri} cannot be rewound, because its log no longer shows which query wrote "
            f"versions {since + 1} to {newest}",
            hint=LEAVE_OUTPUTS,
            uri=uri,
        )
    return later


def commit_under(uri: str, app: str, since: int) -> Commit | None:
    """Return the newest commit after a version that has a transaction id, None if none has.

    Of ids that were written under long ago only the log tells: in a table that has
    `delta.setTransactionRetentionDuration` they expire.

    Raises:
        NotAlignedError: If the log no longer goes back to that version.
    """
    return next((one for one in commits_since(uri, since) if app in one.transactions), None)


def commit_of_batch(uri: str, app_id: str, batch_id: int) -> Commit:
    """Return the newest commit that recorded a batch under a transaction id.

    Raises:
        NotAlignedError: If the log does not have it, or no longer.
    """
    newest = int(open_table(uri).version())
    for one in log.commits(uri, newest):
        if one.transactions.get(app_id) == batch_id:
            return one
    raise NotAlignedError(
        f"the log of {uri} no longer has the commit of batch {batch_id} of {app_id}",
        hint=f"see what the log has, with Spark SQL: DESCRIBE HISTORY delta.`{uri}`; to keep it "
        "longer, raise delta.logRetentionDuration",
        uri=uri,
        app_id=app_id,
        batch_id=batch_id,
    )


def _known(uri: str, table: DeltaTable, app_ids: Sequence[str]) -> list[str]:
    """Return the application ids that a table knows, or its log, if it forgets them."""
    known = [app for app in app_ids if table.transaction_version(app) is not None]
    known = known or _ours(log.transactions(uri, int(table.version())), app_ids)
    if known or RETENTION_OF_IDS not in table.metadata().configuration:
        return known
    found = (
        _ours(commit.transactions, app_ids) for commit in log.commits(uri, int(table.version()))
    )
    return next(filter(None, found), [])


def _of_writer(uri: str, table: DeltaTable, app_ids: Sequence[str], batch_id: int) -> _Found:
    """Find the version with the batches of application ids of which the table knows some."""
    newest = int(table.version())
    oldest, following, start = newest + 1, newest + 1, newest
    for commit in log.commits(uri, newest):
        if commit.version > start:
            continue
        oldest, at = commit.version, _reached(commit.transactions, app_ids)
        if at is None:
            continue
        if _ended(commit.transactions, app_ids) or _was_over(uri, commit, app_ids):
            # What the generation wrote lies before the rewind, also what that took back.
            following = commit.version
            continue
        if at <= batch_id:
            return _Found(commit.version, at)
        following = commit.version
        if commit.back_to is not None:
            # Its own rewind: what counts are the batches up to the version that it went back to.
            start, oldest, following = commit.back_to, commit.back_to + 1, commit.back_to + 1
    if oldest > 0:
        return _of_checkpoints(uri, table, app_ids, batch_id, oldest, following)
    if following == 0:
        raise NotAlignedError(
            f"{uri} was created after batch {batch_id}, by a later batch of "
            f"{' or '.join(app_ids)}, so it has no version for that batch",
            hint="take a savepoint of a newer batch",
            uri=uri,
            batch_id=batch_id,
            app_ids=list(app_ids),
        )
    # Nothing was written up to that batch: the table as it was before the first.
    return _Found(following - 1, None)


def _reached(transactions: dict[str, int], app_ids: Sequence[str]) -> int | None:
    """Return the newest batch under any of the ids, None when there is none of them."""
    return max((transactions[one] for one in _ours(transactions, app_ids)), default=None)


def _ours(transactions: Collection[str], app_ids: Sequence[str]) -> list[str]:
    """Return the given ids, and those of their generations under other names of the output."""
    same = [
        app
        for app in transactions
        if app not in app_ids and any(is_same_generation(app, one) for one in app_ids)
    ]
    return [*(app for app in app_ids if app in transactions), *same]


def _ended(transactions: dict[str, int], app_ids: Sequence[str]) -> bool:
    """Return True if a later generation continues from there: this one does not end there.

    That one has written, or a rewind made way for it; one that was undone has the value 0.
    """
    later = [
        at
        for app, at in transactions.items()
        if app not in app_ids and any(is_later_generation(app, than) for than in app_ids)
    ]
    begun = any(transactions[one] for one in log.rewinds(transactions))
    return max(later, default=-1) >= 0 or (bool(later) and begun)


def _was_over(uri: str, commit: Commit, app_ids: Sequence[str]) -> bool:
    """Return True if a commit undid the way back to a generation that had ended, and has still.

    It names that one and the next, which never began; the one between, whose rows are there again,
    is known by the ids in force alone.
    """
    operations = log.rewinds(commit.transactions)
    if not operations or any(commit.transactions[one] for one in operations):
        return False
    known = log.transactions(uri, commit.version)
    return _ended({app: known[app] for app in known.keys() - log.rewinds(known)}, app_ids)


def _of_checkpoints(
    uri: str, table: DeltaTable, app_ids: Sequence[str], batch_id: int, oldest: int, following: int
) -> _Found:
    """Find the version among the log's checkpoints, where the JSON of the commit is gone."""
    forgetful = RETENTION_OF_IDS in table.metadata().configuration
    rewound = log.rewinds(log.transactions(uri, int(table.version())))
    for saved in log.checkpoints(uri):
        if saved.version >= following:
            continue
        ids = saved.transactions(log.log_of(uri))
        at = _reached(ids, app_ids)
        if (at is not None and at > batch_id) or _ended(ids, app_ids):
            continue
        # Whether the JSON shows that no batch was written between it and the following one.
        gapless = saved.version >= oldest - 1
        if gapless and (at is not None or not forgetful):
            return _Found(saved.version, at)
        # Batch N itself stands there, and it is not that of a lineage that was rewound since.
        if at == batch_id and log.rewinds(ids) == rewound:
            return _Found(saved.version, at)
        break
    raise NotAlignedError(
        f"the log of {uri} no longer shows which version belongs to batch {batch_id} of "
        f"{' or '.join(app_ids)}: commits before version {oldest} were removed, and no "
        "checkpoint in the log shows it either",
        hint="take a savepoint of a newer batch; to keep the log longer, raise "
        "delta.logRetentionDuration",
        uri=uri,
        batch_id=batch_id,
        app_ids=list(app_ids),
    )


def _of_nobody(uri: str, table: DeltaTable, app_ids: Sequence[str], batch_id: int) -> _Found:
    """Find the version while none of the query's ids is known: only before its first row."""
    newest, oldest = int(table.version()), int(table.version()) + 1
    foreign: Commit | None = None
    for commit in log.commits(uri, newest):
        oldest = commit.version
        foreign = commit if commit.changes_data else foreign
    forgetful = RETENTION_OF_IDS in table.metadata().configuration
    if foreign is None and (oldest == 0 or not (forgetful or table.file_uris())):
        # Not the first version: columns and properties may have been set since.
        return _Found(newest, None)
    known = sorted(log.transactions(uri, newest).items())
    listed = ", ".join(f"{app} (at {at})" for app, at in known) or "none"
    example = f", for example in version {foreign.version} ({foreign.operation})" if foreign else ""
    raise NotAlignedError(
        f"rows were written to {uri} without the transaction id "
        f"{' or '.join(app_ids)}{example}, so it is unknown which batch they belong to; the "
        f"transaction ids of the table: {listed}",
        hint="in [queries.NAME.app_ids], set the id under which the query writes; or write "
        "with the options txnAppId and txnVersion; or remove this table from the query's outputs",
        uri=uri,
        batch_id=batch_id,
        app_ids=list(app_ids),
        transactions=dict(known),
    )
