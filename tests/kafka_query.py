"""A query over a real topic whose checkpoint and output were made without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from savepoints.checkpoint.logs import offset_log
from savepoints.checkpoint.logs.kafka_position import kafka_position
from savepoints.config.settings import QuerySettings, Settings
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.rollback import reset
from savepoints.operations.rollback.reset import ResetPlan
from savepoints.sources.kafka.reset_targets import Target
from tests.samples import query_id, take, unpack
from tests.sources.broker import Broker

QUERY = "totals"


@dataclass(frozen=True)
class Query:
    """A query with four batches that has read 6 of 10 and 3 of 4 records."""

    store: Store
    place: Location
    checkpoint: Location
    table: str
    topic: str

    @property
    def settings(self) -> Settings:
        return self.store.settings

    def plan(self, target: Target | datetime, **options: Any) -> ResetPlan:
        return reset.plan(self.store, QUERY, target, **options)

    @property
    def rows(self) -> list[int]:
        return sorted(row["batch"] for row in DeltaTable(self.table).to_pyarrow_table().to_pylist())

    def read(self, *offsets: int) -> str:
        return kafka_position({self.topic: dict(enumerate(offsets))})


def make(broker: Broker, place: Location, store: Store) -> Query:
    """Make it, with a savepoint of batch 1."""
    topic = broker.make(partitions=2)
    broker.put(topic, 0, *(timedelta(hours=10 - hour) for hour in range(10)))
    broker.put(topic, 1, *(timedelta(hours=10 - hour) for hour in range(4)))
    checkpoint = unpack("rocksdb", place / "live")
    # The sample has read files, whose source keeps a log there.
    checkpoint.delete([info.path for info in checkpoint.list("sources")])
    for batch, position in enumerate([(1, 0), (2, 1), (4, 2), (6, 3)]):
        path = f"offsets/{batch}"
        if checkpoint.exists(path):
            read = kafka_position({topic: dict(enumerate(position))})
            checkpoint.put(
                path, offset_log.with_batch(checkpoint.get(path), path, positions=[read])
            )
    table = str(place / "output")
    for batch in range(4):
        write_deltalake(
            table,
            pa.table({"batch": [batch]}),
            mode="append",
            commit_properties=CommitProperties(
                app_transactions=[Transaction(query_id("rocksdb"), batch)]
            ),
        )
    bound = QuerySettings(
        app="unused:app", checkpoints=str(place / "next"), outputs={"totals": table}
    )
    settings = Settings(store=str(store.root), kafka=broker.settings, queries={QUERY: bound})
    take(store, checkpoint, batch_id=1, outputs={"totals": table})
    return Query(store.with_settings(settings), place, checkpoint, table, topic)
