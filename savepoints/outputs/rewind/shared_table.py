"""The rows of a shared table that are the query's own, by a predicate that the user declared.

The declaration is checked before it is used: of every stretch of commits of one side, the rows of
the other must be the same before and after, compared row by row as often as they occur. That reads
the table twice for each change between writers since the savepoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from savepoints.delta_reader import AS_SPARK_WROTE
from savepoints.errors import LEAVE_OUTPUTS, IncompatibleError, NotAlignedError
from savepoints.io_errors import plain
from savepoints.outputs.delta import batch_version
from savepoints.outputs.delta.log import Commit

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable

# DataFusion would make `customerId` in the predicate `customerid`.
_AS_WRITTEN = {**AS_SPARK_WROTE, "datafusion.sql_parser.enable_ident_normalization": "false"}
# Microseconds since 1970, either way, that are 64 bits of nanoseconds: up to the year 2262.
_NANOSECONDS = (2**63 - 1) // 1000


def require_usable(table: DeltaTable, uri: str, predicate: str) -> None:
    """Check that a predicate can be asked of a table."""
    _any(uri, predicate, f"SELECT 1 FROM one WHERE ({predicate}) LIMIT 1", one=table)  # noqa: S608


def check(uri: str, predicate: str, since: int, owner: str, app_ids: tuple[str, ...]) -> None:
    """Check that the query wrote only rows that match since a version, and others none of them."""
    changing = [
        one for one in reversed(batch_version.commits_since(uri, since)) if one.changes_data
    ]
    for first, last, own in _stretches(changing, owner, app_ids):
        where = f"(({predicate}) IS NOT TRUE)" if own else f"({predicate})"
        if same_rows(uri, first - 1, last, where):
            continue
        versions = f"version {last}" if first == last else f"versions {first} to {last}"
        who = "the query wrote rows that do not match" if own else "others changed rows that match"
        raise NotAlignedError(
            f"own_rows is {predicate!r}, but in {versions} of {uri} {who} it",
            hint=f"correct [queries.NAME.own_rows], or {LEAVE_OUTPUTS}",
            uri=uri,
            versions=[first, last],
        )


def same_rows(uri: str, one: int, other: int, where: str) -> bool:
    """Return True if two versions have the same matching rows; their columns must be the same."""
    left, right = batch_version.open_table(uri, one), batch_version.open_table(uri, other)
    if left.schema() != right.schema():
        raise IncompatibleError(
            f"the columns of {uri} changed between versions {one} and {other}, so only the "
            "whole table can be rewound, not just the rows that match own_rows",
            hint="to rewind the whole table, including the rows that others wrote, remove this "
            f"output from [queries.NAME.own_rows]; or {LEAVE_OUTPUTS}",
            uri=uri,
        )
    columns = _columns(left)
    # The predicate is the user's own, and all that can be run here are queries of this table.
    sql = (
        f'SELECT {columns} FROM (SELECT {columns}, 1 AS "+-" FROM one WHERE {where} UNION ALL '  # noqa: S608
        f'SELECT {columns}, -1 AS "+-" FROM other WHERE {where}) GROUP BY {columns} '
        'HAVING sum("+-") <> 0 LIMIT 1'
    )
    return not _any(uri, where, sql, one=left, other=right)


def replace(
    table: DeltaTable, uri: str, predicate: str, version: int, properties: CommitProperties
) -> None:
    """Put the matching rows of an older version in place of those there, in one commit."""
    from deltalake import write_deltalake

    if same_rows(uri, version, table.version(), f"({predicate})"):
        return
    then = batch_version.open_table(uri, version)
    if _is_misread(table) or _is_misread(then):
        _write_anew(table, predicate, properties, then)
        return
    rows = then.scan(predicate=predicate)
    write_deltalake(
        table, rows, mode="overwrite", predicate=predicate, commit_properties=properties
    )


def remove(table: DeltaTable, predicate: str, properties: CommitProperties) -> None:
    """Remove the matching rows, in one commit."""
    if _is_misread(table):
        _write_anew(table, predicate, properties)
    else:
        table.delete(predicate, commit_properties=properties)


def _is_misread(table: DeltaTable) -> bool:
    """Return True if deltalake would write other times than it has read, in rows that stay, too.

    Spark's files have times as INT96, which it takes for nanoseconds wherever it rewrites files:
    9999-12-31 would become a day in 1816.
    """
    import pyarrow as pa

    whole = pa.schema(table.schema().to_arrow())  # type: ignore[arg-type]
    timed = [one.name for one in whole if "timestamp" in str(one.type)]
    if not timed:
        return False
    found = _reader(f"SELECT {_columns(table, timed)} FROM one", one=table)  # noqa: S608
    return any(_is_beyond(column) for batch in found for column in batch.columns)


def _is_beyond(values: Any) -> bool:  # noqa: ANN401  (pyarrow's stubs want the type of values)
    """Return True if a time among some values, or within one, is none in nanoseconds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_timestamp(kind):
        numbers = values.cast(pa.int64())
        ends = pc.min(numbers).as_py(), pc.max(numbers).as_py()
        return any(one is not None and abs(one) > _NANOSECONDS for one in ends)
    if pa.types.is_map(kind):
        return _is_beyond(values.keys) or _is_beyond(values.items)
    if not pa.types.is_nested(kind):
        return False
    within = values.flatten()
    return any(map(_is_beyond, within if isinstance(within, list) else [within]))


