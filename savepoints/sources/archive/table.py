"""The Delta tables of an archive, which only deltalake commits to.

The archive's own query and a merge may write at one moment, from two drivers. deltalake commits by
conditional PUT, Spark's log store on S3 does not; so Spark writes only the Parquet files, each
batch into a directory of its own, and deltalake adds them to the table.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from savepoints.delta_reader import open_delta, refuse_unwritable, small_rows
from savepoints.errors import NotFoundError, QueryRunningError, SavepointsError, VerificationError
from savepoints.io import Location, persistently, storage_options
from savepoints.io_errors import plain, unavailable
from savepoints.moments import epoch_ms, utc_now

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable, Schema

# In the `commitInfo` of a batch: what arrived with it.
NOTE = "savepointsArchive"
# Commits searched for a note; the newest batch is rarely more than a few back.
_RECENT = 100
# Transaction id of commits that replace files.
_EXCHANGES = "savepoints-exchange"


@dataclass(frozen=True)
class File:
    """A data file of the table."""

    path: str
    size: int
    rows: int
    lowest: Mapping[str, Any]
    highest: Mapping[str, Any]

    @property
    def stats(self) -> str:
        """Delta's per-file statistics ("Per-file Statistics" in its protocol)."""
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": dict(self.lowest),
                "maxValues": dict(self.highest),
            }
        )


def open_if_exists(location: Location) -> DeltaTable | None:
    """Open a table; None where there is none."""
    from deltalake.exceptions import DeltaError, TableNotFoundError

    def attempt() -> DeltaTable | None:
        try:
            return open_delta(location)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise _damaged(location, error) from None

    return persistently(attempt)


def require(location: Location) -> DeltaTable:
    """Open a table."""
    table = open_if_exists(location)
    if table is None:
        raise NotFoundError(
            f"there is no archive at {location}",
            hint="create it: python -m savepoints.jobs.archive QUERY INPUT --until latest",
            uri=str(location),
        )
    return table


def make(location: Location, schema: Schema | pa.Schema) -> DeltaTable:
    """Open a table, and create it if there is none."""
    from deltalake import DeltaTable

    refuse_unwritable(location.uri)
    options = storage_options(location.uri)
    return open_if_exists(location) or DeltaTable.create(
        str(location), schema, mode="ignore", storage_options=options
    )


def rows(location: Location) -> list[dict[str, Any]]:
    """Return all rows of a small table; none where there is no table."""

    def read() -> list[dict[str, Any]]:
        table = open_if_exists(location)
        return [] if table is None else _read(location, table)

    return persistently(read)


def _read(location: Location, table: DeltaTable) -> list[dict[str, Any]]:
    from deltalake.exceptions import DeltaError

    try:
        found = small_rows(location, table)
    except (DeltaError, OSError) as error:
        raise _damaged(location, error) from None
    return [dict(row) for row in found.to_pylist()]


def append_rows(
    location: Location, data: Sequence[Mapping[str, Any]], schema: pa.Schema, app: str, version: int
) -> None:
    """Add rows to a small table in one commit, unless it is already recorded."""
    import pyarrow as pa
    from deltalake import write_deltalake

    content = pa.Table.from_pylist(list(data), schema=schema)

    def write(table: DeltaTable, properties: CommitProperties) -> None:
        write_deltalake(table, content, mode="append", commit_properties=properties)

    commit(location, make(location, schema), app, version, write)


def append_files(
    location: Location,
    files: Sequence[File],
    app: str,
    version: int,
    note: Mapping[str, Any],
    *,
    after: int | None = None,
) -> bool:
    """Add files to the table in one commit, stored with a note; see `note_of`.

    Args:
        after: The version that the table has under this id until then, if it has any.

    Returns:
        False if the table has the version already: nothing was added.

    Raises:
        QueryRunningError: If it has another one by now: the files may have the same events.
    """
    from deltalake.transaction import AddAction

    now = epoch_ms(utc_now())

    def write(table: DeltaTable, properties: CommitProperties) -> None:
        if (known := table.transaction_version(app)) not in {None, after}:
            raise QueryRunningError(
                f"another process has written to the archive {location} up to transaction version "
                f"{known} since this batch began at {after}",
                hint="run only one job per archive; this batch was not added, and the next run "
                "continues where the archive ends",
                uri=str(location),
            )
        table.create_write_transaction(
            [
                AddAction(one.path, one.size, {}, now, data_change=True, stats=one.stats)
                for one in files
            ],
            mode="append",
            schema=table.schema(),
            commit_properties=properties,
        )

    return commit(location, require(location), app, version, write, note)


