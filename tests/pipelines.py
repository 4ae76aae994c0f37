"""Queries that read each other's tables, made without Spark: real tables, checkpoints, a store."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from savepoints.config.settings import QuerySettings, Settings
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.pipeline import pipeline as pipelines
from savepoints.operations.pipeline.pipeline_graph import Pipeline
from tests.samples import files_of, unpack

# The newest batch of the sample from which the checkpoints are made.
BATCH = 2


@dataclass
class Queries:
    """Queries whose checkpoints and tables lie in one place, known to one store."""

    store: Store
    place: Location
    configured: dict[str, QuerySettings] = field(default_factory=dict)

    def uri(self, table: str) -> str:
        """Return where a table is."""
        return str(self.place / "tables" / table)

    def checkpoint(self, query: str) -> Location:
        """Return where a query's checkpoint is."""
        return self.place / "checkpoints" / query / "1"

    def append(self, table: str, commits: int = 1) -> str:
        """Write a table that many times, one row a commit, and return its id."""
        for number in range(commits):
            write_deltalake(self.uri(table), pa.table({"n": [number]}), mode="append")
        return str(DeltaTable(self.uri(table)).metadata().id)

    def add(self, query: str, reads: list[str | None], *, writes: tuple[str, ...] = ()) -> None:
        """Add a query whose sources are at these positions after its newest batch."""
        checkpoint = unpack("two_sources", self.checkpoint(query))
        checkpoint.delete([info.path for info in checkpoint.list("sources")])
        self.move(query, reads)
        self.bind(query, {name: self.uri(name) for name in writes})
        self.store.generations.begin(query, 1, checkpoint, by="run")

    def move(self, query: str, reads: list[str | None], batch: int = BATCH) -> None:
        """Write the positions of a batch; of the newest committed one, in its place."""
        version, settings, *_ = files_of("two_sources")[f"offsets/{BATCH}"].decode().split("\n")
        lines = [version, settings, *("-" if one is None else one for one in reads)]
        self.checkpoint(query).put(f"offsets/{batch}", "\n".join(lines).encode())

    def bind(self, query: str, outputs: dict[str, str], archives: str | None = None) -> None:
        """Name the outputs of a query in the settings, and an archive of it."""
        self.configured[query] = QuerySettings(
            app="jobs:app",
            checkpoints=str(self.place / "checkpoints"),
            outputs=outputs,
            archives={"in": archives} if archives else {},
        )

    def of(self, query: str) -> Pipeline:
        """Return the pipeline of a query, as it is now."""
        return pipelines.pipeline(self.configured_store, query)

    @property
    def configured_store(self) -> Store:
        """The store with the settings."""
        return self.store.with_settings(Settings(queries=self.configured))


def next_version(table_id: str, version: int, *, index: int = -1, snapshot: bool = False) -> str:
    """Write a Delta source's position as Delta does: this version is the next to be read."""
    return json.dumps(
        {
            "sourceVersion": 1,
            "reservoirId": table_id,
            "reservoirVersion": version,
            "index": index,
            "isStartingVersion": snapshot,
        },
        separators=(",", ":"),
    )


def chain(queries: Queries) -> dict[str, str]:
    """Add bronze, which reads a topic, silver behind it and gold behind that; return table ids.

    Of bronze's table silver has read versions 0 and 1 and not 2, 3 and 4; gold has read all of
    silver's.
    """
    ids = {"bronze": queries.append("bronze", 5), "silver": queries.append("silver", 2)}
    queries.append("gold")
    queries.add("bronze", ['{"orders":{"0":10,"1":7}}'], writes=("bronze",))
    queries.add("silver", [next_version(ids["bronze"], 2)], writes=("silver",))
    queries.add("gold", [next_version(ids["silver"], 2)], writes=("gold",))
    return ids
