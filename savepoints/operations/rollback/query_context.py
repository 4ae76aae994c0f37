"""A query as a plan finds it: where it lives, and where its next generation goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import UsageError
from savepoints.io import Location
from savepoints.model import Generation, Savepoint, new_id
from savepoints.moments import utc_now
from savepoints.operations.rollback import safety_savepoint
from savepoints.operations.rollback.safety_savepoint import Present
from savepoints.operations.savepoint import history, plan_basis
from savepoints.store import bindings
from savepoints.store.root import Store


@dataclass(frozen=True)
class QueryContext:
    """What every plan for a query's next generation starts from, read at one moment.

    Attributes:
        settings: Completed by what the store has of promoted and forked queries.
        number: Of the generation to be.
        history: The savepoints that its present comes from, the newest first.
        output_uris: All outputs by name: of the newest savepoint, and of the settings.
        output_topics: The topics that it writes, as far as they are named.
    """

    store: Store
    settings: Settings
    current: Generation
    number: int
    history: tuple[Savepoint, ...]
    output_uris: Mapping[str, str]
    output_topics: tuple[str, ...] = ()

    @classmethod
    def open(cls, store: Store, query: str) -> QueryContext:
        """Read it, each table of the store once."""
        store = store.snapshot()
        settings = bindings.complete(store)
        outputs = history.output_uris(store, query, settings)
        return cls(
            store,
            settings,
            store.generations.current(query),
            store.generations.next_number(query),
            tuple(history.named_as_now(one, outputs) for one in history.history(store, query)),
            outputs,
            history.output_topics(store.catalog.all(), query, settings),
        )

    @property
    def query(self) -> str:
        """Its name."""
        return self.current.query

    @property
    def bound(self) -> QuerySettings | None:
        """Its table in the settings."""
        return self.settings.queries.get(self.query)

    @property
    def written_uris(self) -> Mapping[str, str]:
        """The outputs that its program writes: those in the settings, or else of its savepoints."""
        return (self.bound.outputs if self.bound else {}) or self.output_uris

    def checkpoint(self, to: str | None = None) -> str:
        """Return where the next generation goes: given, by the settings, or beside this one."""
        if to is not None:
            return str(Location.of(to))
        if self.bound is None:
            return str(beside(self.current, self.number))
        return str(checkpoint_of(self.bound.checkpoints, self.query, self.number))

    def present(self, *, saved: bool = True) -> Present:
        """Return the batch to save first and the id of its savepoint; see `safety_savepoint`."""
        if not saved:
            return Present(safety_savepoint.newest_batch(self.current.checkpoint), None)
        return safety_savepoint.plan(self.store, self.current, self.output_uris, self.settings)

    def leaving(self, present: Present, operation_id: str | None = None) -> dict[str, Any]:
        """Return the fields that every `TransitionPlan` of this query has in common.

        Args:
            operation_id: For a verb that has written under its id before this is planned.
        """
        return {
            "query": self.query,
            "operation_id": operation_id or new_id("op", utc_now()),
            "safety_id": present.safety_id,
            "from_checkpoint": self.current.checkpoint,
            "from_batch": present.batch_id,
            "generation": self.number,
            "output_uris": self.output_uris,
            "basis": plan_basis.read(self.store, self.query),
        }


def beside(current: Generation, number: int) -> Location:
    """Return a directory for a generation of a query whose own driver says where it is now.

    After `…/clicks/1` comes `…/clicks/2`, and after `…/clicks` comes `…/clicks-2`.

    Raises:
        UsageError: If the checkpoint is a whole bucket.
    """
    place, _, name = current.checkpoint.rpartition("/")
    if not Location.of(current.checkpoint).uri.path:
        raise UsageError(
            f"the checkpoint of {current.query} is the whole bucket {current.checkpoint}, so the "
            "new checkpoint cannot be created next to it",
            hint="name a directory outside that bucket: --to s3://other-bucket/path",
            query=current.query,
        )
    if name == str(current.generation):
        return Location.of(f"{place}/{number}")
    return Location.of(f"{place}/{name.removesuffix(f'-{current.generation}')}-{number}")


def checkpoint_of(root: str, query: str, generation: int) -> Location:
    """Return the checkpoint directory of a generation of a query that `run` manages."""
    return Location.of(root) / query / str(generation)
