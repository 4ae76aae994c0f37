"""`rename`: give a query another name, with all its savepoints and generations.

Only for queries that start themselves: what `savepoints run` writes into tables carries the query's
name in its transaction ids, and a settings file names it.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace

from savepoints import faults
from savepoints.errors import TargetExistsError, UsageError
from savepoints.model import checked_name
from savepoints.observe.recorder import recorded
from savepoints.outputs.delta.write import owner_prefix
from savepoints.plan import Plan, Step
from savepoints.store import bindings
from savepoints.store.locks import journal, lease
from savepoints.store.root import Store
from savepoints.store.tables import catalog
from savepoints.texts import count_text


@dataclass(frozen=True)
class RenamePlan(Plan):
    """What `rename` is going to do.

    Attributes:
        to: The new name.
        savepoints: How many savepoints get it.
        generations: How many generations do.
    """

    to: str
    savepoints: int
    generations: int


def plan(store: Store, query: str, to: str) -> RenamePlan:
    """Plan a new name for a query; nothing is written.

    Args:
        query: Its name now.
        to: Its name to be.

    Raises:
        UsageError: If it cannot be a name, or `run` starts the query.
        QueryNotFoundError: If the store has no such query.
        TargetExistsError: If another query has that name.
        UnfinishedOperationError: If an operation on the query was interrupted.
    """
    store = store.snapshot()
    checked_name(to, "query")
    store.generations.current(query)
    generations = store.generations.all(query)
    mine = catalog.select(store.catalog.all(), query=query)
    journal.refuse_unfinished(store.root, query)
    if store.generations.all(to):
        raise TargetExistsError(
            f"the store {store.root} already has a query named {to}",
            hint="choose another name; to see the names in use: savepoints lineage",
            query=to,
        )
    _refuse_managed(store, query)
    renamed = f"rename {query} to {to} in the records of"
    return RenamePlan(
        verb="rename",
        query=query,
        steps=(
            Step("savepoints", f"{renamed} {count_text(len(mine), 'savepoint')}"),
            Step("generations", f"{renamed} {count_text(len(generations), 'generation')}"),
        ),
        warnings=(
            (
                f"rollback --undo will no longer find earlier operations on {query}: roll back to "
                "a savepoint instead"
            ),
            f"a driver that uses the name {query} must switch to the new name",
        ),
        to=to,
        savepoints=len(mine),
        generations=len(generations),
    )


@recorded
def execute(plan: RenamePlan, store: Store) -> None:
    """Rename it. Running the verb again after a crash goes on.

    Raises:
        QueryRunningError: If a driver holds the query.
        LockedError: If another verb does.
        UnfinishedOperationError: If an operation on the query was interrupted since the plan.
    """
    with ExitStack() as leases:
        # In one order, whoever renames what to what.
        for name in sorted((plan.query, plan.to)):
            leases.enter_context(lease.hold(store.root, name, "rename"))
        if store.generations.all(plan.to):
            raise TargetExistsError(
                f"a query named {plan.to} was added to the store {store.root} after the plan "
                "was made",
                hint="choose another name; to see the names in use: savepoints lineage",
                query=plan.to,
            )
        # Since the plan one may have begun, which knows the query by its old name.
        journal.refuse_unfinished(store.root, plan.query)
        # Savepoints first: as long as the generations have the old name, the verb can be repeated.
        ids = [one.id for one in store.catalog.all() if one.query == plan.query]
        store.catalog.relabel(ids, lambda old: replace(old, query=plan.to))
        faults.reach("rename.savepoints")
        store.generations.rename(plan.query, plan.to)


def _refuse_managed(store: Store, query: str) -> None:
    """Refuse a query of which something else than the store knows the name, and say what."""
    generations = store.generations.all(query)
    begins = owner_prefix(query)
    mine = [one for one in store.catalog.all() if one.query == query]
    reasons = {
        "the settings use its name": query in store.settings.queries,
        "its tables have transactions under that name": any(
            output.app_id.startswith(begins) for one in mine for output in one.outputs
        ),
        "it is run by `savepoints run`": any(one.application for one in mine)
        or any(bindings.find(store.root, query, one.generation) for one in generations),
        "its merges are recorded under that name": bool(store.ledger.all(query)),
    }
    for reason, holds in reasons.items():
        if holds:
            raise UsageError(
                f"{query} cannot be renamed: {reason}",
                hint="fork it under another name instead: savepoints fork latest NEW --query "
                f"{query}",
                query=query,
            )