def _write_anew(
    table: DeltaTable,
    predicate: str,
    properties: CommitProperties,
    then: DeltaTable | None = None,
) -> None:
    """Write the whole table, with the matching rows of an older version instead of its own."""
    from deltalake import write_deltalake

    columns, tables = _columns(table), {"now": table}
    sql = f"SELECT {columns} FROM now WHERE ({predicate}) IS NOT TRUE"  # noqa: S608
    if then is not None:
        sql += f" UNION ALL SELECT {columns} FROM earlier WHERE ({predicate})"  # noqa: S608
        tables["earlier"] = then
    # Without a predicate, deltalake sees no conflict with an OPTIMIZE, whose files would stay.
    properties.max_commit_retries = 0
    write_deltalake(table, _reader(sql, **tables), mode="overwrite", commit_properties=properties)


def _columns(table: DeltaTable, names: Sequence[str] | None = None) -> str:
    """Return columns of a table for SQL, by default all."""
    wanted = [field.name for field in table.schema().fields] if names is None else names
    return ", ".join('"' + name.replace('"', '""') + '"' for name in wanted)


def _stretches(
    changing: Sequence[Commit], owner: str, app_ids: tuple[str, ...]
) -> list[tuple[int, int, bool]]:
    """Return first and last version of each stretch of commits, and whether it is the query's."""
    found: list[tuple[int, int, bool]] = []
    for commit in changing:
        own = commit.written_by(owner, app_ids)
        if found and found[-1][2] == own:
            found[-1] = (found[-1][0], commit.version, own)
        else:
            found.append((commit.version, commit.version, own))
    return found


def _any(uri: str, where: str, sql: str, **tables: DeltaTable) -> bool:
    """Return True if a SQL query over versions of a table has a result."""
    from deltalake.exceptions import DeltaError

    try:
        return any(batch.num_rows > 0 for batch in _reader(sql, **tables))
    except (DeltaError, OSError, ValueError) as error:
        raise IncompatibleError(
            f"the own_rows condition {where} cannot be evaluated on {uri}: "
            f"{plain(str(error))[:300]}",
            hint="in [queries.NAME.own_rows], give the output an SQL condition on the table's "
            "columns, for example: totals = \"source = 'shop'\"",
            uri=uri,
        ) from None


def _reader(sql: str, **tables: DeltaTable) -> pa.RecordBatchReader:
    """Return the result of a SQL query over versions of a table."""
    import pyarrow as pa
    from deltalake import QueryBuilder

    query = QueryBuilder(_AS_WRITTEN)
    for name, table in tables.items():
        query.register(name, table)
    return pa.RecordBatchReader.from_stream(query.execute(sql))
