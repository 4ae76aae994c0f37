"""A shop on a cluster: everything on S3, orders with known amounts, and what they come to."""

from __future__ import annotations

import json
import random
import uuid
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from savepoints.config.settings import QuerySettings, Settings
from savepoints.handle import Query, Store
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.outputs.delta.batch_version import open_table
from savepoints.spark.session import session
from tests import spark_session
from tests.clusters.standalone import Cluster
from tests.e2e import late_desk

QUERY = "totals"
TOPIC_PARTITIONS = 3
_COLUMNS = ["customer", "orders", "cents"]


class Order(NamedTuple):
    """An order, as its record is."""

    id: str
    customer: str
    cents: int
    at_ms: int

    @property
    def value(self) -> bytes:
        return json.dumps(self._asdict()).encode()


def orders(seed: int, count: int, day: int) -> list[Order]:
    """Make orders of some hundred customers on a day."""
    chance = random.Random(f"{seed} {day}")
    begin = (1_700_000_000 + day * 86_400) * 1000
    return [
        Order(
            f"{day}-{number}",
            f"c{chance.randrange(400)}",
            chance.randrange(1, 10_000),
            begin + chance.randrange(86_400_000),
        )
        for number in range(count)
    ]


@dataclass(frozen=True)
class Shop:
    """A shop: a topic, a directory, and settings with the cluster in them."""

    root: str
    topic: str
    settings: Settings

    @classmethod
    def open(
        cls,
        world: LocalWorld,
        cluster: Cluster,
        directory: Path,
        app: str,
        provider: str,
        place: Location | None = None,
    ) -> Shop:
        """Open a shop in a place, or else in a bucket of its own."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        name = f"cluster-{uuid.uuid4().hex[:10]}"
        admin = AdminClient({"bootstrap.servers": world.bootstrap_servers})
        for made in admin.create_topics([NewTopic(name, TOPIC_PARTITIONS)]).values():
            made.result()
        if place is None:
            world.create_bucket(name)
        root = f"s3://{name}" if place is None else str(place)
        bound = QuerySettings(
            app=f"tests.clusters.apps:{app}",
            checkpoints=f"{root}/checkpoints",
            outputs={"totals": f"{root}/totals"},
            topics={"orders": name},
            archives={"orders": f"{root}/archive"},
            max_offsets_per_trigger=2_000,
        )
        settings = spark_session.settings(
            store=f"{root}/store",
            kafka={"bootstrap_servers": world.bootstrap_servers},
            queries={QUERY: bound},
        )
        conf = {
            **settings.spark.conf,
            **cluster.conf,
            "spark.submit.pyFiles": str(_program(directory)),
            "spark.sql.streaming.stateStore.providerClass": provider,
        }
        spark = settings.spark.model_copy(update={"master": cluster.master, "conf": conf})
        return cls(root, name, settings.model_copy(update={"spark": spark}))

    @property
    def store(self) -> Store:
        return Store.at(self.settings.store, settings=self.settings).make()

    @property
    def buggy(self) -> str:
        """The program of the settings, with a bug."""
        return f"{self.settings.queries[QUERY].app}_buggy"

    @property
    def query(self) -> Query:
        return self.store.query(QUERY)

    def sell(self, sold: Sequence[Order]) -> None:
        """Produce orders."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.settings.kafka.bootstrap_servers})
        for number, one in enumerate(sold):
            partition = number % TOPIC_PARTITIONS
            producer.produce(self.topic, one.value, one.customer.encode(), partition=partition)
        producer.flush()

    def archive(self) -> None:
        """Archive what has arrived."""
        late_desk.archive(session(self.settings, "archive"), self.settings, QUERY, "orders")

    def write(self, late: Sequence[Order]) -> str:
        """Write orders as a batch of records; returns where."""
        columns = {
            "key": pa.array([one.customer.encode() for one in late], pa.binary()),
            "value": pa.array([one.value for one in late], pa.binary()),
        }
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(columns), sink)
        Location.of(self.root).put("late.parquet", sink.getvalue().to_pybytes())
        return f"{self.root}/late.parquet"

    def wrong(self, sold: Iterable[Order]) -> int:
        """Count the customers of which the output has something else than pandas computes."""
        frame = pd.DataFrame(list(sold))
        truth = frame.groupby("customer", as_index=False).agg(
            orders=("id", "size"), cents=("cents", "sum")
        )
        found = open_table(f"{self.root}/totals").to_pandas()
        both = truth[_COLUMNS].merge(found[_COLUMNS], how="outer", indicator="where")
        return int(both.loc[both["where"] != "both", "customer"].nunique())


def _program(directory: Path) -> Path:
    """Return the program as users send theirs, with `--py-files`."""
    file = directory / "program.zip"
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("tests/__init__.py", "tests/clusters/__init__.py", "tests/clusters/apps.py"):
            archive.write(Path(__file__).parents[2] / name, name)
    return file
