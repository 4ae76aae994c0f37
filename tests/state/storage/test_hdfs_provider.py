"""State of Spark's default provider, decoded and written here, beside what Spark makes of it.

The kinds of keys are tested here, that all operators are restored exactly in `tests/fidelity`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from savepoints.checkpoint import cut as checkpoint_cut
from savepoints.checkpoint.cut import CutFiles
from savepoints.checkpoint.logs import offset_log
from savepoints.checkpoint.logs.offset_log import CODEC_KEY, PARTITIONS_KEY, PROVIDER_KEY
from savepoints.checkpoint.state import compression, records
from savepoints.checkpoint.state.operators import HDFS_PROVIDER, ROCKSDB_PROVIDER
from savepoints.checkpoint.state.records import ROW_CHECKSUM_KEY
from savepoints.errors import IncompatibleError, NotAlignedError, SavepointsError
from savepoints.io import Location
from savepoints.state.storage import hdfs_provider, read
from tests.samples import unpack
from tests.spark_session import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

PARTITIONS = 2
STATE_STORE = "spark.sql.streaming.stateStore"
BASE_MS = 1_700_000_000_000
SNAPSHOT_AFTER = 3  # deltas; with one file more there is a delta on top of the snapshot


def window(events: DataFrame) -> DataFrame:
    """Windows that close, so that deltas remove keys; a struct in the key."""
    from pyspark.sql import functions as F

    late = events.withWatermark("at", "10 seconds")
    return late.groupBy(F.window("at", "5 seconds"), "k").agg(F.sum("v"), F.max("v"))


def session(events: DataFrame) -> DataFrame:
    """Sessions: rows are placed by the session's key without its start."""
    from pyspark.sql import functions as F

    late = events.withWatermark("at", "10 seconds")
    return late.groupBy(F.session_window("at", "2 seconds"), "k", "s").agg(F.sum("v"))


def everything(events: DataFrame) -> DataFrame:
    """One total without a key."""
    from pyspark.sql import functions as F

    return events.agg(F.count("*"), F.sum("v"))


def join(events: DataFrame) -> DataFrame:
    """A join of a stream with itself: two stores a side, one with an index in its key."""
    from pyspark.sql import functions as F

    left = events.withWatermark("at", "10 seconds").alias("a")
    right = events.withWatermark("at", "10 seconds").alias("b")
    near = "b.at between a.at and a.at + interval 3 seconds"
    return left.join(right, F.expr(f"a.k = b.k and a.s = b.s and {near}"), "leftOuter")


QUERIES: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "window": (window, "append"),
    "session": (session, "append"),
    "everything": (everything, "update"),
    "join": (join, "append"),
}
PROVIDERS = {
    "rocksdb": {
        PROVIDER_KEY: ROCKSDB_PROVIDER,
        # One file a batch and store instead of three.
        f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    },
    "hdfs": {PROVIDER_KEY: HDFS_PROVIDER},
    "checked": {PROVIDER_KEY: HDFS_PROVIDER, ROW_CHECKSUM_KEY: "true", CODEC_KEY: "zstd"},
}


@dataclass(frozen=True)
class Runs:
    """The same queries over the same files, under each provider; run when they are asked for."""

    spark: SparkSession
    home: Path

    def checkpoint(self, query: str, provider: str) -> Location:
        home = self.home / query
        if not home.exists():
            run(self.spark, query, home)
        return Location.of(str(home / provider))

    def last_batch(self, query: str) -> int:
        """The newest batch, which must be the same under all providers."""
        (found,) = {
            checkpoint_cut.read_cut(self.checkpoint(query, provider)).cut.batch_id
            for provider in PROVIDERS
            if self.checkpoint(query, provider).exists("metadata")
        }
        return found

    def cut(self, query: str, provider: str, batch: int | None = None) -> CutFiles:
        wanted = self.last_batch(query) if batch is None else batch
        return checkpoint_cut.read_cut(self.checkpoint(query, provider), wanted)

    def canonical(self, query: str, provider: str, batch: int | None = None) -> DataFrame:
        files = self.cut(query, provider, batch)
        (operator,) = files.operators
        reading = read.reading_session(self.spark, 1)
        return read.read_operator(reading, self.checkpoint(query, provider), files, operator)


@pytest.fixture(scope="module")
def runs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(spark, tmp_path_factory.mktemp("hdfs-files"))


def run(spark: SparkSession, query: str, home: Path) -> None:
    """Run a query twice under each provider, so that files come before a snapshot and after it."""
    source = home / "in"
    source.mkdir(parents=True)
    chance = random.Random(11)
    for number in range(SNAPSHOT_AFTER):
        add_file(source, number, chance)
    run_to_the_end(
        spark, query, home, lambda: wait_until(lambda: has_snapshots(home), "there are snapshots")
    )
    # Not while a join runs: one of its sides might see the file in an earlier batch.
    add_file(source, SNAPSHOT_AFTER, chance)
    run_to_the_end(spark, query, home, lambda: None)


