"""A small Delta table that several processes write, always through deltalake.

deltalake commits by conditional PUT, so concurrent appends are all kept; Spark's own S3 log store
is not safe for several drivers, so Spark never writes these tables. Each row has a checksum of
itself, because Parquet's own are rarely written and never asked for.
"""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from savepoints import faults
from savepoints.delta_reader import files_with, open_delta, small_rows
from savepoints.errors import IncompatibleError, SavepointsError, VerificationError
from savepoints.io import Location, in_parallel, persistently, storage_options
from savepoints.io_errors import plain, unavailable
from savepoints.moments import EPOCH, rfc3339
from savepoints.store.tables import checksums, columns
from savepoints.store.tables.open_tables import OpenTables

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable

_LOG = logging.getLogger(__name__)

# A writer that loses the race for a version number tries the next one, this often.
COMMIT_RETRIES = 50
# One commit adds one small file; so many of them are made one.
COMPACT_FILES = 64
_CHECKSUM = "row_sha256"

# Where a table of a store has files besides those of its rows.
_OF_A_STORE = ("_delta_log/", f"{checksums.DIRECTORY}/")
# The commit that a log begins with, as long as no checkpoint replaces it.
_FIRST = f"_delta_log/{0:020}.json"
# There while a table is made anew, for it is damaged until then.
_UNDER_WAY = f"{checksums.DIRECTORY}/under-way"


