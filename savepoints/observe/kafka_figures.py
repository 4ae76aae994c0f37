"""Metrics for which Kafka is asked: the lag of each query, and until when it can be restored.

Kafka is asked once for all queries of a store, and only if the settings name a broker. What does
not answer in time is left out: a scrape has to end, and no figure is better than a wrong one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from functools import partial

from savepoints.checkpoint import position
from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, lowest_offsets, with_added
from savepoints.config.settings import KafkaSettings
from savepoints.errors import SavepointsError
from savepoints.io import Location, in_parallel
from savepoints.model import Generation, Savepoint
from savepoints.moments import utc_now
from savepoints.sources.kafka import offsets, record_retention, topics
from savepoints.sources.kafka.topics import Topic
from savepoints.store import bindings, lineage
from savepoints.store.root import Store
from savepoints.store.tables import living_line

_LOG = logging.getLogger(__name__)

LAG = "savepoints_lag_records"
RESTORABLE_UNTIL = "savepoints_restorable_until_timestamp_seconds"
# Prometheus gives up a scrape after ten seconds, unless it is told otherwise.
_SECONDS = 2.0

Figures = dict[str, dict[tuple[str, ...], float]]


def of_store(store: Store) -> Figures:
    """Ask Kafka how far the current generation of each query is behind, and what it keeps.

    Returns:
        By the name of the metric, the value by its labels; nothing where no broker is configured
        or none answers.
    """
    kafka = store.settings.kafka
    if not kafka.bootstrap_servers:
        return {}
    store = store.snapshot()
    current = store.generations.living()
    places = in_parallel(partial(_live, store), current)
    live = {one.query: place for one, place in zip(current, places, strict=True)}
    saved = _newest_savepoints(store, current)
    names = {topic for at, _ in live.values() for topic in at}
    names |= {topic for one in saved for topic in lowest_offsets(one.cut.offsets)}
    try:
        known = topics.describe(names, kafka, _SECONDS)
    except SavepointsError as error:
        _LOG.warning("no metrics from Kafka: %s", error)
        return {}
    now = utc_now()
    ends = in_parallel(lambda one: restorable_until(one, known, kafka, now), saved)
    return {
        LAG: {
            (query, topic): records
            for query, (at, ids) in live.items()
            for topic, records in lag(at, known, ids).items()
        },
        RESTORABLE_UNTIL: {
            (one.query,): until for one, until in zip(saved, ends, strict=True) if until is not None
        },
    }


def lag(at: KafkaOffsets, known: Mapping[str, Topic], ids: Mapping[str, str]) -> dict[str, int]:
    """Count the offsets between a position and Kafka's end, by topic.

    A partition that is newer than the position counts from its beginning. A topic of which Kafka
    lacks a partition, or that was recreated, is left out.

    Args:
        ids: Those of the topics that the position is of, as far as they are known; where they are
            not, a topic that ends before the position was recreated.
    """
    found = {}
    for topic, parts in at.items():
        if topic not in known or known[topic].is_another(ids.get(topic)):
            continue
        ends = offsets.ends({topic: known[topic].ranges})
        begin = offsets.with_new_partitions({topic: parts}, {topic: known[topic].ranges})
        try:
            found[topic] = offsets.count(begin, ends)
        except ValueError as error:
            _LOG.warning("the lag of %s is unknown: %s", topic, error)
    return found


def restorable_until(
    savepoint: Savepoint, known: Mapping[str, Topic], kafka: KafkaSettings, now: datetime
) -> float | None:
    """Return until when Kafka keeps all records after a savepoint, in seconds since 1970.

    Returns:
        0 when some are gone already; None when there is no limit, when it is not known, and for
        topics that are limited by size, of which only `list --check-sources` has an estimate.
    """
    saved = lowest_offsets(savepoint.cut.offsets)
    read = {topic: known[topic] for topic in saved if topic in known}
    at = with_added(saved, {name: one.ranges for name, one in read.items()})
    if not at:
        return None
    if len(read) < len(at) or any(
        one.is_another(savepoint.topics.get(name)) or not _has(one, at[name])
        for name, one in read.items()
    ):
        return 0.0
    if any(one.policy is not None and one.policy.retention_bytes for one in read.values()):
        return None
    try:
        kept = record_retention.until(at, read, kafka, now, seconds=_SECONDS)
    except SavepointsError as error:
        _LOG.warning("it is unknown until when %s is restorable: %s", savepoint.id, error)
        return None
    until, _, _ = record_retention.soonest(kept, now)
    return None if until is None else until.timestamp()


def _has(topic: Topic, parts: Mapping[int, int]) -> bool:
    return all(
        part in topic.ranges and topic.ranges[part].earliest <= offset <= topic.ranges[part].end
        for part, offset in parts.items()
    )


def _live(store: Store, generation: Generation) -> tuple[KafkaOffsets, dict[str, str]]:
    """Return where a generation is, and the known ids of its topics; nothing if unreadable."""
    try:
        at = position.read(Location.of(generation.checkpoint)).offsets
        return at, lineage.topic_ids(store, generation)
    except SavepointsError as error:
        _LOG.warning("the lag of %s is unknown: %s", generation.query, error)
        return {}, {}


def _newest_savepoints(store: Store, current: list[Generation]) -> list[Savepoint]:
    """Return the newest whole savepoint of each query's present whose records only Kafka has."""
    catalog, generations = store.catalog.all(), store.generations.all()
    queries = bindings.complete(store).queries
    found = []
    for query in (one.query for one in current):
        bound = queries.get(query)
        if bound is not None and bound.archives:
            continue
        found += living_line.whole(query, generations, catalog)[:1]
    return found
