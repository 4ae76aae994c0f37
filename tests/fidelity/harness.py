"""Runs the queries, uninterrupted and restored, and takes down all that can be compared."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fidelity import local_files, typed_state
from tests.fidelity.queries import FILES, SCHEMA, Query
from tests.fidelity.typed_state import State

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 3
STATE_STORE = "spark.sql.streaming.stateStore"
_PROVIDERS = "org.apache.spark.sql.execution.streaming.state"
# A query that never ends is stopped in the second batch after its last file.
_LAST_ENDLESS_BATCH = FILES
_WAIT_SECONDS = 120


@dataclass(frozen=True)
class StateStore:
    """How Spark keeps state: provider, version of its checkpoints, changelogs.

    Attributes:
        name: The second part of the ids of tests.
        provider: Name of the provider, as `restore` takes it.
        conf: Spark settings that make it so.
    """

    name: str
    provider: str
    conf: Mapping[str, str]


def _rocksdb(checkpoint_format: int, changelog: bool) -> StateStore:
    return StateStore(
        f"rocksdb_{checkpoint_format}{'_changelog' if changelog else ''}",
        "rocksdb",
        {
            f"{STATE_STORE}.providerClass": f"{_PROVIDERS}.RocksDBStateStoreProvider",
            f"{STATE_STORE}.checkpointFormatVersion": str(checkpoint_format),
            f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": str(changelog).lower(),
        },
    )


STORES = {
    one.name: one
    for one in (
        *(_rocksdb(version, changelog) for version in (1, 2) for changelog in (False, True)),
        StateStore(
            "hdfs",
            "hdfs",
            {f"{STATE_STORE}.providerClass": f"{_PROVIDERS}.HDFSBackedStateStoreProvider"},
        ),
    )
}


class _EnoughError(Exception):
    """Ends a query that would go on for ever."""


@dataclass(frozen=True)
class Run:
    """What a query did, and what it left.

    Attributes:
        batches: By batch, the rows that it gave and how often.
        watermarks: By committed batch, the watermark that it ran with and that of the next one.
        state: At the end, as Spark reads it.
    """

    batches: Mapping[int, Counter[str]]
    watermarks: Mapping[int, tuple[int, int]]
    state: State

    def after(self, batch_id: int) -> Run:
        """Return the part of it after a batch."""
        return Run(
            {batch: rows for batch, rows in self.batches.items() if batch > batch_id},
            {batch: ms for batch, ms in self.watermarks.items() if batch > batch_id},
            self.state,
        )


def run(
    spark: SparkSession, query: Query, store: StateStore, inputs: Path, checkpoint: Path
) -> Run:
    """Start a query, or go on with it, until it has read all its files and is done.

    Raises:
        StreamingQueryException: If it fails.
    """
    found = run_batches(spark, query, store, inputs, checkpoint)
    last = max(found.watermarks)
    session = _session(spark, query, store)
    state = typed_state.read(session, _readable(checkpoint, last), last, query.clock)
    return replace(found, state=state)


def run_batches(
    spark: SparkSession, query: Query, store: StateStore, inputs: Path, checkpoint: Path
) -> Run:
    """Run as `run` does, without the state at the end, which Spark reads since 4.0 alone."""
    from pyspark.errors import StreamingQueryException

    session = _session(spark, query, store)
    frames = [
        session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(inputs / str(n)))
        for n in range(query.sources)
    ]
    batches: dict[int, Counter[str]] = {}

    def collect(batch: DataFrame, batch_id: int) -> None:
        if query.endless and batch_id > _LAST_ENDLESS_BATCH:
            raise _EnoughError
        batches[batch_id] = Counter(map(repr, batch.collect()))

    running = (
        query.build(frames)
        .writeStream.outputMode(query.mode)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(collect)
        .start()
    )
    try:
        assert running.awaitTermination(_WAIT_SECONDS), "the query hangs"
    except StreamingQueryException as error:
        if not (query.endless and _EnoughError.__name__ in str(error)):
            raise
    finally:
        running.stop()
    return Run(batches, _watermarks(checkpoint), {})


def _readable(checkpoint: Path, batch_id: int) -> Path:
    """Return a checkpoint that Spark can read the state of.

    With offset log 2, the offsets of a first run lack what its reader of state asks for.
    """
    offsets = (checkpoint / "offsets" / str(batch_id)).read_text()
    if "spark.sql.shuffle.partitions" in offsets:
        return checkpoint
    copy = checkpoint.with_name(f"{checkpoint.name}-readable")
    shutil.copytree(checkpoint, copy)
    (copy / "offsets" / f".{batch_id}.crc").unlink(missing_ok=True)
    added = f'"conf":{{"spark.sql.shuffle.partitions":"{PARTITIONS}",'
    (copy / "offsets" / str(batch_id)).write_text(offsets.replace('"conf":{', added))
    return copy


@contextmanager
def own_maintenance(spark: SparkSession) -> Iterator[None]:
    """Let the maintenance of state stores run as often as the queries here want it.

    There is one thread of it in a JVM, as often as the first query wanted; a new one is started for
    the next query.
    """
    jvm: Any = spark.sparkContext._jvm
    package = jvm.org.apache.spark.sql.execution.streaming.state
    state_store = getattr(getattr(package, "StateStore$"), "MODULE$")
    state_store.stopMaintenanceTask()
    yield
    state_store.stopMaintenanceTask()


def _watermarks(checkpoint: Path) -> dict[int, tuple[int, int]]:
    found = {}
    for path in (checkpoint / "commits").iterdir():
        if path.name.isdigit():
            commit = json.loads(path.read_text().splitlines()[1])
            offsets = json.loads((checkpoint / "offsets" / path.name).read_text().splitlines()[1])
            found[int(path.name)] = offsets["batchWatermarkMs"], commit["nextBatchWatermarkMs"]
    return found


def _session(spark: SparkSession, query: Query, store: StateStore) -> SparkSession:
    """Return a session with the settings of a query, and of no other."""
    session = spark.newSession()
    for key, value in {
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.sql.streaming.pollingDelay": "0",
        # Compiling expressions takes longer than evaluating them for a few rows.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # Versions that are made of a snapshot and changelogs, or deltas.
        f"{STATE_STORE}.minDeltasForSnapshot": "2",
        f"{STATE_STORE}.maintenanceInterval": "200ms",
        **local_files.CONF,
        **store.conf,
        **query.conf,
    }.items():
        session.conf.set(key, value)
    return session