@dataclass(frozen=True)
class StoreTable:
    """One Delta table of the store.

    Attributes:
        tables: Those that are open already.
    """

    location: Location
    schema: pa.Schema
    tables: OpenTables = field(default_factory=OpenTables)

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows; none when the table has not been made yet."""

        def read() -> list[dict[str, Any]]:
            table = self._open()
            return [] if table is None else self._rows(table)

        return self.tables.read(self.location, lambda: persistently(read))

    def append(self, rows: list[dict[str, Any]], *, key: str | None = None) -> None:
        """Add rows in one commit; columns that an older version did not have are added.

        Args:
            key: A column; rows with a value in it that the table has are not added.
        """
        from deltalake import write_deltalake

        def write(table: DeltaTable, properties: CommitProperties) -> None:
            there = set() if key is None else self._known(table, key, [row[key] for row in rows])
            if new := [row for row in rows if key is None or row[key] not in there]:
                data = self._arrow(new)
                write_deltalake(
                    table, data, mode="append", schema_mode="merge", commit_properties=properties
                )

        self._compact(self._commit(write))

    def change(
        self, key: tuple[str, ...], decide: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
    ) -> None:
        """Replace rows with the same key and add others, in one commit.

        Args:
            decide: From all rows there are, makes those to write; called again when others were
                faster, so that it never decides on what is old. None to write changes nothing.
        """
        condition = " AND ".join(f"t.{name} = s.{name}" for name in key)

        def write(table: DeltaTable, properties: CommitProperties) -> None:
            rows = decide(self._rows(table))
            if rows:
                (
                    table.merge(
                        self._arrow(rows),
                        condition,
                        source_alias="s",
                        target_alias="t",
                        merge_schema=True,
                        commit_properties=properties,
                    )
                    .when_matched_update_all()
                    .when_not_matched_insert_all()
                    .execute()
                )

        self._commit(write)

    def remove(self, column: str, values: Sequence[str]) -> None:
        """Take away the rows with these values in a column of text; none is no error."""
        if values and self.rows():
            condition = f"{column} IN ({_listed(values)})"
            self._commit(
                lambda table, properties: table.delete(condition, commit_properties=properties)
            )

    def rebuild(self, rows: list[dict[str, Any]], aside: Location) -> None:
        """Put the table aside, whatever is left of it, and make one with these rows.

        Killed anywhere, it is damaged, and does not pass for one that nobody has written to: as its
        data files go first, no rest of it can be read, and the new one is one commit.

        Args:
            aside: An empty directory, where the files of the old table are kept.
        """
        from deltalake import write_deltalake
        from deltalake.exceptions import DeltaError

        old = {info.path for info in self.location.list()} - {_UNDER_WAY}
        in_parallel(lambda path: aside.copy_from(self.location, path, path), list(old))
        self.location.put(_UNDER_WAY, b"the table is being made anew\n")
        known = {path for path in old if path.startswith(_OF_A_STORE)}
        begins = {path for path in known if path == _FIRST or "checkpoint" in path}
        for paths in (old - known, begins, known - begins):
            self.location.delete(paths)
        self.tables.forget(self.location)
        faults.reach("rebuild-catalog.cleared")
        if rows:
            try:
                write_deltalake(
                    str(self.location),
                    self._arrow(rows),
                    storage_options=storage_options(self.location.uri),
                )
            except (DeltaError, OSError) as error:
                raise self._unwritten(error) from None
            checksums.record(self.location, 0)
        self.location.delete([_UNDER_WAY])

    def require_room(self) -> None:
        """Check that there is room for a commit, before anything that goes with it is written.

        On a full disk deltalake tells what happened, and a thread of it panics on stderr as well.

        Raises:
            SavepointsError: If there is too little.
        """
        self.location.require_space()

    def _commit(self, write: Callable[[DeltaTable, CommitProperties], object]) -> DeltaTable:
        """Write to the newest version, again and again while others are faster.

        The commit has a transaction id of its own: when the answer to it is lost, the next attempt
        finds it in the table and does not write twice.
        """
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError, DeltaError

        self.require_room()
        commit_id = str(uuid.uuid4())
        properties = CommitProperties(app_transactions=[Transaction(commit_id, 1)])
        is_repeated = False  # Before that nobody can have written it; to look reads the whole log.

        def attempt() -> DeltaTable:
            nonlocal is_repeated
            looked_for, is_repeated = is_repeated, True
            try:
                table = self._open() or self._make()
                if not looked_for or table.transaction_version(commit_id) is None:
                    write(table, properties)
            except CommitFailedError:
                raise
            except (DeltaError, OSError) as error:
                raise self._unwritten(error) from None
            return table

        for nth in range(COMMIT_RETRIES):
            try:
                table = persistently(attempt)
            except CommitFailedError:
                # The others are done sooner or later.
                _LOG.debug("%s: lost the race for a version, attempt %d", self.location, nth)
                self.tables.forget(self.location)
                continue
            except BaseException:
                self.tables.forget(self.location)  # Nobody knows what it has in memory now.
                raise
            self._committed(table)
            return table
        raise SavepointsError(
            f"{self.location} was changed by other processes during each of {COMMIT_RETRIES} "
            "attempts to write it",
            hint="run the command again",
            table=str(self.location),
        )

    def _committed(self, table: DeltaTable) -> None:
        """Write the checksums of a commit just made, from which the table is read on."""
        etag = checksums.record(self.location, int(table.version()))
        self.tables.committed(self.location, table, etag)

    def _make(self) -> DeltaTable:
        import pyarrow as pa
        from deltalake import DeltaTable

        options = storage_options(self.location.uri)
        table = DeltaTable.create(
            str(self.location),
            self.schema.append(pa.field(_CHECKSUM, pa.string())),
            mode="ignore",
            storage_options=options,
        )
        self.tables.keep(self.location, table, options)
        return table

    def _compact(self, table: DeltaTable) -> None:
        """Write many small files as one, so that reading stays fast; without it nothing is lost.

        Not by OPTIMIZE: its files count as unchanged data, and deltalake lets others commit who
        read those before it, so that rows would be there twice.
        """
        from deltalake import write_deltalake
        from deltalake.exceptions import DeltaError

        try:
            if len(table.file_uris()) >= COMPACT_FILES:
                write_deltalake(table, self._read(table), mode="overwrite")
                self._committed(table)
        except (DeltaError, OSError, SavepointsError) as error:
            _LOG.debug("%s: could not be compacted this time: %s", self.location, error)

    def _arrow(self, rows: list[dict[str, Any]]) -> pa.Table:
        """Make a table of rows with their checksums."""
        import pyarrow as pa

        plain = pa.Table.from_pylist(rows, schema=self.schema)
        hashes = [_checksum(row) for row in plain.to_pylist()]
        return plain.append_column(_CHECKSUM, pa.array(hashes, pa.string()))

    def _open(self) -> DeltaTable | None:
        from deltalake.exceptions import DeltaError

        try:
            return self.tables.newest(self.location, self._open_from_beginning)
        except (DeltaError, OSError) as error:
            raise self._damaged(error) from None

    def _open_from_beginning(self, options: Mapping[str, str]) -> DeltaTable | None:
        from deltalake.exceptions import DeltaError, TableNotFoundError

        # Without its first commit a table is not found either, and must not be made anew; but
        # another process may have made it since it was not found.
        for _ in range(2):
            try:
                table = open_delta(self.location, options=options)
            except TableNotFoundError:
                there = [info.path for info in self.location.list()]
                if not there:
                    return None
                if not any(path.startswith(_OF_A_STORE) for path in there):
                    raise self._foreign("files that savepoints did not write") from None
            except (DeltaError, OSError) as error:
                raise self._damaged(error) from None
            else:
                if _CHECKSUM not in {one.name for one in table.schema().fields}:
                    raise self._foreign("a table that savepoints did not make")
                return table
        raise self._damaged("the start of its log is missing")

    def _rows(self, table: DeltaTable) -> list[dict[str, Any]]:
        read = self.tables.rows(self.location, table, lambda: self._read(table))
        self._refuse_newer(read.schema)
        rows = _python_rows(read)
        for row in rows:
            if row.pop(_CHECKSUM, None) != _checksum(row):
                raise self._damaged(
                    f"the row {next(iter(row.values()))} does not match its checksum"
                )
        return rows

    def _refuse_newer(self, found: pa.Schema) -> None:
        """Refuse rows that say something of which this version knows nothing."""
        unknown = set(columns.names(found)) - {*columns.names(self.schema), _CHECKSUM}
        if unknown:
            raise IncompatibleError(
                f"the table {self.location} has columns that this version of savepoints does not "
                f"know: {', '.join(sorted(unknown))}",
                hint="a newer version has written it: upgrade savepoints on this machine",
                table=str(self.location),
            )

    def _known(self, table: DeltaTable, key: str, values: Sequence[str]) -> set[str]:
        """Return which values of a column of text a table has; only files that may are opened."""
        found = self._read(table, [key], files_with(table, key, values))
        return {str(one) for one in found.column(key).to_pylist()} & set(values)

    def _read(
        self,
        table: DeltaTable,
        columns: Sequence[str] | None = None,
        files: Sequence[str] | None = None,
    ) -> pa.Table:
        """Read rows, by default all."""
        from deltalake.exceptions import DeltaError

        is_whole = columns is None and files is None
        known = self.tables.files(self.location) if is_whole else None
        try:
            return small_rows(self.location, table, columns, files, known=known)
        except (DeltaError, OSError) as error:
            raise self._damaged(error) from None

    def _foreign(self, what: str) -> IncompatibleError:
        """Return the error for a directory that somebody else has filled."""
        root, _, name = str(self.location).rpartition("/")
        return IncompatibleError(
            f"{self.location} has {what}, but a store at {root} would keep its own table there",
            hint=f"choose a directory of its own for the store, such as {root}/savepoints; "
            f"nothing in {name}/ was changed",
            table=str(self.location),
        )

    def _damaged(self, why: object) -> SavepointsError:
        """Return the error for a table that cannot be read: damaged, or out of reach for now."""
        return unavailable(self.location.uri, str(why)) or VerificationError(
            f"the table {self.location} is damaged: {plain(str(why))[:500]}",
            hint="diagnose it: savepoints check; if it is the catalog, rebuild it: savepoints "
            "check --rebuild-catalog",
            table=str(self.location),
        )

    def _unwritten(self, why: object) -> SavepointsError:
        """Return the error for a table that cannot be written."""
        return unavailable(self.location.uri, str(why)) or SavepointsError(
            f"the table {self.location} cannot be written: {plain(str(why))[:500]}",
            hint="diagnose it: savepoints check; on a local disk, check the free space and the "
            "permissions",
            table=str(self.location),
        )


def _listed(values: Sequence[str]) -> str:
    """Return texts as a list in SQL."""
    return ", ".join("'" + value.replace("'", "''") + "'" for value in values)


def _python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as PyArrow does, but for moments, for which it would import pandas.

    That takes as much time as all else that lists a thousand savepoints.
    """
    import pyarrow as pa

    columns = [
        [
            None if value is None else EPOCH + timedelta(microseconds=value)
            for chunk in column.chunks
            for value in chunk.view(pa.int64()).to_pylist()
        ]
        if column.type == pa.timestamp("us", "UTC")
        else column.to_pylist()
        for column in table.itercolumns()
    ]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _checksum(row: dict[str, Any]) -> str:
    """Hash the values of a row; columns that are added later are empty in it and do not count."""
    return hashlib.sha256(json.dumps(_plain(row), sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:  # noqa: ANN401  (JSON is Any)
    # A thousand rows have a hundred thousand values, most of which are these.
    if value.__class__ in {str, int, float}:
        return value
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return rfc3339(value)
    return value
