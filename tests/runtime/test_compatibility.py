"""Whether what a restored query goes on with is what it was restored for; no JVM."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from savepoints.config.settings import KafkaSettings, QuerySettings, Settings
from savepoints.errors import SourceDataGoneError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.runtime import compatibility
from savepoints.runtime.runner import Ran
from tests.samples import savepoint, unpack
from tests.sources.broker import HOUR, Broker
from tests.sources.reading import BATCH, checkpoint_at


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("verb", "is_compared"), [("rollback", True), ("reset", False), (None, True)]
)
def test_trap_a_topic_made_anew_has_other_records_at_the_same_offsets(
    world: LocalWorld, on_local: Location, local_store: Store, verb: str | None, is_compared: bool
) -> None:
    """A run to the end refuses it; a reset has chosen the offsets of the new topic itself."""
    broker = Broker.of(world)
    topic = broker.make(partitions=1)
    broker.put(topic, 0, HOUR)
    bound = QuerySettings(
        app="spark_jobs.order_totals:app",
        checkpoints=str(on_local / "live"),
        outputs={"totals": str(on_local / "totals")},
        topics={"orders": topic},
    )
    settings = Settings(kafka=broker.settings, queries={"order_totals": bound})
    own = CommitProperties(app_transactions=[Transaction("order_totals/totals/1", BATCH)])
    write_deltalake(bound.outputs["totals"], pa.table({"n": [1]}), commit_properties=own)
    live = checkpoint_at({topic: {0: 1}}, on_local / "live" / "1")
    saved = (
        local_store.with_settings(settings)
        .create(query="order_totals", checkpoint=str(live), forms=("native",))
        .execute()
    )
    assert saved.topics
    if verb is not None:
        local_store.generations.begin("order_totals", 2, live, by=verb, begun_from=saved.id)

    def run() -> Ran:
        return (
            local_store.with_settings(settings)
            .query("order_totals")
            .run(until="latest", final_savepoint=False)[0]
        )

    assert run().caught_up
    broker.remove(topic)
    broker.make(partitions=1, name=topic)
    broker.put(topic, 0, HOUR)

    if is_compared:
        with pytest.raises(SourceDataGoneError, match=f"{topic} has been deleted and recreated"):
            run()
    else:
        assert run().caught_up


def test_without_a_broker_a_query_is_run_as_it_always_was(
    on_local: Location, local_store: Store
) -> None:
    topic_id = "AAAAAAAAAAAAAAAAAAAAAQ"
    origin = dataclasses.replace(savepoint(3), topics={"orders": topic_id})
    live = checkpoint_at({"orders": {0: 1}}, on_local / "live")
    generation = local_store.generations.begin(
        "orders", 1, live, by="rollback", begun_from=origin.id
    )
    local_store.catalog.add(origin)
    told: list[str] = []

    compatibility.require_same_topics(local_store, generation, KafkaSettings(), told.append)

    assert len(told) == 1
    assert told[0].startswith("could not check whether topics were recreated: ")


def test_a_generation_is_restored_until_it_has_run_a_batch(
    on_local: Location, local_store: Store
) -> None:
    live = unpack("rocksdb", on_local / "live")
    generation = local_store.generations.begin("q", 1, live, by="rollback", begun_from="sp-1")

    assert compatibility.is_restored(generation, savepoint(3))
    assert not compatibility.is_restored(generation, savepoint(2))
