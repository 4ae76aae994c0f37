"""`late`: what Spark dropped silently because it came too late, and what would change with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce

from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.logs.kafka_position import lowest_offsets
from savepoints.io import Location
from savepoints.model import new_id
from savepoints.moments import rfc3339, utc_now
from savepoints.observe.recorder import recording
from savepoints.operations.merge import dropped, source_ends
from savepoints.operations.merge.dropped import Dropped
from savepoints.operations.merge.live_query import LiveQuery
from savepoints.plan import Progress, silent
from savepoints.runtime import app as apps
from savepoints.runtime.inputs import Inputs
from savepoints.sources.late import late_figures
from savepoints.sources.late.late_figures import LateFigures
from savepoints.store import bindings, scratch
from savepoints.store.root import Store
from savepoints.texts import count_text

VERB = "late"


@dataclass(frozen=True, kw_only=True)
class LateEvents(LateFigures):
    """Late events that a query dropped and is missing.

    Attributes:
        query: The query.
        generation: Its current generation.
        since: Only batches that were planned since then; None for all.
        batches: How many batches were searched.
        inputs: The events of each input.
        again: Dropped events that had counted before, by their id; they are not counted among the
            others.
        outputs: The tables that lack them.
        notes: What may be otherwise, because another program has read some of the batches.
    """

    query: str
    generation: int
    since: datetime | None
    batches: int
    again: int
    inputs: Mapping[str, int]
    outputs: tuple[str, ...]
    notes: tuple[str, ...] = ()


def late(
    store: Store, query: str, *, since: datetime | None = None, progress: Progress = silent
) -> LateEvents:
    """Count the events that a query dropped as late; it may be running, and is not changed.

    An event in the store records the number; the gauge `savepoints_late_events` shows it.

    Args:
        query: A query that `run` started, with its program in the settings.
        since: Only events dropped by batches that were planned since then; None for all.

    Raises:
        IncompatibleError: If the batch log lacks a batch, or the program's plan does not tell what
            is dropped.
        SourceDataGoneError: If neither archive nor Kafka has the events any more.
    """
    from savepoints.spark.session import session, session_for

    settings = bindings.complete(store)
    generation = store.generations.current(query)
    bound = settings.bound(query, "its program and sources are unknown")
    inputs = Inputs(apps.load_for(query, bound), bound, settings.kafka)
    cut = read_cut(Location.of(generation.checkpoint))
    source_ends.require_one_position(query, cut)
    live = LiveQuery.read(store, inputs, generation, lowest_offsets(cut.cut.offsets))
    progress("reading the batch log (starts Spark if it is not running)")
    spark = session_for(session(settings, f"savepoints late {query}"), 0)
    operation_id = new_id("op", utc_now())
    work = scratch.work_of(store, operation_id, spark)
    with recording(store, VERB, query=query, operation=operation_id) as noted:
        try:
            found = dropped.find(spark, live, work, since=since, progress=progress)
            report = _report(live, found, since)
        finally:
            scratch.discard(store, operation_id, work)
        noted.note(
            parameters={
                "events": str(report.events),
                "entities": str(report.entities),
                **({} if since is None else {"since": rfc3339(since)}),
            },
            message=f"{count_text(report.events, 'event')} of "
            f"{count_text(report.entities, 'entity')} dropped as late",
        )
    return report


def _report(live: LiveQuery, found: Dropped, since: datetime | None) -> LateEvents:
    events = reduce(lambda one, more: one.unionByName(more), found.events.values())
    figures = late_figures.of(events, found.rows)
    bound = live.inputs.bound
    return LateEvents(
        query=live.name,
        generation=live.generation,
        since=since,
        batches=len(found.reads),
        **vars(figures),
        again=sum(found.again.values()),
        inputs={name: frame.count() for name, frame in found.events.items()},
        outputs=tuple(bound.outputs[name] for name in live.inputs.app.outputs),
        notes=found.notes,
    )
