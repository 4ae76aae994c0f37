"""A small Delta table that several processes write, always through deltalake.

deltalake commits by conditional PUT, so concurrent appends are all kept; Spark's own S3 log store
is not safe for several drivers, so Spark never writes these tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from savepoints.io import Location, storage_options

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

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
        if table is None:
            return []
        rows: list[dict[str, Any]] = table.to_pyarrow_table().to_pylist()
        return rows

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Add rows in one commit."""
        import pyarrow as pa
        from deltalake import CommitProperties, DeltaTable, write_deltalake

        table = self._open()
        if table is None:
            table = DeltaTable.create(
                str(self.location),
                self.schema,
                mode="ignore",
                storage_options=storage_options(self.location.uri),
            )
        write_deltalake(
            table,
            pa.Table.from_pylist(rows, schema=self.schema),
            mode="append",
            commit_properties=CommitProperties(max_commit_retries=COMMIT_RETRIES),
        )

    def upsert(self, rows: list[dict[str, Any]], key: tuple[str, ...]) -> None:
        """Replace the rows with the same key and add the others, in one commit."""
        import pyarrow as pa
        from deltalake import CommitProperties

        table = self._open()
        if table is None:
            self.append(rows)
            return
        (
            table.merge(
                pa.Table.from_pylist(rows, schema=self.schema),
                " AND ".join(f"t.{name} = s.{name}" for name in key),
                source_alias="s",
                target_alias="t",
                commit_properties=CommitProperties(max_commit_retries=COMMIT_RETRIES),
            )
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        )

    def _open(self) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(
                str(self.location), storage_options=storage_options(self.location.uri)
            )
        except TableNotFoundError:
            return None
