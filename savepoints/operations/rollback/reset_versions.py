"""Where a reset leads in the Delta tables that a query reads: the words of `reset` as versions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from savepoints.checkpoint.logs import table_position
from savepoints.checkpoint.logs.table_position import TablePosition
from savepoints.config.settings import QuerySettings
from savepoints.errors import SourceDataGoneError, UsageError
from savepoints.moments import refuse_future
from savepoints.sources import delta_versions
from savepoints.sources.delta_versions import TableVersions
from savepoints.sources.kafka.reset_targets import Target, TargetScope


def resolve(
    target: Target | datetime,
    now: Sequence[TablePosition],
    bound: QuerySettings | None,
    *,
    query: str,
    allow_data_loss: bool,
) -> tuple[str, ...]:
    """Find the next position in each table, as Spark's JSON.

    Args:
        target: Of `offset` and `shift`, the number counts versions: the one that is read next.
        allow_data_loss: Begin with the first commit that the log has, where earlier ones are gone.

    Raises:
        UsageError: If a version is out of range, a time in the future, or the tables are unknown.
        SourceDataGoneError: If the log no longer has the commits from there on.
    """
    known = {one.table_id: one for one in _tables(bound)}
    if missing := [one.table_id for one in now if one.table_id not in known]:
        raise UsageError(
            f"{query} reads the Delta table with the id {missing[0]}, whose location is unknown",
            hint="add the table to the settings, under the name of the input: "
            f'[queries.{query}.tables] INPUT = "URI"',
            query=query,
            table_id=missing[0],
        )
    return tuple(_to(target, one, known[one.table_id], allow_data_loss).text for one in now)


def require_whole(
    target: Target | datetime,
    state: Literal["empty", "keep"],
    scope: TargetScope | None,
    skipped: Sequence[str],
) -> None:
    """Refuse what a reset cannot do with a query that reads tables."""
    if scope is not None or skipped:
        raise UsageError(
            "the query reads tables, so topics and partitions cannot be chosen",
            hint="omit --topic and --intermediate-topic",
        )
    if state == "empty" and (isinstance(target, datetime) or target.kind != "earliest"):
        raise UsageError(
            "a query that starts with empty state can read a table only from its beginning",
            hint="use --to-earliest, or keep the state with --state keep",
        )


def beginnings(now: Sequence[TablePosition]) -> tuple[str, ...]:
    """Return where a query begins that has read nothing of its tables, as Spark's JSON.

    It reads each as it is now, whatever commits the log still has.
    """
    return tuple(table_position.after(one.table_id, -1).text for one in now)


def note(
    now: Sequence[TablePosition], begin_at: Sequence[str], state: Literal["empty", "keep"]
) -> str:
    """Describe what of tables is read with empty state, or again or not with what is kept."""
    if state == "empty":
        return (
            "tables are read as they are now; a reader with the option startingVersion or "
            "startingTimestamp begins there instead and leaves out what was before"
        )
    found = []
    for one, text in zip(now, begin_at, strict=True):
        to = table_position.parse(text)
        if to is None or to.version == one.version:
            continue
        first, last = sorted((one.version, to.version))
        what = "applied to the kept state twice" if to.version < one.version else "skipped"
        which = f"version {first}" if first == last - 1 else f"versions {first} to {last - 1}"
        found.append(f"{which} of table {one.table_id} will be {what}")
    return "; ".join(found) or "no version is read again or skipped"


def _tables(bound: QuerySettings | None) -> list[TableVersions]:
    return delta_versions.read_each(bound.tables.values() if bound else ())


def _to(
    target: Target | datetime, now: TablePosition, table: TableVersions, allow_data_loss: bool
) -> TablePosition:
    if isinstance(target, Target) and target.kind == "current":
        return now
    version = _next(target, now, table)
    if not 0 <= version <= table.newest + 1:
        raise UsageError(
            f"version {version} of {table.uri} is out of range (oldest version: {table.oldest}, "
            f"newest: {table.newest}); nothing was reset",
            hint=f"choose a version from {table.oldest} to {table.newest + 1} (the next version)",
            uri=table.uri,
            version=version,
        )
    if version < table.oldest and not allow_data_loss:
        raise SourceDataGoneError(
            f"the query would read version {version} of {table.uri} next, but the log of the "
            f"table no longer has versions before {table.oldest}",
            hint="choose a later version, or accept the loss with --allow-data-loss",
            uri=table.uri,
            version=version,
        )
    return table_position.after(table.table_id, max(version, table.oldest) - 1)


def _next(target: Target | datetime, now: TablePosition, table: TableVersions) -> int:
    """Return the version that is to be read next."""
    if isinstance(target, datetime):
        refuse_future(target, hint="use --to-latest, or an earlier time")
        return 0 if table.oldest == 0 and target <= table.first else table.before(target) + 1
    if target.kind == "file":
        raise UsageError(
            "an offsets file works only for Kafka topics, but the query reads tables",
            hint="use --to-offset with the version to read next",
        )
    versions = {
        "earliest": 0,
        "latest": table.newest + 1,
        "offset": target.number,
        "shift": now.version + target.number,
    }
    return versions[target.kind]
