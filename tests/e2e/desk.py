"""A query with topics of its own, and everything else on the local file system."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.config.settings import QuerySettings, Settings
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.model import Savepoint
from savepoints.outputs.delta.batch_version import open_table
from savepoints.runtime.app import load
from savepoints.runtime.runner import Ran
from tests import spark_session

PARTITIONS = 2


@dataclass(frozen=True)
class Desk:
    """One query and what it is bound to.

    Attributes:
        directory: Where store, checkpoints and output lie.
        query: Name of the query.
        topics: Topic by the input's name.
        settings: All of it as settings.
    """

    directory: Path
    query: str
    topics: Mapping[str, str]
    settings: Settings

    @classmethod
    def open(
        cls,
        world: LocalWorld,
        directory: Path,
        app: str,
        *,
        most: int | None = None,
        archived: bool = False,
    ) -> Desk:
        """Make the topics and bind the application, with archives of its inputs where wanted."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        application = load(app)
        topics = {name: f"{name}-{uuid.uuid4().hex[:10]}" for name in application.inputs}
        admin = AdminClient({"bootstrap.servers": world.bootstrap_servers})
        made = admin.create_topics([NewTopic(one, PARTITIONS) for one in topics.values()])
        for future in made.values():
            future.result()
        (directory / "store").mkdir()
        bound = QuerySettings(
            app=app,
            checkpoints=str(directory / "checkpoints"),
            outputs={name: str(directory / name) for name in application.outputs},
            topics=topics,
            archives={name: str(directory / f"archive-{name}") for name in topics if archived},
            max_offsets_per_trigger=most,
        )
        settings = spark_session.settings(
            store=str(directory / "store"),
            kafka={"bootstrap_servers": world.bootstrap_servers},
            queries={application.name: bound},
        )
        return cls(directory, application.name, topics, settings)

    @property
    def store(self) -> Store:
        """The savepoint store."""
        return Store.at(self.settings.store, settings=self.settings).make()

    @property
    def checkpoint(self) -> Location:
        """The checkpoint of the current generation."""
        return Location.of(self.store.generations.current(self.query).checkpoint)

    def send(self, name: str, records: Sequence[tuple[str, int]]) -> None:
        """Send records `key,number`."""
        self.produce(name, (f"{key},{value}".encode() for key, value in records))

    def produce(self, name: str, values: Iterable[bytes]) -> None:
        """Send records, in turns to the partitions, so that offsets are known."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.settings.kafka.bootstrap_servers})
        for number, value in enumerate(values):
            producer.produce(self.topics[name], value, partition=number % PARTITIONS)
        assert producer.flush(30) == 0

    def write_page_settings(self, block: str, queries: Sequence[str]) -> Path:
        """Write the settings of a page for this place, and return the file.

        Args:
            block: TOML as the page has it, with everything below `s3://lake`.
            queries: Names of its queries, which read the topics from here.
        """
        conf = "".join(f'"{k}" = "{v}"\n' for k, v in self.settings.spark.conf.items())
        topics = "".join(f'{name} = "{topic}"\n' for name, topic in self.topics.items())
        file = self.directory / "savepoints.toml"
        file.write_text(
            f'store = "{self.settings.store}"\n'
            f'[kafka]\nbootstrap_servers = "{self.settings.kafka.bootstrap_servers}"\n'
            f'[spark]\nmaster = "local[2]"\n[spark.conf]\n{conf}'
            + block.replace("s3://lake", str(self.directory))
            + "".join(f"[queries.{query}.topics]\n{topics}" for query in queries)
        )
        return file

    def run(self, **options: Any) -> tuple[Ran, Savepoint | None]:
        """Run the query in this process, with native savepoints."""
        return self.store.query(self.query).run(forms=("native",), **options)

    def write_settings(self, more: str = "") -> Path:
        """Write the settings for a process of its own, with tables of others; returns the file."""
        bound, conf = self.settings.queries[self.query], self.settings.spark.conf
        lines = [
            f"store = {json.dumps(self.settings.store)}",
            f"[kafka]\nbootstrap_servers = {json.dumps(self.settings.kafka.bootstrap_servers)}",
            f"[spark]\nmaster = {json.dumps(self.settings.spark.master)}",
            "[spark.conf]",
            *(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in conf.items()),
            f"[queries.{self.query}]\napp = {json.dumps(bound.app)}",
            f"checkpoints = {json.dumps(bound.checkpoints)}",
        ]
        if bound.max_offsets_per_trigger is not None:
            lines.append(f"max_offsets_per_trigger = {bound.max_offsets_per_trigger}")
        sections = {"outputs": bound.outputs, "topics": bound.topics, "archives": bound.archives}
        for section, names in sections.items():
            lines.append(f"[queries.{self.query}.{section}]")
            lines += [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in names.items()]
        file = self.directory / "savepoints.toml"
        file.write_text("\n".join([*lines, more, ""]))
        return file

    def rows(self, output: str = "out") -> list[dict[str, Any]]:
        """Return the rows of an output, read by deltalake and not by Spark."""
        table = open_table(str(self.directory / output)).to_pyarrow_table()
        rows: list[dict[str, Any]] = table.to_pylist()
        return sorted(rows, key=str)


def records_before(bootstrap_servers: str, offsets: KafkaOffsets) -> list[Any]:
    """Return the records before these offsets, read by Kafka's own client."""
    from confluent_kafka import Consumer, TopicPartition

    found: list[Any] = []
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": uuid.uuid4().hex,
         "auto.offset.reset": "earliest"}
    )  # fmt: skip
    try:
        for topic, parts in offsets.items():
            for partition, end in parts.items():
                consumer.assign([TopicPartition(topic, partition, 0)])
                got: list[Any] = []
                while len(got) < end:
                    got += consumer.consume(end - len(got), timeout=1)
                found += got
    finally:
        consumer.close()
    return found
