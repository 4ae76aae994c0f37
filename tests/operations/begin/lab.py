"""A query that reads a table, once from its beginning and once from a batch."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from savepoints.checkpoint import position
from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.state import operators
from savepoints.config.settings import QuerySettings
from savepoints.handle import Query, Store
from savepoints.io import Location
from savepoints.runtime import app as apps
from savepoints.state.typed import typed
from savepoints.state.typed.typed import Variable
from tests import spark_session
from tests.fidelity import typed_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGINNING = datetime(2026, 11, 20, 10, tzinfo=UTC)
EVENTS_A_VERSION = 16
SECONDS_A_VERSION = 12
KEYS = 7
Rows = Counter[str]
# Programs with `transformWithState`, which no other store can keep.
ONLY_ROCKSDB = {"transform", "transform_ttl"}
# Columns of state that two queries write at times of their own, by program.
CLOCK = {"transform_ttl": ("ttlExpirationMs",)}


@dataclass(frozen=True)
class After:
    """What is compared after each version: rows of the output, state, watermark."""

    rows: Rows
    state: Mapping[str, Counter[tuple[int, str]]]
    watermark: tuple[int, int]


@dataclass(frozen=True)
class Lab:
    """A table of events, and queries that read it, by name: a program, and where it is bound.

    Attributes:
        programs: The module that has the programs.
    """

    spark: SparkSession
    directory: Path
    programs: str = "tests.operations.begin.apps"

    @classmethod
    def open(cls, spark: SparkSession, directory: Path) -> Lab:
        """Make the places."""
        (directory / "store").mkdir()
        return cls(spark, directory)

    def append(self, version: int, seed: int = 1, *, disorder: float = 0.0) -> None:
        """Write the events of a version, some of them late."""
        chance = random.Random(f"{seed} {version}")
        rows: dict[str, list[Any]] = {"id": [], "k": [], "v": [], "t": []}
        for number in range(EVENTS_A_VERSION):
            second = version * SECONDS_A_VERSION + chance.randrange(SECONDS_A_VERSION)
            if chance.random() < disorder:
                second -= 60
            rows["id"].append(f"{version}-{number}")
            # A key that comes for a while only, so that it times out.
            key = chance.randrange(KEYS)
            rows["k"].append(None if key == 0 else f"k{key + version // 3}")
            rows["v"].append(chance.randrange(3))
            rows["t"].append(BEGINNING + timedelta(seconds=second))
        write_deltalake(str(self.directory / "events"), pa.table(rows), mode="append")

    def events(self) -> Any:
        """Return all events, read by deltalake into pandas."""
        return DeltaTable(str(self.directory / "events")).to_pandas()

    def bound(self, query: str, program: str) -> QuerySettings:
        """Return what a query is bound to."""
        app = apps.load(f"{self.programs}:{program}")
        return QuerySettings(
            app=f"{self.programs}:{program}",
            app_name=app.name,
            checkpoints=str(self.directory / "checkpoints"),
            outputs={"out": str(self.directory / query)},
            # Another spelling than the one in which places are compared.
            tables=dict.fromkeys(app.inputs, f"file://{self.directory / 'events'}/"),
        )

    def query(self, name: str, program: str) -> Query:
        """Return a query of the store."""
        settings = spark_session.settings(
            store=str(self.directory / "store"), queries={name: self.bound(name, program)}
        )
        return Store.at(settings.store, settings=settings).make().query(name)

    def advance(self, query: Query, version: int, clock: tuple[str, ...] = ()) -> After:
        """Run a query up to a version, and take down what it then has; see `now`."""
        query.run(until=f"version:{version}", final_savepoint=False)
        return self.now(query, clock)

    def now(self, query: Query, clock: tuple[str, ...] = ()) -> After:
        """Take down what a query has, without the columns of state that hold the machine's time."""
        checkpoint = Location.of(query.generation.checkpoint)
        batch = position.read(checkpoint).committed
        assert batch is not None
        offsets = json.loads(checkpoint.get(f"offsets/{batch}").decode().splitlines()[1])
        commit = json.loads(checkpoint.get(f"commits/{batch}").decode().splitlines()[1])
        state = typed_state.read(self.spark.newSession(), Path(str(checkpoint)), batch, clock)
        return After(
            self.rows(query),
            state,
            (offsets["batchWatermarkMs"], commit["nextBatchWatermarkMs"]),
        )

    def rows(self, query: Query) -> Rows:
        """Return the rows of the output, read by deltalake and not by Spark."""
        place = str(self.directory / query.name)
        if not DeltaTable.is_deltatable(place):
            return Counter()
        return Counter(map(str, DeltaTable(place).to_pyarrow_table().to_pylist()))

    def given(self, query: Query, name: str) -> dict[str, str]:
        """Write the state of a query, in the columns that users see, as tables; by their names."""
        checkpoint = Location.of(query.generation.checkpoint)
        files = read_cut(checkpoint, position.read(checkpoint).committed)
        own = typed.reading_session(self.spark, files.cut)
        found = {}
        for info in files.small:
            if not operators.is_metadata(info.path):
                continue
            for one in typed.variables(checkpoint.get(info.path), info.path, files.conf):
                if one.kind == "store":
                    continue
                place = self.directory / "given" / f"{name}-{one.operator_id}-{one.name}"
                rows = typed.read_variable(own, checkpoint.uri, files.cut.batch_id, one)
                rows.drop("partition_id").write.parquet(str(place))
                found[called(one)] = str(place)
        return found


def called(one: Variable) -> str:
    """Return the name of a variable on the command line."""
    return f"{one.operator_id}.{one.name}" if one.name else f"{one.operator_id}"


def watermark(after: After) -> datetime | None:
    """Return the watermark that a query goes on with, None for none."""
    at = after.watermark[1]
    return datetime.fromtimestamp(at / 1000, UTC) if at else None
