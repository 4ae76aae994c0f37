"""A run keeps the batch log, compared with the offset log in its checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.checkpoint.logs.kafka_position import kafka_offsets
from savepoints.config.settings import QuerySettings, Settings
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.operations.run.run import run
from savepoints.store import batch_log
from tests.sources.broker import Broker
from tests.sources.json_input import app, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_a_run_copies_its_offset_log(
    spark: SparkSession, world: LocalWorld, local_store: Store, tmp_path: Path
) -> None:
    broker = Broker.of(world)
    topic = broker.make(partitions=1)
    produce(broker, topic, 1, 30, seed=1)
    bound = QuerySettings(
        app="tests.sources.json_input:app",
        checkpoints=str(tmp_path / "checkpoints"),
        outputs={"counts": str(tmp_path / "counts")},
        topics={"orders": topic},
        max_offsets_per_trigger=10,
    )
    settings = Settings(kafka=broker.settings, queries={app.name: bound})

    ran, _ = run(
        local_store.with_settings(settings), app.name, until="latest", final_savepoint=False
    )

    found = batch_log.read(local_store.root, app.name, ran.generation)
    generation = local_store.generations.current(app.name)
    checkpoint = Path(str(Location.of(generation.checkpoint)))
    assert sorted(found) == list(range(ran.batches))
    for batch, one in found.items():
        _, metadata, position = (checkpoint / "offsets" / str(batch)).read_text().split("\n")
        assert one.offsets == (position,)
        assert one.watermark_ms == json.loads(metadata)["batchWatermarkMs"]
        assert one.timestamp_ms == json.loads(metadata)["batchTimestampMs"]
    assert [kafka_offsets(one.offsets[0]) for one in found.values()] == [
        {topic: {0: 10 * (batch + 1)}} for batch in found
    ]
