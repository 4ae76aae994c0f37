"""`merge`: late events of 1 % of the clients, beside a full replay of the same application.

The application has a Python function (`order_sessions`, applyInPandasWithState). Its clients have
100 events each; what comes late is half an hour of the first session of some, which joins what was
two sessions until then. The peers are Spark's own: all events in one batch, which is how the query
begins here, and all events in the micro-batches in which it goes on, computed from some of them.
In the end the table is compared with sessions that batch SQL finds in all events.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks import activity, state
from benchmarks.activity import INPUT, LATE, OUTPUT, QUERY, Site
from benchmarks.result import Result, Sample
from savepoints.checkpoint.cut import committed_batches
from savepoints.checkpoint.logs import offset_log
from savepoints.checkpoint.state.operators import ROCKSDB_PROVIDER
from savepoints.config.settings import Settings
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.sources.archive import archive, compact
from savepoints.sources.archive import table as archive_table
from savepoints.sources.combined import archiving_query
from savepoints.sources.combined.archiving_query import Archiving
from savepoints.sources.events.events import Decoding
from savepoints.spark.session import session
from spark_jobs.order_sessions import GAP_MS, ORDER, VIEW, app

if TYPE_CHECKING:
    from savepoints.operations.merge.merge import Merged

_LOG = logging.getLogger(__name__)
# Micro-batches of the whole history, and how many of them are looked at in a round.
OF_THE_HISTORY, LOOKED_AT = 200, 5
# Events come in whole rounds of the clients.
_LEAST = 100_000
_ARCHIVED_AT_ONCE = 2_000_000
# Micro-batches that the running query has before it, and that have to be done before and after.
_AHEAD, _SEEN = 20, 3
_STATE = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB_PROVIDER,
}
_DEADLINE_SECONDS = 900
_FILE = "savepoints.toml"


def measure(directory: Path, keys: int, rounds: int) -> Result:
    """Let a query read a history, merge what is late, and compare.

    Args:
        directory: Where everything lies.
        keys: Events of the history; whole hundred thousands of them.
        rounds: How often so many micro-batches are looked at as `LOOKED_AT` says.
    """
    events = max(1, keys // _LEAST) * _LEAST
    with LocalWorld.start() as world:
        os.environ.update(world.environment)
        (directory / "store").mkdir()
        known = state.settings()
        spark = known.spark.model_copy(update={"conf": {**known.spark.conf, **_STATE}})
        known = known.model_copy(update={"spark": spark})
        bound = activity.settings(known, str(directory), world.bootstrap_servers)
        return _Story(directory, Site(bound, events), rounds).run()


class _Story:
    """One run of everything."""

    def __init__(self, directory: Path, site: Site, rounds: int) -> None:
        self.directory, self.site, self.rounds = directory, site, rounds
        self.settings = site.settings
        self.store = Store.at(self.settings.store, settings=self.settings).make()
        self.spark = session(self.settings, "savepoints benchmarks")
        self.batch = site.events // OF_THE_HISTORY
        self.produced = 0
        self.samples: dict[str, list[Sample]] = {}
        self.notes: list[str] = []

    def run(self) -> Result:
        events = self.site.events
        self.site.make_topic()
        self._produce(events)
        at_once = self._timed("all events in one batch", lambda: self._run(None))
        for _ in range(self.rounds):
            self._produce(LOOKED_AT * self.batch)
            self._run(self.batch)
            took = median(self._batches()) * OF_THE_HISTORY
            self._sample("all events in micro-batches", took)
        self._archive()
        self._read_some()
        for name in list(LATE)[:-1]:
            self._merge(name)
        self._merge_into_a_running_one(list(LATE)[-1])
        self._compare()
        ours = self.samples["merge of 1 %"][0].seconds
        micro = median(one.seconds for one in self.samples["all events in micro-batches"])
        self.notes.append(f"one big batch: {at_once / ours:.1f} times the merge of 1 %")
        return Result(self.samples, micro / ours, tuple(self.notes))

    def _produce(self, count: int) -> None:
        _LOG.info("producing %d events", count)
        self.site.produce(self.spark, self.produced, count)
        self.produced += count

    def _run(self, most: int | None) -> None:
        _LOG.info("running the query, %s events a batch", most or "all")
        self.store.with_settings(self._limited(most)).query(QUERY).run(
            until="latest", forms=("native",)
        )

    def _limited(self, most: int | None) -> Settings:
        bound = self.settings.queries[QUERY].model_copy(update={"max_offsets_per_trigger": most})
        return self.settings.model_copy(update={"queries": {QUERY: bound}})

    def _archive(self) -> None:
        uri, one = self.settings.queries[QUERY].archives[INPUT], app.inputs[INPUT]
        decoding = Decoding(one.decode, one.entity_key, one.event_time, one.event_id)
        _LOG.info("archiving")
        archiving = Archiving(
            uri, self.site.topic, decoding, self.settings.kafka, most=_ARCHIVED_AT_ONCE
        )
        archiving_query.start(self.spark, archiving).awaitTermination()
        compact.compact(self.spark, uri)

    def _read_some(self) -> None:
        """See how much of the archive is read for 1 % of the clients."""
        uri = self.settings.queries[QUERY].archives[INPUT]
        files = archive_table.files(archive_table.require(Location.of(uri)))
        late = self.site.happened(self.spark, 0, self.site.events).where("late = '1 %'")
        clients = [row.client_id for row in late.select("client_id").distinct().collect()]
        before = self._bytes_read()
        archive.read(
            self.spark, uri, entities=clients, since=None, until=archive.end(uri), merges=()
        ).write.format("noop").mode("overwrite").save()
        share = (self._bytes_read() - before) / sum(one.size for one in files)
        self.notes.append(f"{share:.1%} of the archive's bytes are read for {len(clients)} clients")

    def _bytes_read(self) -> int:
        """Return what Hadoop's file systems have read in this process."""
        jvm = self.spark.sparkContext._jvm
        assert jvm is not None
        known = jvm.org.apache.hadoop.fs.FileSystem.getAllStatistics()
        return sum(int(one.getBytesRead()) for one in known)

    def _merge(self, name: str) -> Merged:
        batch = self._late(name)
        _LOG.info("merging the late events of %s", name)
        begun = time.monotonic()
        merged = self.store.query(QUERY).merge(batch).execute(progress=_LOG.info)
        self._sample(f"merge of {name}", time.monotonic() - begun)
        self.notes.append(
            f"merge of {name}: {merged.rows} late events of {merged.entities} clients"
        )
        return merged

    def _merge_into_a_running_one(self, name: str) -> None:
        """Merge while a process of its own runs the query, which has enough to do."""
        with self._running():
            merged = self._merge(name)
        batch = median(self._batches())
        pause = merged.pause_seconds
        assert pause is not None
        self._sample("pause of the running query", pause)
        self._sample("a micro-batch of it", batch)
        self.notes.append(f"the query stood still for {pause / batch:.2f} micro-batches")

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Run the query in a process of its own, in the midst of its work."""
        self._produce(_AHEAD * self.batch)
        state.write(self._limited(self.batch), self.directory / _FILE)
        words = [sys.executable, "-m", "savepoints", "run", QUERY, "--progress", "plain"]
        with (self.directory / "run.log").open("w") as said:
            child = subprocess.Popen(
                [*words, "--config", str(self.directory / _FILE)], stdout=said, stderr=said
            )
            try:
                self._wait_for_batches(child)
                yield
                self._produce((_SEEN + 1) * self.batch)
                self._wait_for_batches(child)
                child.send_signal(signal.SIGTERM)
                child.wait(_DEADLINE_SECONDS)
            finally:
                child.kill()

    def _wait_for_batches(self, child: subprocess.Popen[bytes]) -> None:
        """Wait until it has done some more."""
        begun, before = time.monotonic(), len(self._commits())
        while len(self._commits()) < before + _SEEN:
            if child.poll() is not None or time.monotonic() > begun + _DEADLINE_SECONDS:
                raise RuntimeError((self.directory / "run.log").read_text())
            time.sleep(0.5)

    @property
    def _checkpoint(self) -> Location:
        return Location.of(self.store.generations.current(QUERY).checkpoint)

    def _commits(self) -> list[float]:
        """Return when each batch of the current generation was committed, in order."""
        found = [one for one in self._checkpoint.list("commits") if "/." not in one.path]
        found.sort(key=lambda one: int(one.path.rpartition("/")[2]))
        return [one.last_modified.timestamp() for one in found]

    def _batches(self) -> list[float]:
        """Return how long each of the newest batches took, in seconds."""
        newest = self._commits()[-_SEEN - 1 :]
        return [after - before for before, after in pairwise(newest)]

    def _compare(self) -> None:
        """Compare the table with the sessions that are over, found by SQL in all events."""
        from pyspark.sql import functions as F
        from pyspark.sql.window import Window

        self._run(self.batch)
        batch = committed_batches(self._checkpoint.list())[-1]
        path = f"offsets/{batch}"
        read = offset_log.parse(self._checkpoint.get(path), path)
        events = self.site.happened(self.spark, 0, self.produced)
        timed = events.withColumn("ms", F.unix_millis("at"))
        by_client = Window.partitionBy("client_id").orderBy("ms")
        gap = F.col("ms") - F.lag("ms", 1, -GAP_MS).over(by_client)
        sessions = (
            timed.withColumn("begins", (gap >= GAP_MS).cast("int"))
            .withColumn("session", F.sum("begins").over(by_client))
            .groupBy("client_id", "session")
            .agg(
                F.timestamp_millis(F.min("ms")).alias("began_at"),
                F.timestamp_millis(F.max("ms") + GAP_MS).alias("ended_at"),
                F.count_if(F.col("kind") == VIEW).alias("views"),
                F.count_if(F.col("kind") == ORDER).alias("orders"),
                F.sum("amount_cents").alias("revenue_cents"),
            )
            .where(F.unix_millis("ended_at") < read.watermark_ms)
            .drop("session")
        )
        table = self.spark.read.format("delta").load(self.settings.queries[QUERY].outputs[OUTPUT])
        written = table.select(*sessions.columns)
        wrong = written.exceptAll(sessions).count() + sessions.exceptAll(written).count()
        self.notes.append(f"{written.count()} sessions, {wrong} of them wrong")
        if wrong:
            raise RuntimeError(self.notes[-1])

    def _late(self, name: str) -> str:
        place = self.directory / f"late-{len(self.samples)}"
        late = self.site.happened(self.spark, 0, self.site.events).where(f"late = '{name}'")
        late.drop("late").coalesce(1).write.parquet(str(place))
        return str(place)

    def _timed(self, what: str, work: Callable[[], None]) -> float:
        begun = time.monotonic()
        work()
        return self._sample(what, time.monotonic() - begun)

    def _sample(self, what: str, seconds: float) -> float:
        _LOG.info("%s: %.1f s", what, seconds)
        self.samples.setdefault(what, []).append(Sample(seconds, 0, 0))
        return seconds
