"""Delta tables as deltalake opens them, with each of its panics as an error, and their rows.

Rust panics at some damaged Parquet files. deltalake raises that as a `BaseException`, for which
nobody is prepared; and beneath the C stream through which PyArrow takes its rows, a panic aborts
the process. arro3 takes them without that stream, but keeps Python's lock for as long. So the files
of small tables are fetched whole and decoded by PyArrow, for which a damaged file is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from savepoints.errors import UsageError
from savepoints.io import Location, in_parallel, storage_options
from savepoints.uri import Uri

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable


# The property of a table that keeps its changes beside its rows.
CHANGE_FEED = "delta.enableChangeDataFeed"
# What deltalake reads as something else, so that it would open another directory.
_ESCAPED = re.compile(r"%[0-9A-Fa-f]{2}|\\")
# Of these it opens a table, and panics when it writes.
_UNWRITABLE = re.compile(r"[][^|]")
# Spark's times are INT96 in Parquet, of which DataFusion would make nanoseconds: none after 2262.
AS_SPARK_WROTE = {"datafusion.execution.parquet.coerce_int96": "us"}
# With a higher one Parquet's rows are not yet the table's: deletion vectors, mapped columns.
_PLAIN_READER = 1


def refuse_misread(uri: Uri, what: str = "a Delta table") -> None:
    """Refuse a place that deltalake takes for another one, where another table may be."""
    if found := _ESCAPED.search(str(uri)):
        read_as = "/" if found[0] == "\\" else unquote(found[0])
        raise UsageError(
            f"the URI of {what}, {str(uri)!r}, contains {found[0]!r}, which deltalake takes for "
            f"{read_as!r}: it would read and write in another directory",
            hint="choose a path without \\, in which no '%' stands before two digits or letters A "
            "to F",
            uri=str(uri),
        )


def refuse_unwritable(uri: Uri, what: str = "a Delta table", instead: str = "") -> None:
    """Refuse a place where deltalake cannot write.

    Args:
        instead: What to do about a table that is there already.
    """
    refuse_misread(uri, what)
    if found := _UNWRITABLE.search(str(uri)):
        raise UsageError(
            f"the URI of {what}, {str(uri)!r}, contains {found[0]!r}: deltalake writes no tables "
            "at such a place",
            hint="choose a path without any of the characters [ ] ^ | \\"
            + (f"; or {instead}" if instead else ""),
            uri=str(uri),
        )


def open_delta(
    location: Location, *, version: int | None = None, options: Mapping[str, str] | None = None
) -> DeltaTable:
    """Open a Delta table at a version, by default the newest.

    Args:
        options: deltalake's, by default those of the location.

    Raises:
        UsageError: If deltalake would open a table at another place.
        TableNotFoundError: deltalake's, if there is no table.
        DeltaError: deltalake's, if it cannot be read.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    refuse_misread(location.uri)
    known = storage_options(location.uri) if options is None else dict(options)
    try:
        return DeltaTable(str(location), version=version, storage_options=known)
    except BaseException as error:
        # Each of Rust's libraries has a class of its own for panics, which cannot be imported.
        if type(error).__name__ == "PanicException":
            raise DeltaError(str(error)) from None
        raise


def small_rows(
    location: Location,
    table: DeltaTable,
    columns: Sequence[str] | None = None,
    files: Sequence[str] | None = None,
    *,
    known: dict[str, pa.Table] | None = None,
) -> pa.Table:
    """Return rows of a table without partitions, whose files are small.

    Args:
        location: The table, as it was opened.
        columns: Those to read, by default all.
        files: Paths of the files to read, by default all.
        known: All columns of files that were read before, by path, which are not read again; has
            just those of this table afterwards. A file never changes.

    Returns:
        The rows; a column that a file does not have is null.

    Raises:
        OSError: If a file is missing or damaged; the message names it.
        DeltaError: deltalake's, likewise, where somebody has given the table a newer protocol.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if table.protocol().min_reader_version > _PLAIN_READER:
        return _by_engine(table, columns)
    # Any object with a schema of Arrow, which pyarrow's types do not know.
    whole = pa.schema(table.schema().to_arrow())  # type: ignore[arg-type]
    schema = whole if columns is None else pa.schema([whole.field(name) for name in columns])

    def read(path: str) -> pa.Table:
        try:
            file = pq.ParquetFile(pa.BufferReader(location.get(path)))
            wanted = [name for name in schema.names if name in file.schema_arrow.names]
            # In this thread: one of PyArrow's own, at the end of the process, can abort it.
            found = file.read(wanted, use_threads=False)
            # Writers differ in how they lay out texts.
            return found.cast(pa.schema([schema.field(name) for name in wanted]))
        except (OSError, pa.ArrowException) as error:
            raise OSError(f"{path}: {error}") from None

    # Not `Schema.empty_table`, which imports pandas.
    paths = table.get_add_actions().column("path").to_pylist() if files is None else files
    names = list(map(str, paths))
    there = dict(known or {})
    new = [one for one in names if one not in there]
    there.update(zip(new, in_parallel(read, new), strict=True))
    found = {one: there[one] for one in names}
    if known is not None:
        known.clear()
        known.update(found)
    return pa.concat_tables(
        [pa.Table.from_batches([], schema), *found.values()], promote_options="default"
    )


def _by_engine(table: DeltaTable, columns: Sequence[str] | None) -> pa.Table:
    """Return all rows by deltalake's own engine, which knows every protocol that it can open."""
    import pyarrow as pa
    from deltalake import QueryBuilder

    names = "*" if columns is None else ", ".join(f'"{name}"' for name in columns)
    found = QueryBuilder().register("found", table).execute(f"select {names} from found")  # noqa: S608
    try:
        return pa.RecordBatchReader.from_stream(found).read_all()
    except pa.ArrowException as error:
        raise OSError(str(error)) from None


def files_with(table: DeltaTable, column: str, values: Sequence[str]) -> list[str]:
    """Return the paths of the files that may have one of some texts, by Delta's statistics."""
    actions = table.get_add_actions(flatten=True)
    least, most = (
        actions.column(name).to_pylist() if name in actions.schema.names else [None] * len(actions)
        for name in (f"min.{column}", f"max.{column}")
    )
    return [
        str(path)
        for path, low, high in zip(actions.column("path").to_pylist(), least, most, strict=True)
        if low is None or high is None or any(low <= value <= high for value in values)
    ]
