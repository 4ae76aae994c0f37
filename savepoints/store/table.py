"""A small Delta table that several processes write, always through deltalake.

deltalake commits by conditional PUT, so concurrent appends are all kept; Spark's own S3 log store
is not safe for several drivers, so Spark never writes these tables.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from savepoints.errors import SavepointsError
from savepoints.io import Location, storage_options

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

_LOG = logging.getLogger(__name__)

# A writer that loses the race for a version number tries the next one, this often.
COMMIT_RETRIES = 50


@dataclass(frozen=True)
class StoreTable:
    """One Delta table of the store.

    Attributes:
        location: Its directory.
        schema: Its columns, made when the first row is written.
    """

    location: Location
    schema: pa.Schema

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows; none when the table has not been made yet."""
        table = self._open()
        return [] if table is None else _rows(table)

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Add rows in one commit; columns that an older version did not have are added."""
        from deltalake import write_deltalake

        data = self._arrow(rows)
        self._commit(lambda table: write_deltalake(table, data, mode="append", schema_mode="merge"))

    def change(
        self, key: tuple[str, ...], decide: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
    ) -> None:
        """Replace rows with the same key and add others, in one commit.

        Args:
            key: Columns that identify a row.
            decide: From all rows there are, makes those to write; called again when others were
                faster, so that it never decides on what is old. None to write changes nothing.
        """
        condition = " AND ".join(f"t.{name} = s.{name}" for name in key)

        def write(table: DeltaTable) -> None:
            rows = decide(_rows(table))
            if rows:
                (
                    table.merge(
                        self._arrow(rows),
                        condition,
                        source_alias="s",
                        target_alias="t",
                        merge_schema=True,
                    )
                    .when_matched_update_all()
                    .when_not_matched_insert_all()
                    .execute()
                )

        self._commit(write)

    def _commit(self, write: Callable[[DeltaTable], object]) -> None:
        """Write to the newest version, again and again while others are faster."""
        from deltalake.exceptions import CommitFailedError

        for attempt in range(COMMIT_RETRIES):
            try:
                write(self._open() or self._make())
            except CommitFailedError:
                # Nothing was committed. The others are done sooner or later.
                _LOG.debug("%s: lost the race for a version, attempt %d", self.location, attempt)
                continue
            return
        raise SavepointsError(
            f"{self.location}: others committed {COMMIT_RETRIES} times while this tried to",
            hint="run the command again",
            table=str(self.location),
        )

    def _make(self) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable.create(
            str(self.location),
            self.schema,
            mode="ignore",
            storage_options=storage_options(self.location.uri),
        )

    def _arrow(self, rows: list[dict[str, Any]]) -> pa.Table:
        import pyarrow as pa

        return pa.Table.from_pylist(rows, schema=self.schema)

    def _open(self) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(
                str(self.location), storage_options=storage_options(self.location.uri)
            )
        except TableNotFoundError:
            return None


def _rows(table: DeltaTable) -> list[dict[str, Any]]:
    """Read all rows with deltalake's own engine.

    PyArrow's would read through Python file objects in threads of its own, and when the process
    ends right after, such a thread can abort it ("terminate called without an active exception").
    """
    import pyarrow as pa
    from deltalake import QueryBuilder

    found = QueryBuilder().register("rows", table).execute("select * from rows")
    rows: list[dict[str, Any]] = pa.table(found).to_pylist()
    return rows
