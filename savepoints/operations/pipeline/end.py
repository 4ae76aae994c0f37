"""`end`: declare a query over, such as a fork that is no longer needed.

Nothing is deleted. From then on no driver of the query is started, and the savepoint that it began
from is no longer kept for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote

from savepoints.model import Generation
from savepoints.observe.recorder import recorded
from savepoints.operations.pipeline.pipeline import pipeline
from savepoints.operations.savepoint import history, plan_basis
from savepoints.operations.savepoint.plan_basis import Basis
from savepoints.plan import Plan, Step
from savepoints.store import bindings
from savepoints.store.locks import journal, lease
from savepoints.store.root import Store
from savepoints.uri import Uri

VERB = "end"


@dataclass(frozen=True)
class EndPlan(Plan):
    """What `end` is going to do.

    Attributes:
        generation: The generation that ends; None if the query has ended already.
        why: What whoever starts the query later is told.
        released: The savepoint that the generation began from, None without one.
        checkpoint: URI of the checkpoint, which stays.
        tables: URIs of the tables that no other query of the store writes, which stay.
        basis: What the plan was made from; None if the query has ended already.
    """

    generation: int | None
    why: str
    released: str | None
    checkpoint: str | None
    tables: tuple[str, ...]
    basis: Basis | None = None

    @property
    def idle(self) -> str:
        """Why there is nothing to do."""
        return "" if self.generation else f"it has already ended: {self.why}"


def plan(store: Store, query: str, *, why: str = "") -> EndPlan:
    """Plan the end of a query; nothing is written.

    Args:
        query: Its name.
        why: What whoever starts the query later is told.

    Raises:
        QueryNotFoundError: If the store has no such query.
        UnfinishedOperationError: If an operation on the query was interrupted.
    """
    store = store.snapshot()
    ended = store.generations.ended(query)
    if ended is not None:
        return EndPlan(VERB, query, (), (), None, ended.ended_why or "", None, None, ())
    current = store.generations.current(query)
    journal.refuse_unfinished(store.root, query)
    # To be deleted by other tools, which know S3 as s3://, not as Spark's s3a://.
    checkpoint = str(Uri.parse(current.checkpoint))
    tables = _own_tables(store, query)
    return EndPlan(
        verb=VERB,
        query=query,
        steps=(
            Step(
                "generation",
                f"end generation {current.generation} of {query}: from then on, `run` and `attach` "
                "refuse it",
            ),
        ),
        warnings=tuple(_notes(store, query, current, (checkpoint, *tables))),
        generation=current.generation,
        why=why or "it was ended by hand",
        released=current.begun_from,
        checkpoint=checkpoint,
        tables=tables,
        basis=plan_basis.read_but_savepoints(store, query),
    )


@recorded
def execute(plan: EndPlan, store: Store) -> EndPlan:
    """End it, in one commit. Running the verb again changes nothing.

    Returns:
        What was done.

    Raises:
        QueryRunningError: If a driver holds the query.
        LockedError: If another verb does.
        StalePlanError: If another generation has begun since the plan was made.
    """
    if plan.basis is None:
        return plan
    with lease.hold(store.root, plan.query, VERB):
        journal.refuse_unfinished(store.root, plan.query)
        plan_basis.refuse_changed(store, plan.query, VERB, plan.basis)
        store.generations.end(plan.query, why=plan.why)
    return plan


def _own_tables(store: Store, query: str) -> tuple[str, ...]:
    """Return the tables of a query that no other query that has not ended writes."""
    settings = bindings.complete(store)
    others = {one.query for one in store.generations.living()} - {query}
    theirs = {
        str(Uri.parse(uri))
        for other in others
        for uri in history.output_uris(store, other, settings).values()
    }
    mine = {str(Uri.parse(uri)) for uri in history.output_uris(store, query, settings).values()}
    return tuple(sorted(mine - theirs))


def _notes(store: Store, query: str, current: Generation, left: tuple[str, ...]) -> list[str]:
    reading = [one for one in pipeline(store, query).downstream if one != query]
    notes = []
    if reading:
        notes.append(f"its tables get no more rows, and are read by {', '.join(reading)}")
    if current.begun_from:
        notes.append(
            f"the savepoint {current.begun_from}, from which it began, is no longer kept for it "
            "and may expire"
        )
    notes.append(
        f"nothing is deleted; delete what you no longer need by other means: {', '.join(left)}"
    )
    saved = [one.id for one in store.catalog.all() if (one.query, one.state) == (query, "complete")]
    if saved:
        # After a reset, nothing that counts may be saved: then there is no latest.
        newest = "latest" if history.newest(store, query) else saved[0]
        notes.append(
            "retention goes on and keeps its newest savepoint; to continue from it as a new query: "
            f"savepoints fork {newest} NEW --query {quote(query)}"
        )
    return notes
