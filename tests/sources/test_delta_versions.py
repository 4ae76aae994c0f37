"""Versions of a table that a stream can read, and their times, which are those of Delta itself."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.errors import NotFoundError, SourceDataGoneError, UsageError
from savepoints.io import Location
from savepoints.sources import delta_versions
from tests.outputs import tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGIN = datetime(2026, 11, 20, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def committed(uri: str, *minutes: int) -> None:
    """Let the files of the first versions have been written at these minutes."""
    for version, minute in enumerate(minutes):
        at = (BEGIN + minute * MINUTE).timestamp()
        os.utime(Path(uri) / "_delta_log" / f"{version:020}.json", (at, at))


@pytest.fixture
def uri(on_local: Location) -> str:
    found = tables.unpack("plain", on_local / "events")
    committed(found, 0, 10, 20, 30, 40, 50)
    return found


def test_a_time_is_after_every_commit_before_it(uri: str) -> None:
    known = delta_versions.read(uri)
    assert known.table_id == str(tables.opened(uri).metadata().id)
    assert (known.oldest, known.newest) == (0, 5)

    found = {at: known.before(BEGIN + at * MINUTE) for at in (1, 10, 11, 40, 500)}
    assert found == {1: 0, 10: 0, 11: 1, 40: 3, 500: 5}
    with pytest.raises(UsageError, match="did not exist before 2026-11-20T00:00:00"):
        known.before(BEGIN)


def test_trap_clocks_of_writers_that_go_back(uri: str) -> None:
    """Delta lets each commit lie a millisecond after the one before, at least."""
    committed(uri, 0, 10, 5, 10, 40, 50)
    tick = timedelta(milliseconds=1)

    known = delta_versions.read(uri)

    assert known.times[2] == known.times[1] + tick
    assert known.times[3] == known.times[1] + 2 * tick
    assert known.before(BEGIN + 6 * MINUTE) == 0


def test_where_the_log_was_cleaned_up_it_says_no_more(uri: str) -> None:
    tables.opened(uri).create_checkpoint()
    tables.clean_up(uri, 2)

    known = delta_versions.read(uri)

    assert (known.oldest, known.newest) == (2, 5)
    assert known.before(BEGIN + 21 * MINUTE) == 2
    with pytest.raises(SourceDataGoneError, match="so it no longer says"):
        known.before(BEGIN + 20 * MINUTE)


def test_commits_say_their_time_themselves_where_the_table_has_them_do_so(
    on_local: Location,
) -> None:
    uri = tables.unpack("in_commit_timestamps", on_local / "events")
    committed(uri, 50, 40, 30, 20, 10, 0)

    found = delta_versions.read(uri).times

    log = Path(uri) / "_delta_log"
    for version in range(6):
        first = json.loads((log / f"{version:020}.json").read_text().splitlines()[0])
        assert found[version].timestamp() * 1000 == first["commitInfo"]["inCommitTimestamp"]


def test_trap_a_table_in_two_spellings_was_two_tables(uri: str) -> None:
    """Of several tables, `--until version:N` is not enough."""
    found = delta_versions.read_each([uri, f"file://{uri}", f"{uri}/"])

    assert [one.newest for one in found] == [5]


def test_where_no_table_is_it_says_so(on_local: Location) -> None:
    with pytest.raises(NotFoundError, match="there is no Delta table at"):
        delta_versions.read(str(on_local / "nothing"))


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("name", ["plain", "in_commit_timestamps"])
def test_the_times_are_those_of_delta(spark: SparkSession, on_local: Location, name: str) -> None:
    uri = tables.unpack(name, on_local / "events")
    committed(uri, 0, 10, 5, 10, 40, 50)

    history = spark.sql(f"DESCRIBE HISTORY delta.`{uri}`").selectExpr(
        "version", "unix_millis(timestamp) AS at"
    )

    wanted = {row.version: row.at for row in history.collect()}
    times = delta_versions.read(uri).times
    assert {at: round(time.timestamp() * 1000) for at, time in times.items()} == wanted
