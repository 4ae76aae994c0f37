"""The generations of each query: which checkpoint is the current one, and where each came from.

A Delta table `generations/`, one row a generation. Restoring, rolling back, merging or promoting
begins a new one; a live checkpoint is never edited.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from savepoints.errors import QueryNotFoundError, StalePlanError, UsageError
from savepoints.io import Location
from savepoints.model import SUPERSEDED, Generation, Origin, Savepoint
from savepoints.moments import utc_now
from savepoints.store.tables import columns
from savepoints.store.tables.delta_table import StoreTable
from savepoints.store.tables.open_tables import OpenTables

_COLUMNS: columns.Shape = {
    "query": "text", "generation": "long", "checkpoint": "text", "status": "text",
    "begun_at": "moment", "begun_by": "text", "begun_from": "text", "ended_at": "moment",
    "ended_why": "text", "restore_seconds": "double", "restored_bytes": "long",
    "origin": {"query": "text", "generation": "long", "batch_id": "long", "is_edited": "flag"},
}  # fmt: skip


@dataclass(frozen=True)
class Generations:
    """The generations of all queries of a store."""

    root: Location
    tables: OpenTables = field(default_factory=OpenTables, compare=False, repr=False)

    def all(self, query: str | None = None) -> list[Generation]:
        """Return the generations, of one query or all, the newest first."""
        found = [_from_row(row) for row in self._table.rows()]
        return sorted(
            (one for one in found if query is None or one.query == query),
            key=lambda one: one.place,
            reverse=True,
        )

    def living(self) -> list[Generation]:
        """Return the generation that `run` starts of each query that has not ended."""
        return [one for one in self.all() if one.status == "current"]

    def find_current(self, query: str) -> Generation | None:
        """Return the generation that `run` starts, None when the query has none yet."""
        return next((one for one in self.all(query) if one.status == "current"), None)

    def ended(self, query: str) -> Generation | None:
        """Return the last generation of a query that has ended, None for every other query."""
        mine = self.all(query)
        return None if not mine or any(one.status == "current" for one in mine) else mine[0]

    def refuse_ended(self, query: str) -> None:
        """Refuse a query whose last generation ended without another, as that of a promoted fork.

        Raises:
            QueryNotFoundError: If it has ended.
        """
        ended = self.ended(query)
        if ended is not None:
            raise QueryNotFoundError(
                f"the query {query} has ended: {ended.ended_why}",
                hint="continue as a new query from one of its savepoints: savepoints list --query "
                f"{query}, then savepoints fork ID NAME",
                query=query,
            )

    def current(self, query: str) -> Generation:
        """Return the generation that `run` starts.

        Raises:
            QueryNotFoundError: If the query has ended, or the store has none of that name.
        """
        found = self.find_current(query)
        if found is None:
            self.refuse_ended(query)
            raise self.unknown(query)
        return found

    def unknown(self, query: str, others: Iterable[str] = ()) -> QueryNotFoundError:
        """Return the error for a query that the store does not know.

        Args:
            others: Queries that are known, although the store has no generation of them.
        """
        known = sorted({*others, *(one.query for one in self.all())})
        near = get_close_matches(query, known, n=1)
        return QueryNotFoundError(
            f"the store {self.root} has no query {query!r}",
            hint=(f"did you mean {near[0]}? " if near else "")
            + f"name one of its queries: {', '.join(known)}"
            if known
            else f"take a savepoint of it: savepoints create {query} --checkpoint URI, or "
            f"attached.create() in its driver; with an App: savepoints run {query}",
            query=query,
            known=known,
        )

    def of_checkpoint(self, checkpoint: Location) -> Generation | None:
        """Return the generation that lives in a checkpoint directory, None for an unknown one."""
        return next((one for one in self.all() if one.checkpoint == str(checkpoint)), None)

    def next_number(self, query: str) -> int:
        """Return the number that the next generation of a query gets."""
        return max((one.generation for one in self.all(query)), default=0) + 1

    def begin(
        self,
        query: str,
        number: int,
        checkpoint: Location,
        *,
        by: str,
        begun_from: str | None = None,
        savepoints: Iterable[Savepoint] = (),
        restore_seconds: float | None = None,
        restored_bytes: int | None = None,
    ) -> Generation:
        """Begin a generation and end the one before, in one commit.

        Beginning a generation that has begun in the same directory changes nothing: the one that
        exists is returned.

        Args:
            savepoints: Those of the store, of which `begun_from` may be one.
        """
        now = utc_now()
        origin = next((Origin.of(one) for one in savepoints if one.id == begun_from), None)
        begun = Generation(
            query,
            number,
            str(checkpoint),
            "current",
            now,
            by,
            begun_from,
            restore_seconds=restore_seconds,
            restored_bytes=restored_bytes,
            origin=origin,
        )

        def decide(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            before = [_from_row(row) for row in rows if row["query"] == query]
            if any(one.generation == number for one in before):
                return []
            ended = [
                dataclasses.replace(
                    one, status="ended", ended_at=now, ended_why=f"{SUPERSEDED} {number} ({by})"
                )
                for one in before
                if one.status == "current"
            ]
            return [_to_row(one) for one in (*ended, begun)]

        self._table.change(("query", "generation"), decide)
        known = next(one for one in self.all(query) if one.generation == number)
        if known.checkpoint != begun.checkpoint:
            raise StalePlanError(
                f"generation {number} of {query} ({known.begun_by}) already has the checkpoint "
                f"{known.checkpoint}, not {checkpoint}",
                hint="undo the operation that began it: savepoints operations list --query "
                f"{query}, then savepoints operations undo ID",
                query=query,
            )
        return known

    def name_of(self, checkpoint: Location, wanted: str | None = None) -> str | None:
        """Return what the query of a checkpoint is called, None where nobody has said yet."""
        known = self.of_checkpoint(checkpoint)
        if known is None:
            return wanted
        if wanted not in (None, known.query):
            raise UsageError(
                f"the query of the checkpoint {checkpoint} is already named {known.query}, not "
                f"{wanted}",
                hint=f"pass the name {known.query}, or rename the query: savepoints rename "
                f"{known.query} {wanted}",
                query=known.query,
            )
        return known.query

    def rename(self, query: str, to: str) -> None:
        """Give all generations of a query another name; done before, it changes nothing."""

        def renamed(one: Generation) -> Generation:
            origin = one.origin
            if origin is not None and origin.query == query:
                origin = dataclasses.replace(origin, query=to)
            return dataclasses.replace(
                one, query=to if one.query == query else one.query, origin=origin
            )

        def decide(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            known = [_from_row(row) for row in rows]
            return [_to_row(new) for one in known if (new := renamed(one)) != one]

        # Numbers are of one query, and so is a directory.
        self._table.change(("generation", "checkpoint"), decide)

    def end(self, query: str, *, why: str) -> None:
        """End the current generation of a query, which then has none; ended before, it stays so."""
        now = utc_now()

        def decide(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            current = [_from_row(row) for row in rows if row["query"] == query]
            return [
                _to_row(dataclasses.replace(one, status="ended", ended_at=now, ended_why=why))
                for one in current
                if one.status == "current"
            ]

        self._table.change(("query", "generation"), decide)

    @property
    def _table(self) -> StoreTable:
        return StoreTable(self.root / "generations", columns.schema(_COLUMNS), self.tables)


def begun(known: Iterable[Generation]) -> frozenset[tuple[str, int, str]]:
    """Return query, number and checkpoint of generations: a plan's own are there once it began."""
    return frozenset((one.query, one.generation, one.checkpoint) for one in known)


def _from_row(row: Mapping[str, Any]) -> Generation:
    origin = row.get("origin")  # Unknown to older versions.
    return Generation(**{**row, "origin": None if origin is None else Origin(**origin)})


def _to_row(generation: Generation) -> dict[str, Any]:
    origin = generation.origin
    return {**vars(generation), "origin": None if origin is None else vars(origin)}