def files(table: DeltaTable) -> list[File]:
    """Return the data files of a table."""
    import pyarrow as pa

    found = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [
        File(
            row["path"],
            row["size_bytes"],
            row["num_records"],
            _known(row, "min."),
            _known(row, "max."),
        )
        for row in found
    ]


def _known(row: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): value
        for name, value in row.items()
        if name.startswith(prefix) and value is not None
    }


def exchange(
    location: Location, table: DeltaTable, old: Sequence[File], new: Sequence[File]
) -> None:
    """Replace files by others with the same rows, in one commit; nobody else may meanwhile."""
    from deltalake.transaction import AddAction, RemoveAction

    now = epoch_ms(utc_now())
    gone = [RemoveAction(one.path, False, now, one.size, {}) for one in old]  # noqa: FBT003
    come = [
        AddAction(one.path, one.size, {}, now, data_change=False, stats=one.stats) for one in new
    ]
    # deltalake lets two commits remove the same file; one transaction id for all tells them apart.
    version = (table.transaction_version(_EXCHANGES) or 0) + 1
    mine = uuid.uuid4().hex

    def write(table: DeltaTable, properties: CommitProperties) -> None:
        table.create_write_transaction(
            [*come, *gone], mode="append", schema=table.schema(), commit_properties=properties
        )

    commit(location, table, _EXCHANGES, version, write, {"id": mine})
    said = note_of(table, _EXCHANGES, version)
    if said is None or said["id"] != mine:
        raise QueryRunningError(
            f"another process is already compacting the archive {location}",
            hint="wait for that process to finish; this one changed nothing",
            uri=str(location),
        )


def change_rows(
    location: Location,
    schema: pa.Schema,
    change: Callable[[list[dict[str, Any]]], Sequence[Mapping[str, Any]]],
) -> None:
    """Rewrite a small table as one file; rows added meanwhile are kept."""
    import pyarrow as pa
    from deltalake import write_deltalake

    def write(table: DeltaTable, properties: CommitProperties) -> None:
        # Read at this version: what is not in it is not overwritten.
        content = pa.Table.from_pylist(list(change(_read(location, table))), schema=schema)
        write_deltalake(table, content, mode="overwrite", commit_properties=properties)

    table = open_if_exists(location)
    if table is not None:
        version = (table.transaction_version(_EXCHANGES) or 0) + 1
        commit(location, table, _EXCHANGES, version, write)


def commit(
    location: Location,
    table: DeltaTable,
    app: str,
    version: int,
    write: Callable[[DeltaTable, CommitProperties], None],
    note: Mapping[str, Any] | None = None,
) -> bool:
    """Commit under a transaction id, unless the table already has it.

    Returns:
        False if it has: somebody has committed it, maybe this process in an attempt that failed
        afterwards.

    Raises:
        QueryRunningError: If somebody else commits under this id at the same time.
    """
    from deltalake import CommitProperties, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError

    said = {NOTE: json.dumps({"app": app, "version": version, **note})} if note else {}
    now = epoch_ms(utc_now())
    properties = CommitProperties(
        custom_metadata=said, app_transactions=[Transaction(app, version, now)]
    )

    def attempt() -> bool:
        table.update_incremental()
        if has(table, app, version):
            return False
        try:
            write(table, properties)
            table.update_incremental()
        except CommitFailedError as error:
            raise QueryRunningError(
                f"another process is writing to the archive {location} (transaction version "
                f"{version}): {error}",
                hint="let that process finish, and run only one job per archive; the archive "
                "is intact",
                uri=str(location),
            ) from None
        except (DeltaError, OSError) as error:
            raise unavailable(location.uri, str(error)) or SavepointsError(
                f"the archive {location} cannot be written: {plain(str(error))[:500]}",
                hint="check the free space and the permissions there, then run the command again",
                uri=str(location),
            ) from None
        return True

    return persistently(attempt)


def has(table: DeltaTable, app: str, version: int) -> bool:
    """Return True if a table has a transaction's version or a later one."""
    known = table.transaction_version(app)
    return known is not None and known >= version


def note_of(table: DeltaTable, app: str, version: int) -> dict[str, Any] | None:
    """Return a commit's note; None when the log no longer has it."""
    for info in table.history(_RECENT):
        said = json.loads(info.get(NOTE) or "{}")
        if said.get("app") == app and said.get("version") == version:
            return dict(said)
    return None


def _damaged(location: Location, why: object) -> SavepointsError:
    return unavailable(location.uri, str(why)) or VerificationError(
        f"the archive table {location} is damaged: {plain(str(why))[:500]}",
        hint="archive the topic from Kafka again, at another URI",
        uri=str(location),
    )
