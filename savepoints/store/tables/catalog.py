"""The catalog: a savepoint exists if and only if its row is here.

A Delta table `catalog/`, one row a savepoint, readable by any Delta reader. All facts are also in
the manifests, so the catalog is never the only copy of one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from savepoints.checkpoint.logs.kafka_position import kafka_offsets
from savepoints.errors import AmbiguousNameError, QueryNotFoundError, SavepointNotFoundError
from savepoints.io import Location
from savepoints.json_values import from_json
from savepoints.model import Generation, Labels, Savepoint, SavepointState
from savepoints.moments import parse_rfc3339, refuse_future, rfc3339
from savepoints.store.savepoint import labels
from savepoints.store.tables import columns, living_line
from savepoints.store.tables.delta_table import StoreTable
from savepoints.store.tables.generations import Generations
from savepoints.store.tables.open_tables import OpenTables
from savepoints.texts import count_text

_LATEST = re.compile(r"latest(~\d{1,9})?", re.ASCII)

_OF_CUT = ("batch_id", "watermark_ms", "provider", "partitions", "checkpoint_format")

# Candidates that an ambiguous name lists before it says "and N more".
_CANDIDATES_SHOWN = 8

_COLUMNS: columns.Shape = {
    "id": "text", "query": "text", "query_id": "text", "generation": "long", "batch_id": "long",
    "committed_at": "moment", "created_at": "moment", "watermark_ms": "long",
    "positions": ["text"],
    "offsets": [{"source": "int", "topic": "text", "partition": "int", "offset": "long"}],
    "outputs": [columns.OUTPUT], "forms": ["text"],
    "output_topics": [
        {"topic": "text", "topic_id": "text", "ends": ["long"], "is_exact": "flag"}
    ],
    "operators": [{
        "operator_id": "int", "name": "text", "stores": ["text"], "partitions": "int",
        "rows": "long", "state_bytes": "long", "content_hash": "text", "native_only": "text",
        "keyless": "flag", "column_families": "flag",
    }],
    "cost": {
        "pin_seconds": "double", "checksum_seconds": "double", "export_seconds": "double",
        "objects_copied": "long", "bytes_copied": "long", "objects_shared": "long",
        "bytes_shared": "long", "export_bytes": "long", "attempts": "long",
    },
    "provider": "text", "partitions": "int", "checkpoint_format": "int", "spark_version": "text",
    "application": "text", "code_version": "text", "settings": [{"key": "text", "value": "text"}],
    "topics": [{"topic": "text", "id": "text"}],
    "edit": {
        "by": "text", "reason": "text", "operator_id": "int", "variable": "text", "where": "text",
        "assignments": ["text"], "function": "text", "rows_changed": "long",
        "rows_removed": "long",
    },
    "parent": "text", "tags": ["text"], "description": "text", "pinned": "flag", "kind": "text",
    "rows_missing": "text", "state": "text", "state_reason": "text",
}  # fmt: skip


@dataclass(frozen=True)
class Catalog:
    """The savepoints of a store.

    Attributes:
        any_line: `latest` and `@TIME` also consider savepoints that were rolled back.
    """

    root: Location
    any_line: bool = False
    tables: OpenTables = field(default_factory=OpenTables, compare=False, repr=False)

    def all(self) -> list[Savepoint]:
        """Return all savepoints, the newest first.

        The order is that of the recorded times, never of the names; of one second, that of the
        batches.
        """
        found = [_from_row(row) for row in self._table.rows()]
        return sorted(found, key=lambda one: one.taken_order, reverse=True)

    def get(self, savepoint_id: str | None) -> Savepoint | None:
        """Return the savepoint of an id, also one that is being removed; None without one."""
        return next((one for one in self.all() if one.id == savepoint_id), None)

    def add(self, savepoint: Savepoint) -> None:
        """Add a savepoint, which makes it exist; adding it again changes nothing."""
        self._table.append([_to_row(savepoint)], key="id")

    def put(self, savepoints: Sequence[Savepoint]) -> None:
        """Make the rows of savepoints say what they say, and add those that are missing."""
        wanted = [_to_row(one) for one in savepoints]

        def decide(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            known = {row["id"]: _from_row(row).to_json() for row in rows}
            return [row for row in wanted if known.get(row["id"]) != _from_row(row).to_json()]

        if wanted:
            self._table.change(("id",), decide)

    def relabel(self, ids: Sequence[str], change: Callable[[Labels], Labels]) -> list[Savepoint]:
        """Change what may change about savepoints, in their own files first and then here.

        Doing it again after a crash changes nothing more than was left to do.

        Returns:
            The savepoints as they are now; those that do not exist (any more) are left out.
        """
        wanted = frozenset(ids)
        changed: dict[str, Savepoint] = {}
        self._table.require_room()  # Or the two would differ.
        for one in self.all():
            if one.id in wanted:
                labels.change(self.root, one, change)

        def decide(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            # The files are read again each time: somebody else's change may be there by now.
            known = [_from_row(row) for row in rows if row["id"] in wanted]
            renewed = [
                (one, one.with_labels(labels.read(self.root, one.id) or one.labels))
                for one in known
            ]
            changed.update((new.id, new) for _, new in renewed)
            return [_to_row(new) for old, new in renewed if new != old]

        self._table.change(("id",), decide)
        return list(changed.values())

    def remove(self, ids: Sequence[str]) -> None:
        """Take rows away; those that do not exist are no error."""
        self._table.remove("id", ids)

    def rebuild(self, savepoints: Sequence[Savepoint], aside: Location) -> None:
        """Make the catalog anew, when its table can no longer be read."""
        self._table.rebuild([_to_row(one) for one in savepoints], aside)

    def exported(self, savepoint: Savepoint) -> None:
        """Record that a savepoint now has its canonical form; tags and the like stay."""

        def decide(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            known = next(_from_row(row) for row in rows if row["id"] == savepoint.id)
            new = replace(
                known,
                forms=savepoint.forms,
                operators=savepoint.operators,
                cost=savepoint.cost,
                spark_version=savepoint.spark_version,
                rows_missing=None,
            )
            return [] if new == known else [_to_row(new)]

        self._table.change(("id",), decide)

    def find(self, name: str, *, query: str | None = None) -> Savepoint:
        """Return the one savepoint that a name means; see `resolve`."""
        alone = self.any_line or not is_relative(name)
        generations = [] if alone else Generations(self.root, self.tables).all()
        return resolve(self.all(), name, query=query, generations=generations)

    def require_query(self, query: str) -> None:
        """Refuse a query without savepoints: of a name that was misspelt all would be well.

        Raises:
            QueryNotFoundError: If the store has no savepoint of the query.
        """
        queries = sorted({one.query for one in self.all()})
        if query not in queries:
            raise QueryNotFoundError(
                f"the store {self.root} has no savepoints of the query {query!r}",
                hint=f"name a query that has savepoints: {', '.join(queries)}"
                if queries
                else "take the first savepoint of the store: savepoints create QUERY",
                query=query,
                known=queries,
            )

    @property
    def _table(self) -> StoreTable:
        return StoreTable(self.root / "catalog", columns.schema(_COLUMNS), self.tables)


def select(
    savepoints: Iterable[Savepoint],
    *,
    query: str | None = None,
    tag: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    state: SavepointState | None = None,
    limit: int | None = None,
) -> list[Savepoint]:
    """Choose savepoints, in the order in which they come.

    Args:
        state: Only in this state; without it, all that are not being removed.
    """
    chosen = [
        one
        for one in savepoints
        if (query is None or one.query == query)
        and (tag is None or tag in one.tags)
        and (since is None or one.cut.committed_at >= since)
        and (until is None or one.cut.committed_at <= until)
        and (one.state != "expired" if state is None else one.state == state)
    ]
    return chosen[:limit]


def resolve(
    savepoints: Sequence[Savepoint],
    name: str,
    *,
    query: str | None = None,
    generations: Sequence[Generation] = (),
) -> Savepoint:
    """Find the savepoint that a name means.

    Args:
        name: An id, a unique prefix of one, a tag, `latest`, `latest~2` (the second before it), or
            `@TIME` (the newest whose cut was committed at or before an RFC 3339 time). Savepoints
            that were edited by hand, and those of batches that were rolled back, are meant by id,
            prefix and tag only.
        generations: Those of the store, which tell what was rolled back; without them nothing was.
    """
    mine = [
        one
        for one in savepoints
        if one.state != "expired" and (query is None or one.query == query)
    ]
    if query is not None and not mine:
        raise _none_of(query, name, sorted({one.query for one in savepoints}))
    if is_relative(name):
        usable = _of_one_query([one for one in mine if one.state == "complete"], name)
        alive = living_line.whole(usable[0].query, generations, savepoints) if usable else []
        left = [one for one in usable if one.edit is None and one not in alive]
        if name.startswith("@"):
            return _by_time(name, query, alive, left)
        fitting = alive[int(name.removeprefix("latest").removeprefix("~") or 0) :]
        if fitting:
            return fitting[0]
        raise _not_found(name, query, len(alive), len(left))
    tagged = [one for one in mine if name in one.tags]
    exact = [one for one in mine if one.id == name]
    prefixed = [one for one in mine if one.id.startswith(name)] if name else []
    for fitting in (exact, tagged, prefixed):
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise ambiguous(name, fitting)
    raise _not_found(name, query, len(mine))


def is_relative(name: str) -> bool:
    """Return True for a name whose meaning changes as savepoints are taken and rolled back."""
    return name.startswith("@") or _LATEST.fullmatch(name) is not None


def _by_time(
    name: str, query: str | None, alive: Sequence[Savepoint], left: Sequence[Savepoint]
) -> Savepoint:
    """Return the newest of a time; one in the future is refused, as a newer one may yet come."""
    moment = parse_rfc3339(name[1:])
    refuse_future(moment, hint="choose a time in the past; the newest savepoint is called latest")
    by_then = [one for one in alive if one.cut.committed_at <= moment]
    if by_then:
        return max(by_then, key=_committed_at)
    if not alive:
        raise _not_found(name, query, 0, len(left))
    left_by_then = sum(one.cut.committed_at <= moment for one in left)
    raise _none_by(name, query, min(alive, key=_committed_at), left_by_then)


def _committed_at(savepoint: Savepoint) -> datetime:
    return savepoint.cut.committed_at


def _of_one_query(savepoints: list[Savepoint], name: str) -> list[Savepoint]:
    queries = sorted({one.query for one in savepoints})
    if len(queries) > 1:
        raise AmbiguousNameError(
            f"{name!r} matches savepoints of several queries: {', '.join(queries)}",
            hint=f"choose one with --query, for example --query {queries[0]}",
            candidates=queries,
        )
    return savepoints


def ambiguous(name: str, fitting: Sequence[Savepoint]) -> AmbiguousNameError:
    """Return the error for a name that several savepoints have, with what to type instead.

    One tag on two savepoints of a query is what a killed `tag --move` leaves: the new one gets the
    tag before the old one loses it. Only whoever moved it knows which one was meant.
    """
    queries = {one.query for one in fitting}
    is_moving = len(queries) == 1 and all(name in one.tags for one in fitting)
    shown = [f"{one.id} ({one.query}, batch {one.cut.batch_id})" for one in fitting]
    more = len(shown) - _CANDIDATES_SHOWN
    return AmbiguousNameError(
        f"{name!r} matches {len(fitting)} savepoints: {', '.join(shown[:_CANDIDATES_SHOWN])}"
        + (f" and {more} more" if more > 0 else ""),
        hint="a move of this tag was interrupted: finish it with the id of the one that is to have "
        f"the tag: savepoints tag ID {name} --move"
        if is_moving
        else "give the id of one of them, or enough of its first characters to tell it apart",
        candidates=[one.id for one in fitting],
    )


def _none_of(query: str, name: str, known: Sequence[str]) -> SavepointNotFoundError:
    """Return the error for a query without savepoints, whose name may be misspelt."""
    of_others = f"name a query that has some: {', '.join(known)}; or " if known else ""
    return SavepointNotFoundError(
        f"no savepoint of query {query} matches {name!r}; the store has none of it",
        hint=f"{of_others}take one: savepoints create {query}; the first of a driver of your own: "
        f"savepoints create --checkpoint URI --name {query}",
        savepoint=name,
        query=query,
    )


def _none_by(
    name: str, query: str | None, oldest: Savepoint, rolled_back: int
) -> SavepointNotFoundError:
    of = f" of query {query}" if query else ""
    others = f", except {rolled_back} rolled back or replaced" if rolled_back else ""
    return SavepointNotFoundError(
        f"no savepoint{of} was committed at or before {name[1:]}{others}; the oldest is "
        f"{oldest.id}, committed {rfc3339(oldest.cut.committed_at)}",
        hint=_list_hint(rolled_back),
        savepoint=name,
        query=query,
    )


def _list_hint(rolled_back: int) -> str:
    left = " (to use one that a rollback left behind, give its id or add --any-line)"
    return f"list those that exist: savepoints list{left if rolled_back else ''}"


def _not_found(
    name: str, query: str | None, among: int, rolled_back: int = 0
) -> SavepointNotFoundError:
    of = f" of query {query}" if query else ""
    others = f", and {rolled_back} rolled back or replaced" if rolled_back else ""
    return SavepointNotFoundError(
        f"no savepoint{of} matches {name!r}; the store has {count_text(among, 'savepoint')}"
        f"{of}{others}",
        hint=_list_hint(rolled_back),
        savepoint=name,
        query=query,
    )


def _to_row(savepoint: Savepoint) -> dict[str, Any]:
    data = savepoint.to_json()
    cut = data.pop("cut")
    return {
        **data,
        **{name: cut[name] for name in _OF_CUT},
        "committed_at": savepoint.cut.committed_at,
        "created_at": savepoint.created_at,
        "positions": cut["offsets"],
        "offsets": [
            {"source": source, "topic": topic, "partition": partition, "offset": offset}
            for source, position in enumerate(cut["offsets"])
            for topic, parts in (kafka_offsets(position) or {}).items()
            for partition, offset in parts.items()
        ],
        "settings": [{"key": key, "value": value} for key, value in data["settings"].items()],
        "topics": [{"topic": name, "id": known} for name, known in data["topics"].items()],
    }


def _from_row(row: dict[str, Any]) -> Savepoint:
    of_cut = (*_OF_CUT, "committed_at")
    flat = {*of_cut, "positions", "offsets"}
    rest = {name: value for name, value in row.items() if name not in flat}
    return from_json(
        Savepoint,
        {
            **rest,
            "cut": {**{name: row[name] for name in of_cut}, "offsets": row["positions"]},
            "settings": {pair["key"]: pair["value"] for pair in row["settings"]},
            "topics": {pair["topic"]: pair["id"] for pair in row["topics"]},
            "output_topics": row.get("output_topics") or (),  # Unknown to older versions.
        },
    )