def run_to_the_end(
    spark: SparkSession, query: str, home: Path, before_the_end: Callable[[], None]
) -> None:
    """Run a query under all providers at once, until it has read all files."""
    build, mode = QUERIES[query]
    events = (
        spark.readStream.schema("k int, s string, v long, t long")
        .option("maxFilesPerTrigger", 1)
        .json(str(home / "in"))
        .selectExpr("*", "timestamp_millis(t) as at")
    )
    frequent = {
        f"{STATE_STORE}.minDeltasForSnapshot": str(SNAPSHOT_AFTER - 1),
        f"{STATE_STORE}.maintenanceInterval": "100ms",
        PARTITIONS_KEY: str(PARTITIONS),
    }
    started = []
    # Maintenance keeps the interval with which the first query of this process started it.
    stop_maintenance(spark)
    try:
        for provider, conf in PROVIDERS.items():
            if provider == "checked" and query != "window":
                continue
            with configured(spark, {**frequent, **conf}):
                started.append(
                    build(events)
                    .writeStream.outputMode(mode)
                    .format("noop")
                    .option("checkpointLocation", str(home / provider))
                    .start()
                )
        for one in started:
            one.processAllAvailable()
        before_the_end()
    finally:
        for one in started:
            one.stop()
        stop_maintenance(spark)


@contextmanager
def configured(spark: SparkSession, conf: dict[str, str]) -> Iterator[None]:
    """Start queries under other settings than those of the session."""
    before = {key: spark.conf.get(key, None) for key in conf}
    for key, value in conf.items():
        spark.conf.set(key, value)
    yield
    for key, old in before.items():
        if old is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, old)


def stop_maintenance(spark: SparkSession) -> None:
    """Stop it, so that the next query starts it anew.

    In the way that Spark has for its own tests: under the lock, it may wait five minutes for a
    maintenance that waits for the lock.
    """
    jvm: Any = spark.sparkContext._jvm
    stores = jvm.org.apache.spark.sql.execution.streaming.state
    getattr(getattr(stores, "StateStore$"), "MODULE$").stopMaintenanceTaskWithoutLock()


def add_file(source: Path, number: int, chance: random.Random) -> None:
    rows = (
        {
            "k": chance.choice([None, *range(12)]),
            "s": chance.choice([None, "", "a", "käse" * 5]),
            "v": chance.randrange(50),
            "t": BASE_MS + number * 20_000 + chance.randrange(-9_000, 20_000),
        }
        for _ in range(60)
    )
    hidden = source / f".{number}.json"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(hidden, (1000 + number, 1000 + number))
    hidden.rename(source / f"{number}.json")


def has_snapshots(home: Path) -> bool:
    """Say whether each delta of the default provider has a snapshot in its directory."""
    stores = {path.parent for path in home.glob("*/state/**/*.delta")}
    return bool(stores) and all(list(store.glob("*.snapshot")) for store in stores)


def as_rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Return all rows but for their order, which is not the same in the two providers."""
    return sorted(
        (
            tuple(bytes(one) if isinstance(one, bytearray) else one for one in row)
            for row in frame.drop("ord").collect()
        ),
        key=str,
    )


@pytest.mark.spark
@pytest.mark.parametrize(
    "query",
    [
        "window",
        *(pytest.param(one, marks=pytest.mark.nightly) for one in QUERIES if one != "window"),
    ],
)
def test_rows_are_those_of_sparks_raw_reader(runs: Runs, query: str) -> None:
    """Same columns, keys, values, hashes and partitions; RocksDB's are read by Spark itself."""
    ours, sparks = runs.canonical(query, "hdfs"), runs.canonical(query, "rocksdb")

    assert [(one.name, one.dataType) for one in ours.schema] == [
        (one.name, one.dataType) for one in sparks.schema
    ]
    found = as_rows(ours)
    assert found == as_rows(sparks)
    assert found, "there must be something to compare"
    partitions = 1 if query == "everything" else PARTITIONS
    for _, _, _, _, partition, key_hash, *_ in found:
        assert key_hash % partitions == partition
    assert len({row[4] for row in found}) == partitions


