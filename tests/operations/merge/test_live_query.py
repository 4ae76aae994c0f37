"""The query that late events are merged into: which of its events can still be had."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta

import pytest

from savepoints.config.settings import QuerySettings
from savepoints.errors import SourceDataGoneError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.operations.merge.live_query import LiveQuery
from savepoints.runtime.inputs import Inputs
from savepoints.sources.archive import progress
from savepoints.sources.archive.progress import Arrival
from spark_jobs.order_totals import app
from tests.samples import take, unpack
from tests.sources.broker import Broker

pytestmark = [pytest.mark.kafka]


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
def test_trap_a_replay_misses_what_the_compaction_of_a_topic_has_removed(
    world: LocalWorld, on_local: Location, local_store: Store, policy: str
) -> None:
    broker = Broker.of(world)
    topic = broker.make(partitions=1, config={"cleanup.policy": policy})
    broker.put(topic, 0, timedelta(hours=2), timedelta(hours=1))
    take(local_store, unpack("rocksdb", on_local / "live"), query="order_totals")
    archive = str(on_local / "archive")
    bound = QuerySettings(
        app="spark_jobs.order_totals:app",
        checkpoints=str(on_local / "next"),
        topics={"orders": topic},
        archives={"orders": archive},
    )
    live = local_store.generations.current("order_totals")

    def check(read: int) -> None:
        inputs = Inputs(app, bound, broker.settings)
        LiveQuery.read(local_store, inputs, live, {topic: {0: read}}).refuse_compacted()

    for archived in (0, 1):
        if archived:
            arrived = Arrival(topic, 0, 0, archived, archived, None)
            progress.add(archive, [arrived], app="app", version=1)
        check(archived)
        refused = pytest.raises(SourceDataGoneError, match=f"topic {topic} is compacted")
        with refused if "compact" in policy else nullcontext():
            check(archived + 1)
    progress.add(archive, [Arrival(topic, 0, 1, 2, 1, None)], app="app", version=2)
    check(2)
