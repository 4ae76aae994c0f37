"""Queries that have gone on after their savepoints, made without Spark from a real checkpoint."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from savepoints.checkpoint.logs import offset_log
from savepoints.config.settings import KafkaSettings, QuerySettings, Settings
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from tests import samples
from tests.pipelines import next_version

# Batches of the checkpoint: the one that is saved, and the newest.
SAVED, NEWEST = 1, 3
SAMPLE = "rocksdb"


@dataclass
class Line:
    """Queries, each of which writes one table, a row and a version a batch."""

    store: Store
    place: Location
    configured: dict[str, QuerySettings] = field(default_factory=dict)

    def uri(self, query: str) -> str:
        return str(self.place / "tables" / query)

    def live(self, query: str) -> Location:
        return self.place / "checkpoints" / query / "1"

    def checkpoint(self, query: str) -> Location:
        """Return the checkpoint of the generation that is the current one."""
        return Location.of(self.store.generations.current(query).checkpoint)

    def table(self, query: str) -> DeltaTable:
        return DeltaTable(self.uri(query))

    def rows(self, query: str) -> list[int]:
        return sorted(self.table(query).to_pandas()["batch"])

    def reads(self, query: str, *, ahead: int = 1) -> Callable[[int], str]:
        """Return a source that has read so many versions more than its batch's number."""
        table_id = str(self.table(query).metadata().id)
        return lambda batch: next_version(table_id, batch + ahead)

    def add(
        self,
        query: str,
        *sources: Callable[[int], str | None],
        configure: bool = True,
        begun_by: str = "run",
        compacted_after: int | None = None,
    ) -> None:
        """Add a query that has run all batches, and written its table."""
        checkpoint = samples.unpack(SAMPLE, self.live(query))
        checkpoint.delete([info.path for info in checkpoint.list("sources")])
        query_id = str(uuid.uuid4())
        checkpoint.put("metadata", json.dumps({"id": query_id}).encode())
        for batch in range(NEWEST + 1):
            name = f"offsets/{batch}"
            version, settings, *_ = checkpoint.get(name).decode().split("\n")
            lines = [version, settings, *(one(batch) or "-" for one in sources)]
            checkpoint.put(name, "\n".join(lines).encode())
            self.write(query, batch, query_id)
            if batch == compacted_after:
                self.table(query).optimize.compact()
        if configure:
            self.configured[query] = QuerySettings(
                app="jobs:app",
                checkpoints=str(self.place / "checkpoints"),
                outputs={query: self.uri(query)},
            )
        self.store.generations.begin(query, 1, checkpoint, by=begun_by)

    def store_id(self, query: str) -> str:
        """Return Spark's id of a query, under which it writes."""
        return str(json.loads(self.live(query).get("metadata"))["id"])

    def write(self, query: str, batch: int, app: str) -> None:
        write_deltalake(
            self.uri(query),
            pa.table({"batch": pa.array([batch], pa.int64())}),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[Transaction(app, batch)]),
        )

    def save(self, query: str, *tags: str, batch: int = SAVED) -> Savepoint:
        return samples.take(
            self.store, self.live(query), batch_id=batch, query=query, tags=tags,
            outputs={query: self.uri(query)},
        )  # fmt: skip

    @property
    def configured_store(self) -> Store:
        return self.store.with_settings(
            Settings(queries=self.configured, kafka=KafkaSettings(bootstrap_servers=""))
        )

    def config(self) -> str:
        """Write the settings into a file, for the command line."""
        lines = [f'store = "{self.store.root}"']
        for query, bound in self.configured.items():
            lines += [
                f"[queries.{query}]", f'app = "{bound.app}"',
                f'checkpoints = "{bound.checkpoints}"',
                f"[queries.{query}.outputs]", f'{query} = "{bound.outputs[query]}"',
            ]  # fmt: skip
        file = Path(str(self.place)) / "savepoints.toml"
        file.write_text("\n".join(lines) + "\n")
        return str(file)

    def sources(self, query: str, batch: int) -> tuple[str | None, ...]:
        """Return where the sources of a query's current checkpoint are after a batch."""
        name = f"offsets/{batch}"
        return offset_log.parse(self.checkpoint(query).get(name), name).sources


def topic(batch: int) -> str:
    """Return where a source of Kafka is after a batch."""
    return f'{{"orders":{{"0":{10 * batch}}}}}'


def chain(line: Line, *, ahead: int = 1, tag: str = "before") -> dict[str, Savepoint]:
    """Add bronze, silver and gold, each with a savepoint of the same batch.

    Args:
        ahead: How many versions more than its batch's number a reader has read; 1 for all there
            were.
    """
    line.add("bronze", topic)
    line.add("silver", line.reads("bronze", ahead=ahead))
    line.add("gold", line.reads("silver", ahead=ahead))
    return {name: line.save(name, tag) for name in ("gold", "silver", "bronze")}


def contents(line: Line, queries: Sequence[str]) -> Mapping[str, Mapping[str, bytes]]:
    """Return the files of checkpoints, to see that none is edited."""
    return {query: samples.contents(line.live(query)) for query in queries}
