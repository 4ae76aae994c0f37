"""Runs that end at versions, times and savepoints of a table; compared with pandas.

Version N of the table has the events of hour N, and one late event that comes with hour 4.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import savepoints
from savepoints.checkpoint import position
from savepoints.checkpoint.logs import table_position
from savepoints.config.settings import QuerySettings
from savepoints.errors import SavepointNotFoundError, UsageError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.moments import rfc3339
from savepoints.runtime.bounded import planned_offsets
from savepoints.sources.kafka.reset_targets import Target
from tests import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(900)]

BEGIN = datetime(2026, 11, 20, tzinfo=UTC)
NEWEST = 6


def committed(version: int) -> datetime:
    """Return when a version was committed, as the times of its log say."""
    return BEGIN + timedelta(minutes=version)


class Reader:
    """A table of events, and queries that read it."""

    def __init__(self, directory: Path) -> None:
        """Write the table."""
        self.directory = directory
        (directory / "store").mkdir()
        for hour in range(NEWEST + 1):
            self.append(hour)

    def append(self, hour: int) -> None:
        """Write the events of an hour."""
        at = [BEGIN + timedelta(hours=hour, minutes=n) for n in range(3)]
        if hour == 4:
            at[2] = BEGIN + timedelta(minutes=30)  # Too late for its window.
        rows = {"k": ["a", "b", "a"], "n": [hour, 10 + hour, 100 + hour], "at": at}
        write_deltalake(self.uri("events"), pa.table(rows), mode="append")
        log = self.directory / "events" / "_delta_log" / f"{hour:020}.json"
        os.utime(log, (committed(hour).timestamp(),) * 2)

    def uri(self, name: str) -> str:
        """Return where a table is."""
        return str(self.directory / name)

    @property
    def store(self) -> Store:
        """The store, with settings of both queries."""
        queries = {
            name: QuerySettings(
                app=f"tests.e2e.table_apps:{name}",
                checkpoints=self.uri("checkpoints"),
                outputs={name: self.uri(name)},
                tables={"events": self.uri("events")},
            )
            for name in ("hours", "totals")
        }
        settings = spark_session.settings(store=self.uri("store"), queries=queries)
        return Store.at(settings.store, settings=settings).make()

    def run(self, query: str, until: str) -> Any:
        """Run a query to an end; return what ran, and its savepoint."""
        return self.store.query(query).run(until=until, forms=("native",))

    def read(self, query: str) -> int:
        """Return the last version that a query has read."""
        checkpoint = self.store.generations.current(query).checkpoint
        (text,) = position.read(Location.of(checkpoint)).positions
        found = table_position.parse(text)
        assert found is not None
        assert (found.index, found.in_snapshot) == (-1, False)
        return found.version - 1

    def totals(self) -> dict[str, int]:
        """Return what `totals` has written."""
        rows = DeltaTable(self.uri("totals")).to_pyarrow_table().to_pylist()
        return {row["k"]: row["n"] for row in rows}

    def truth(self, version: int) -> dict[str, int]:
        """Return what the totals are at a version."""
        events = DeltaTable(self.uri("events"), version=version).to_pandas()
        return {str(k): int(n) for k, n in events.groupby("k")["n"].sum().items()}

    def hours(self) -> list[tuple[int, int]]:
        """Return what `hours` has written: hour and sum."""
        found = DeltaTable(self.uri("hours")).to_pandas()
        since = (found["hour"] - pd.Timestamp(BEGIN)).dt.total_seconds() // 3600
        return sorted(zip(since.astype(int), found["n"], strict=True))


@pytest.fixture
def reader(spark: SparkSession, tmp_path: Path) -> Reader:
    del spark  # The session that the queries run in.
    return Reader(tmp_path)


def test_a_run_ends_exactly_at_a_version(reader: Reader) -> None:
    """The first from nothing, then from version to version, and at what is there already."""
    for version in (2, 3, 3, 5):
        ran, saved = reader.run("totals", f"version:{version}")
        assert (ran.ended, ran.caught_up, reader.read("totals")) == ("caught_up", True, version)
        assert reader.totals() == reader.truth(version)
        assert table_position.parse(saved.cut.offsets[0]) == table_position.after(
            str(DeltaTable(reader.uri("events")).metadata().id), version
        )
    reader.run("totals", "latest")
    assert (reader.read("totals"), reader.totals()) == (NEWEST, reader.truth(NEWEST))


def test_windows_close_as_in_a_query_that_saw_a_version_a_batch(reader: Reader) -> None:
    """At each end a batch without input evicts what the watermark allows, as Spark does."""
    for version in range(NEWEST + 1):
        reader.run("hours", f"version:{version}")
        # A window closes once an event is an hour later than its end.
        closed = range(max(0, version - 1))
        sums = {hour: 3 * hour + 110 - (104 if hour == 4 else 0) for hour in closed}
        assert reader.hours() == sorted(sums.items())


def test_a_time_means_every_commit_before_it(reader: Reader) -> None:
    ran, _ = reader.run("totals", rfc3339(committed(4)))

    assert (ran.caught_up, reader.read("totals")) == (True, 3)
    assert reader.totals() == reader.truth(3)


def test_a_savepoint_is_an_end_of_another_run(reader: Reader) -> None:
    _, saved = reader.run("totals", "version:4")
    plan = reader.store.query("totals")
    first = reader.store.generations.current("totals")
    assert first.generation == 1

    reader.run("totals", "version:5")
    with pytest.raises(UsageError, match="beyond version 4: it would read version 6 next"):
        plan.run(until=saved.id)
    plan.rollback(saved.id).execute()
    reader.run("totals", saved.id)
    assert (reader.read("totals"), reader.totals()) == (4, reader.truth(4))


def test_ends_that_cannot_be_reached_are_refused_before_spark_runs(reader: Reader) -> None:
    reader.run("totals", "version:3")
    for until, said in {
        "version:2": "beyond version 2",
        "version:7": "has no version 7 yet; the newest is 6",
        "2999-01-01T00:00:00Z": "is in the future",
        "2001-01-01T00:00:00Z": "did not exist before 2001-01-01",
        "ends.json": "an offsets file works only for Kafka topics",
    }.items():
        with pytest.raises(UsageError, match=said):
            reader.run("totals", until)
    with pytest.raises(UsageError, match="--max-records works only for Kafka topics"):
        reader.store.query("totals").run(max_records=3)
    assert (reader.read("totals"), reader.totals()) == (3, reader.truth(3))


@pytest.mark.parametrize("begun_to", [4, 6])
def test_trap_a_batch_that_a_killed_run_has_planned(reader: Reader, begun_to: int) -> None:
    """Within the end it is finished as it is; beyond it and written nowhere, planned again."""
    reader.run("totals", "version:2")
    checkpoint = Location.of(reader.store.generations.current("totals").checkpoint)
    now = position.read(checkpoint)
    table = str(DeltaTable(reader.uri("events")).metadata().id)
    text = table_position.after(table, begun_to).text
    planned_offsets.write(checkpoint, now, b"", [text], {})

    reader.run("totals", "version:5")

    assert (reader.read("totals"), reader.totals()) == (5, reader.truth(5))
    assert position.read(checkpoint).committed == now.next_batch + (begun_to == 4)


def test_a_rollback_goes_to_the_commits_before_a_time(reader: Reader) -> None:
    """From the savepoint before it, run on by the application; undone, and to the savepoint."""
    _, saved = reader.run("totals", "version:1")
    reader.run("totals", "version:5")
    query = reader.store.query("totals")

    plan = query.rollback(savepoints.AtTime(committed(4)))
    assert "exactly version 3 of table" in str(plan)
    plan.execute()
    assert (reader.read("totals"), reader.totals()) == (3, reader.truth(3))

    query.rollback(savepoints.BeforeLast()).execute()
    assert (reader.read("totals"), reader.totals()) == (5, reader.truth(5))

    at_savepoint = query.rollback(savepoints.AtTime(committed(2)))
    assert f"restore {saved.id}" in str(at_savepoint)
    assert "exactly" not in str(at_savepoint)
    at_savepoint.execute()
    assert (reader.read("totals"), reader.totals()) == (1, reader.truth(1))
    reader.run("totals", "latest")
    assert reader.totals() == reader.truth(NEWEST)
    with pytest.raises(SavepointNotFoundError, match="events was at version 0"):
        query.rollback(savepoints.AtTime(committed(1)))


def test_a_reset_moves_the_version_that_is_next(reader: Reader) -> None:
    """With the state kept: what is read again is added again, what is skipped is missing."""
    reader.run("totals", "version:4")
    query = reader.store.query("totals")
    events = DeltaTable(reader.uri("events")).to_pandas()
    events["version"] = (
        events["n"] % 10
    )  # Each row has the number of its version as its last digit.

    def sums(*versions: int) -> dict[str, int]:
        found = pd.concat([events[events["version"] == one] for one in versions])
        return {str(k): int(n) for k, n in found.groupby("k")["n"].sum().items()}

    plan = query.reset(Target("offset", 3), state="keep")
    assert "versions 3 to 4 of table" in str(plan)
    assert "applied to the kept state twice" in str(plan)
    plan.execute()
    reader.run("totals", "version:4")
    assert reader.totals() == sums(0, 1, 2, 3, 4, 3, 4)

    query.reset(Target("latest"), state="keep").execute()
    reader.append(7)
    reader.run("totals", "latest")
    appended = {"a": 7 + 107, "b": 17}
    assert reader.totals() == {k: n + appended[k] for k, n in sums(0, 1, 2, 3, 4, 3, 4).items()}

    query.reset(Target("earliest"), outputs="truncate").execute()
    assert reader.totals() == {}
    reader.run("totals", "latest")
    assert reader.totals() == reader.truth(7)
    for target, said in (
        (Target("offset", 9), "version 9 of .* is out of range"),
        (Target("shift", -20), "is out of range"),
        (Target("file", offsets={}), "an offsets file works only for Kafka topics"),
    ):
        with pytest.raises(UsageError, match=said):
            query.reset(target, state="keep")
    with pytest.raises(UsageError, match="can read a table only from its"):
        query.reset(Target("latest"))
