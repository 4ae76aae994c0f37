"""Where a bounded run of a query ends that reads Delta tables: what `--until` means, as versions.

- `latest`: the newest version of each table when the run begins.
- `version:N`: version N of the one table that the query reads.
- a time: every commit before it, by the times that Delta's time travel goes by.
- a savepoint: where its cut was, matched by the table's id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from savepoints.checkpoint.logs import table_position
from savepoints.checkpoint.logs.table_position import TablePosition
from savepoints.errors import UsageError
from savepoints.moments import parse_rfc3339, refuse_future
from savepoints.sources.delta_versions import TableVersions
from savepoints.store.root import Store

_VERSION = re.compile(r"version:(\d+)", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def resolve(
    store: Store, until: str, *, query: str, tables: Sequence[TableVersions]
) -> dict[str, TablePosition]:
    """Return by table id where a run ends; whether it can be reached is not looked at.

    Raises:
        UsageError: If a version is not there, the query reads several tables and one version is
            given, a time is in the future, or the savepoint is of other tables.
        SourceDataGoneError: If a table's log no longer says what its version was at the time.
        SavepointNotFoundError: If it is none of these.
    """
    if until == "latest":
        return {one.table_id: _after(one, one.newest) for one in tables}
    if match := _VERSION.fullmatch(until):
        return _at_version(int(match[1]), query, tables)
    if _DATE.match(until):
        moment = parse_rfc3339(until)
        refuse_future(
            moment,
            ", and commits may still be made before it",
            hint="choose a time in the past, or use --until latest",
        )
        return {one.table_id: _after(one, one.before(moment)) for one in tables}
    if until.endswith(".json") or until.lstrip().startswith("{"):
        raise UsageError(
            f"an offsets file works only for Kafka topics, but {query} reads {_listed(tables)}",
            hint="use --until with latest, version:N, a time, or a savepoint",
        )
    savepoint = store.catalog.find(until, query=query)
    return _of_positions(savepoint.cut.offsets, savepoint.id, tables)


def _at_version(
    version: int, query: str, tables: Sequence[TableVersions]
) -> dict[str, TablePosition]:
    if len(tables) != 1:
        raise UsageError(
            f"{query} reads {len(tables)} tables ({_listed(tables)}), so a single version is "
            "not enough to say where to stop",
            hint="use --until latest, a time, or a savepoint",
            query=query,
        )
    (table,) = tables
    if version > table.newest:
        raise UsageError(
            f"{table.uri} has no version {version} yet; the newest is {table.newest}",
            hint=f"use --until version:{table.newest}, or --until latest",
            uri=table.uri,
            version=version,
        )
    return {table.table_id: _after(table, version)}


def _of_positions(
    positions: Sequence[str | None], name: str, tables: Sequence[TableVersions]
) -> dict[str, TablePosition]:
    found = {one.table_id: one for one in map(table_position.parse, positions) if one}
    if found.keys() != {one.table_id for one in tables}:
        raise UsageError(
            f"the savepoint {name} was taken when the query read a different set of tables; the "
            f"query now reads {_listed(tables)}",
            hint="choose another savepoint of this query: savepoints list",
            savepoint=name,
        )
    return found


def _after(table: TableVersions, version: int) -> TablePosition:
    return table_position.after(table.table_id, version)


def _listed(tables: Sequence[TableVersions]) -> str:
    return ", ".join(one.uri for one in tables)


def versions(
    positions: Mapping[str, TablePosition], tables: Sequence[TableVersions]
) -> dict[str, int]:
    """Return by table the last version that is read completely; -1 for none."""
    return {
        one.uri: positions[one.table_id].version - 1 for one in tables if one.table_id in positions
    }


def to_text(ends: Mapping[str, TablePosition]) -> str:
    """Write ends as a JSON list of Delta's positions, for a plan and its journal."""
    return f"[{','.join(one.text for _, one in sorted(ends.items()))}]"


def parse(text: str) -> dict[str, TablePosition] | None:
    """Read what `to_text` wrote; None for offsets of Kafka."""
    data = json.loads(text)
    if not isinstance(data, list):
        return None
    found = (table_position.parse(json.dumps(one)) for one in data)
    return {one.table_id: one for one in found if one}
