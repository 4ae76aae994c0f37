"""Delta tables as deltalake reads them, with each of its panics as an error.

Rust panics at some damaged Parquet files. deltalake raises that as a `BaseException`, for which
nobody is prepared; and beneath the C stream through which PyArrow reads, it aborts the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from savepoints.io import Location, storage_options

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable


def open_delta(
    location: Location, *, version: int | None = None, options: Mapping[str, str] | None = None
) -> DeltaTable:
    """Open a Delta table at a version, by default the newest.

    Args:
        location: The table.
        version: The version.
        options: deltalake's storage options, by default those of the location.

    Raises:
        TableNotFoundError: deltalake's, if there is no table.
        DeltaError: deltalake's, if it cannot be read.
    """
    from deltalake import DeltaTable

    known = storage_options(location.uri) if options is None else dict(options)
    with _raised():
        return DeltaTable(str(location), version=version, storage_options=known)


def select(sql: str, **tables: DeltaTable) -> pa.Table:
    """Return the result of a SQL query over Delta tables, by deltalake's own engine.

    PyArrow's would read through Python file objects in threads of its own, and when the process
    ends right after, such a thread can abort it ("terminate called without an active exception").

    Raises:
        DeltaError: deltalake's, if a table cannot be read.
    """
    import pyarrow as pa
    from deltalake import QueryBuilder

    builder = QueryBuilder()
    with _raised():
        for name, table in tables.items():
            builder.register(name, table)
        rows = builder.execute(sql).read_all()
    # `pa.table` would import pandas to find out that this is none of its frames.
    return pa.RecordBatchReader.from_stream(rows).read_all()


@contextmanager
def _raised() -> Iterator[None]:
    """Raise panics, and what the reader raises as a bare `Exception`, as deltalake's error."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except BaseException as error:
        # Each of Rust's libraries has a class of its own for panics, which cannot be imported.
        if type(error) is Exception or type(error).__name__ == "PanicException":
            raise DeltaError(str(error)) from None
        raise