@pytest.mark.nightly
@pytest.mark.spark
def test_every_version_is_read_with_its_updates_and_removals(runs: Runs) -> None:
    batches = range(runs.last_batch("window") + 1)
    counts = []
    for batch in batches:
        ours = as_rows(runs.canonical("window", "hdfs", batch))
        assert ours == as_rows(runs.canonical("window", "rocksdb", batch)), batch
        counts.append(len(ours))

    changes = {
        (bool(value), chain.snapshot is not None)
        for batch in batches
        for chain in runs.cut("window", "hdfs", batch).chains
        for path in chain.changes
        for _, value in records_of(runs.checkpoint("window", "hdfs"), path)
    }
    # Puts with a snapshot below them and without, and removals with one.
    assert changes >= {(True, True), (True, False), (False, True)}
    assert min(counts) > 0


def records_of(checkpoint: Location, path: str) -> Iterator[records.StateRecord]:
    for batch in records.read(compression.open_reader(checkpoint.get(path), "lz4", path), path):
        yield from batch


@pytest.mark.spark
def test_trap_row_checksums_are_no_part_of_the_rows(runs: Runs) -> None:
    assert runs.cut("window", "checked").conf[ROW_CHECKSUM_KEY] == "true"

    assert as_rows(runs.canonical("window", "checked")) == as_rows(
        runs.canonical("window", "rocksdb")
    )


@pytest.mark.spark
def test_a_damaged_file_ends_the_job_and_is_named(runs: Runs, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    files = runs.cut("window", "hdfs")
    copy = copied(runs.checkpoint("window", "hdfs"), files, tmp_path / "damaged")
    damaged = next(path for one in files.chains for path in (*one.changes, one.snapshot) if path)
    data = copy.get(damaged)
    copy.put(damaged, data[:-30])
    frame = hdfs_provider.read_store(runs.spark, copy, files, files.operators[0], "default")

    with pytest.raises(PySparkException, match=f"IncompatibleError.*{damaged} cannot be"):
        frame.collect()


def copied(source: Location, files: CutFiles, target: Path, *, state: bool = True) -> Location:
    """Copy the files of a cut, with its state or without."""
    copy = Location.of(str(target))
    for info in files.all if state else files.small:
        (target / info.path).parent.mkdir(parents=True, exist_ok=True)
        copy.copy_from(source, info.path, info.path)
    return copy


def prepared(
    runs: Runs, query: str, target: Path, partitions: int, **more: str
) -> tuple[Location, CutFiles]:
    """Return a checkpoint without state, whose offset log expects what is to be written."""
    files = runs.cut(query, "rocksdb")
    copy = copied(runs.checkpoint(query, "rocksdb"), files, target, state=False)
    conf = {
        PROVIDER_KEY: HDFS_PROVIDER,
        CODEC_KEY: "zstd",
        PARTITIONS_KEY: str(partitions),
        **more,
    }
    for number in (files.cut.batch_id - 1, files.cut.batch_id):
        path = f"offsets/{number}"
        copy.put(path, offset_log.with_conf(copy.get(path), path, conf))
    return copy, files


def placed(rows: DataFrame, partitions: int) -> DataFrame:
    from pyspark.sql import functions as F

    partition = F.pmod(F.col("key_hash"), F.lit(partitions)).cast("int")
    return rows.repartitionById(partitions, partition)


def typed(spark: SparkSession, checkpoint: Location, store: str) -> DataFrame:
    """Read a store as Spark decodes it, from either provider."""
    reader = spark.read.format("statestore")
    if store != "default":
        reader = reader.option("storeName", store)
    return reader.load(str(checkpoint))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("query", "partitions", "codec"),
    [
        ("window", 5, "lz4"),
        pytest.param("window", 3, "snappy", marks=pytest.mark.nightly),
        pytest.param("join", 3, "zstd", marks=pytest.mark.nightly),
    ],
)
def test_spark_reads_the_state_that_was_written(
    runs: Runs, tmp_path: Path, query: str, partitions: int, codec: str
) -> None:
    """Rows that Spark wrote into RocksDB, written here, and read by Spark from both."""
    from pyspark.sql import functions as F

    conf = {CODEC_KEY: codec}
    checkpoint, files = prepared(runs, query, tmp_path / "written", partitions, **conf)
    canonical = runs.canonical(query, "rocksdb").cache()

    for store in files.operators[0].stores:
        rows = canonical.where(F.col("store_name") == store)
        written = hdfs_provider.write_store(
            placed(rows, partitions), checkpoint, files.cut.batch_id + 1, 0, store
        )

        there = typed(runs.spark, checkpoint, store).collect()
        expected = typed(runs.spark, runs.checkpoint(query, "rocksdb"), store).collect()
        assert written.keys() == set(range(partitions))
        assert Counter(row["partition_id"] for row in there) == +Counter(written)
        assert contents(there) == contents(expected)
        assert there, "there must be something to compare"
    canonical.unpersist()


def contents(found: list[Row]) -> list[str]:
    return sorted(repr((row["key"], row["value"])) for row in found)


