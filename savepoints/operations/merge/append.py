"""Late events produced to the end of their topic, as if they arrived now: what `append` does.

The journal says where the topic ended before. Killed in between, it is seen from there on which of
the events are in the topic, and the others are produced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from savepoints.checkpoint.logs.kafka_position import kafka_offsets, lowest_offsets
from savepoints.errors import UnfinishedOperationError, UsageError
from savepoints.io import Location
from savepoints.moments import utc_now
from savepoints.observe.recorder import who
from savepoints.operations.merge.plan import AppendingPlan
from savepoints.operations.rollback import journalled
from savepoints.plan import Progress
from savepoints.sources.kafka import produce_late
from savepoints.store import bindings, scratch
from savepoints.store.locks import journal, lease
from savepoints.store.locks.journal import Journal
from savepoints.store.root import Store
from savepoints.store.tables.merge_ledger import Merge
from savepoints.texts import count_text


@dataclass(frozen=True)
class Appended:
    """What was done.

    Attributes:
        operation_id: Its name in the journal and in the ledger.
        query: The query.
        topic: The topic that the events are in.
        rows: Number of events.
    """

    operation_id: str
    query: str
    topic: str
    rows: int


def finish(plan: AppendingPlan, store: Store, *, progress: Progress) -> Appended:
    """Finish what was interrupted."""
    with lease.hold_merging(store.root, plan.query):
        return carry_out(plan, store, progress=progress)


def carry_out(plan: AppendingPlan, store: Store, *, progress: Progress) -> Appended:
    """Produce the events that the topic lacks and note them; the caller holds the merge's lease."""
    from savepoints.spark.session import session

    settings = bindings.complete(store)
    log = _journal(plan, store)
    if not log.is_done("produced"):
        spark = session(settings, f"savepoints merge {plan.query}")
        left = produce_late.missing(
            spark,
            settings.kafka,
            spark.read.parquet((Location.of(plan.place) / scratch.EVENTS).uri.hadoop),
            topic=plan.topic,
            since=kafka_offsets(plan.since) or {},
            merge_id=plan.operation_id,
        )
        progress(f"writing {count_text(plan.facts.rows, 'event')} to topic {plan.topic}")
        rows = left.orderBy("event_time", "event_id").selectExpr(
            "key", "value", "headers", "unix_millis(timestamp) timestamp_ms", "event_id"
        )
        count = produce_late.produce(
            settings.kafka, plan.topic, rows.toLocalIterator(), plan.operation_id
        )
        log.record("produced", events=count)
    if not log.is_done("in_ledger"):
        store.ledger.add(_row(plan))
        log.record("in_ledger")
    log.finish()
    scratch.discard(store, plan.operation_id)
    return Appended(plan.operation_id, plan.query, plan.topic, plan.facts.rows)


def refuse_undo(plan: AppendingPlan) -> NoReturn:
    """Refuse to take back what the topic may have already, and say how to finish it."""
    raise UsageError(
        f"this merge cannot be undone: some of its events may already be in topic {plan.topic}, "
        "from which nothing can be removed",
        hint=f"finish it instead: savepoints operations resume {plan.operation_id}",
        operation=plan.operation_id,
    )


def _journal(plan: AppendingPlan, store: Store) -> Journal:
    begun = journal.unfinished(store.root, plan.query)
    if begun is not None and begun.id != plan.operation_id:
        raise journal.refusal(store.root, begun)
    if begun is not None:
        return Journal(store.root, begun)
    if plan.resumed:
        raise UnfinishedOperationError(
            f"the merge {plan.operation_id} has since been finished by another process",
            hint="see the result: savepoints operations list",
            operation=plan.operation_id,
        )
    return journalled.begin(plan, store)


def _row(plan: AppendingPlan) -> Merge:
    """Return what the ledger says of it."""
    return Merge(
        id=plan.operation_id,
        query=plan.query,
        generation=plan.generation,
        descent=plan.descent,
        **vars(plan.facts),
        controls_differing=0,
        batch_id=plan.batch_id,
        offsets=lowest_offsets([plan.offsets]),
        outputs=(),
        pause_seconds=0.0,
        by=who(),
        at=utc_now(),
    )
