"""What `run` is asked for, and the program that this means at a moment."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import UsageError
from savepoints.model import Form, Generation
from savepoints.plan import Progress
from savepoints.runtime import app as apps
from savepoints.runtime.inputs import Inputs
from savepoints.store import bindings
from savepoints.store.root import Store


@dataclass(frozen=True)
class Order:
    """What was asked for; see `run`.

    Attributes:
        begun_in: The generation that was current when the run began.
    """

    store: Store
    query: str
    app: str | None
    every: str | None
    until: str | None
    max_duration: timedelta | None
    max_records: int | None
    wait: timedelta | None
    forms: tuple[Form, ...]
    final_savepoint: bool
    accept_state_names: bool
    progress: Progress
    begun_in: Generation | None

    @property
    def is_endless(self) -> bool:
        """Whether only a signal or a pause ends it."""
        return self.until is None and self.max_duration is None and self.max_records is None


@dataclass(frozen=True)
class Program:
    """What runs the query now."""

    order: Order
    settings: Settings
    inputs: Inputs
    every: str | None

    @property
    def bound(self) -> QuerySettings:
        """What the query is bound to."""
        return self.inputs.bound


def resolve(order: Order) -> Program:
    """Find out what runs the query now.

    Raises:
        QueryNotFoundError: If the query has ended.
    """
    store = order.store.snapshot()
    store.generations.refuse_ended(order.query)
    if order.app is not None:
        _refuse_promoted(store, order, order.app)
    settings = bindings.complete(store)
    bound = settings.bound(order.query, "it cannot be run")
    if order.app is not None:
        bound = bound.model_copy(update={"app": order.app})
    inputs = Inputs(apps.load_for(order.query, bound), bound, settings.kafka)
    return Program(order, settings, inputs, order.every or bound.every)


def _refuse_promoted(store: Store, order: Order, app: str) -> None:
    """Refuse a program that was given when the query had a generation from before a promotion."""
    query, since = order.query, order.begun_in
    now = store.generations.find_current(query)
    if now is None or since is None or now.generation == since.generation:
        return
    if now.is_promoted:
        raise UsageError(
            f"this run was started with --app {app}, but a fork has since taken over as "
            f"generation {now.generation} of {query}",
            hint=f"run the program of the fork: savepoints run {query}; or start the run again "
            "with --app to use another program",
            query=query,
        )