@pytest.mark.nightly
@pytest.mark.spark
def test_partitions_without_rows_are_written_too(runs: Runs, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    checkpoint, files = prepared(runs, "window", tmp_path / "written", 4)
    canonical = runs.canonical("window", "rocksdb")
    one_key = canonical.where(F.col("key_hash") == canonical.select(F.min("key_hash")).first()[0])  # type: ignore[index]
    for rows in (one_key, canonical.where("key_hash is null")):
        written = hdfs_provider.write_store(
            placed(rows, 4), checkpoint, files.cut.batch_id + 1, 0, "default"
        )

        assert written.keys() == {0, 1, 2, 3}
        assert (
            sum(written.values())
            == rows.count()
            == typed(runs.spark, checkpoint, "default").count()
        )


@pytest.mark.nightly
@pytest.mark.spark
def test_state_without_a_key_is_one_partition(runs: Runs, tmp_path: Path) -> None:
    checkpoint, files = prepared(runs, "everything", tmp_path / "written", 4)
    rows = runs.canonical("everything", "rocksdb").coalesce(1)

    written = hdfs_provider.write_store(rows, checkpoint, files.cut.batch_id + 1, 0, "default")

    assert written == {0: 1}
    assert typed(runs.spark, checkpoint, "default").select("value").collect() == (
        typed(runs.spark, runs.checkpoint("everything", "rocksdb"), "default")
        .select("value")
        .collect()
    )
    assert {path.parts[-2] for path in (tmp_path / "written/state/0").rglob("*.snapshot")} == {"0"}


@pytest.mark.spark
def test_trap_rows_in_the_wrong_partition_are_not_written(runs: Runs, tmp_path: Path) -> None:
    """The query would silently start those keys anew."""
    checkpoint, files = prepared(runs, "window", tmp_path / "written", 4)
    rows = placed(runs.canonical("window", "rocksdb"), 5)

    with pytest.raises(SavepointsError, match="PlacementError"):
        hdfs_provider.write_store(rows, checkpoint, files.cut.batch_id + 1, 0, "default")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("key", "value"),
    [
        (PROVIDER_KEY, ROCKSDB_PROVIDER),
        (ROW_CHECKSUM_KEY, "true"),
    ],
)
def test_trap_settings_under_which_spark_could_not_read_it_are_refused(
    runs: Runs, tmp_path: Path, key: str, value: str
) -> None:
    checkpoint, files = prepared(runs, "window", tmp_path / "written", 3, **{key: value})
    rows = runs.canonical("window", "rocksdb")

    with pytest.raises(NotAlignedError, match=f"{key}={value}") as refused:
        hdfs_provider.write_store(rows, checkpoint, files.cut.batch_id + 1, 0, "default")

    assert refused.value.details == {"key": key}
    assert not list((tmp_path / "written").rglob("*.snapshot"))


def no_session() -> SparkSession:
    """Stand where a session is not reached."""
    return cast("SparkSession", None)


def test_an_operator_whose_placement_is_not_known_is_refused(on_local: Location) -> None:
    checkpoint = unpack("hdfs", on_local)
    files = checkpoint_cut.read_cut(checkpoint)
    operator = dataclasses.replace(files.operators[0], name="somethingNew")

    with pytest.raises(IncompatibleError, match="somethingNew") as refused:
        hdfs_provider.read_store(no_session(), checkpoint, files, operator, "default")

    assert refused.value.details == {"operator_id": 0, "operator_name": "somethingNew"}
    assert "--format native" in refused.value.hint


def test_a_key_of_a_type_that_is_not_known_is_refused(on_local: Location) -> None:
    checkpoint = unpack("hdfs", on_local)
    path = "state/0/0/_metadata/schema"
    old, new = b'"type":"long","nullable":true', b'"type":"interval","nullable":true'
    key, value = checkpoint.get(path).split(b"\0\0\0\1", 2)[1:]
    key = key[2:].replace(old, new)
    checkpoint.put(
        path, b"\0\2v2\0\0\0\1" + struct.pack(">H", len(key)) + key + b"\0\0\0\1" + value
    )
    files = checkpoint_cut.read_cut(checkpoint)

    with pytest.raises(IncompatibleError, match="interval") as refused:
        hdfs_provider.read_store(no_session(), checkpoint, files, files.operators[0], "default")

    field = "the key of operator 0 (stateStoreSave), store default.k"
    assert refused.value.details == {"field": field, "type": "interval"}


def test_a_store_without_files_is_refused(on_local: Location) -> None:
    checkpoint = unpack("hdfs", on_local)
    files = checkpoint_cut.read_cut(checkpoint)

    with pytest.raises(NotAlignedError, match="no files for the store other"):
        hdfs_provider.read_store(no_session(), checkpoint, files, files.operators[0], "other")
