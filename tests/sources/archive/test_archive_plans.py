"""What an archive decides without Spark: the seam, what is compacted, what is read; its commits."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.errors import NotAlignedError, QueryRunningError, SourceDataGoneError
from savepoints.io import Location
from savepoints.sources.archive import (
    archive,
    compact,
    progress,
)
from savepoints.sources.archive import (
    table as archive_table,
)
from savepoints.sources.archive.progress import ArchiveProgress, Arrival
from savepoints.sources.archive.table import File
from savepoints.sources.combined import archive_then_kafka

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("a", pa.int64())])


@st.composite
def histories(draw: st.DrawFn) -> list[Arrival]:
    """Draw batches over three partitions that follow one another, with or without events."""
    rows = []
    at = draw(st.lists(st.integers(0, 5), min_size=3, max_size=3))
    for _ in range(draw(st.integers(0, 6))):
        for part in range(3):
            count = draw(st.integers(0, 4))
            newest = draw(st.none() | st.integers(0, 100)) if count else None
            rows.append(Arrival("t", part, at[part], at[part] + count, count, newest))
            at[part] += count
    return rows


@given(
    histories(),
    st.dictionaries(st.integers(0, 3), st.integers(0, 30)),
    st.dictionaries(st.integers(0, 3), st.integers(0, 30)),
)
def test_each_offset_is_read_exactly_once(
    rows: list[Arrival], since: dict[int, int], until: dict[int, int]
) -> None:
    known = ArchiveProgress("x", tuple(rows))
    wanted = {(p, o) for p, stop in until.items() for o in range(since.get(p, 0), stop)}
    has = {(row.partition, o) for row in rows for o in range(row.first_offset, row.end_offset)}
    before = {(part, o) for part, first in known.begin.get("t", {}).items() for o in range(first)}

    if wanted & before:
        with pytest.raises(SourceDataGoneError, match="begins after the first events"):
            archive_then_kafka.seam({"t": since}, {"t": until}, known)
        return
    found = archive_then_kafka.seam({"t": since}, {"t": until}, known)

    def offsets(begin: KafkaOffsets, end: KafkaOffsets) -> set[tuple[int, int]]:
        return {(p, o) for p, stop in end.get("t", {}).items() for o in range(begin["t"][p], stop)}

    assert offsets(found.archive_from, found.archive_to) == wanted & has
    assert offsets(found.kafka_from, found.kafka_to) == wanted - has
    alone = archive_then_kafka.seam({"t": since}, {"t": until}, None)
    assert offsets(alone.kafka_from, alone.kafka_to) == wanted


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (((0, 10), (12, 20)), "offsets 10 to 11 missing"),
        (((0, 10), (8, 20)), "offsets 8 to 9 archived twice"),
    ],
)
def test_trap_a_gap_in_the_archive_is_not_read_over(
    rows: tuple[tuple[int, int], ...], said: str
) -> None:
    """What is missing would count as never seen, and what is there twice is replayed twice."""
    known = ArchiveProgress("x", tuple(Arrival("t", 0, *one, one[1] - one[0], 1) for one in rows))

    for since, until in ((0, 20), (9, 11), (8, 30)):
        with pytest.raises(NotAlignedError, match=f"t partition 0: {said}"):
            archive_then_kafka.seam({"t": {0: since}}, {"t": {0: until}}, known)
    with pytest.raises(NotAlignedError, match=said):
        known.clock({"t": {0: 20}})
    for since, until in ((0, 8), (12, 20), (12, 30)):
        archive_then_kafka.seam({"t": {0: since}}, {"t": {0: until}}, known)
    known.clock({"t": {0: 8}})


def test_trap_rows_of_empty_batches_come_in_any_order() -> None:
    rows = [Arrival("t", 0, *one, 0, None) for one in ((5, 8), (5, 5), (0, 5), (0, 0), (8, 8))]

    assert ArchiveProgress("x", tuple(rows)).holes() == []


@given(histories(), st.lists(st.integers(0, 30), min_size=3, max_size=3))
def test_no_event_before_the_offsets_is_later_than_the_clock(
    rows: list[Arrival], offsets: list[int]
) -> None:
    known = ArchiveProgress("x", tuple(rows))
    asked = {"t": dict(enumerate(offsets))}
    if any(offset > known.end.get("t", {}).get(p, 0) for p, offset in enumerate(offsets)):
        with pytest.raises(NotAlignedError, match="does not reach far enough"):
            known.clock(asked)
        return

    found = known.clock(asked)

    # An event of a batch that begins before the offset may lie before it.
    times = [
        row.max_event_us
        for row in rows
        if row.max_event_us is not None and row.first_offset < offsets[row.partition]
    ]
    assert found == (EPOCH + timedelta(microseconds=max(times)) if times else None)


def test_trap_the_clock_is_that_of_all_partitions_and_not_of_the_entity_alone() -> None:
    rows = (Arrival("t", 0, 0, 10, 10, 5_000_000), Arrival("t", 1, 0, 10, 10, 9_000_000))

    assert ArchiveProgress("x", rows).clock({"t": {0: 10, 1: 1}}) == EPOCH + timedelta(seconds=9)
    assert ArchiveProgress("x", rows).clock({"t": {0: 10, 1: 0}}) == EPOCH + timedelta(seconds=5)
    assert ArchiveProgress("x", rows).clock({"t": {0: 0, 1: 0}}) is None


def test_trap_a_time_after_the_year_9999_is_later_than_all_that_python_has() -> None:
    """Milliseconds taken for seconds: whatever asked for the clock ended in an unexpected error."""
    rows = (Arrival("t", 0, 0, 10, 10, 1_792_891_800_000 * 1_000_000),)

    assert ArchiveProgress("x", rows).clock({"t": {0: 10}}) == datetime.max.replace(tzinfo=UTC)


def test_trap_a_topic_that_was_made_anew_has_other_records_at_the_same_offsets() -> None:
    rows = progress.of_batch({("t", 0): (5, None)}, {}, {"t": {0: 5}}, {"t": "first"})
    known = ArchiveProgress("x", (*rows, Arrival("u", 0, 0, 5, 5, None)))

    known.require_same({"t": "first", "u": "whatever"})
    with pytest.raises(SourceDataGoneError, match="topic t has been deleted and recreated"):
        known.require_same({"t": "second"})


def test_batches_between_which_offsets_were_left_out_are_found() -> None:
    rows = (Arrival("t", 0, 0, 10, 10, None), Arrival("t", 0, 12, 20, 8, None))

    assert ArchiveProgress("x", rows).holes() == [("t", 0, 10, 12)]
    assert ArchiveProgress("x", rows[:1]).holes() == []


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=60))
def test_there_are_few_runs_and_each_byte_is_written_again_a_few_times(sizes: list[int]) -> None:
    files: list[File] = []
    rewritten = 0
    for number, size in enumerate(sizes):
        files.append(File(f"batches/{number}/x.parquet", size, 1, {}, {}))
        chosen = compact.choose(files)
        if chosen:
            total = sum(one.size for one in chosen)
            rewritten += total
            kept = [one for one in files if one not in chosen]
            files = [*kept, File(f"runs/{number}/x.parquet", total, 1, {}, {})]
        assert sum(one.size for one in files) == sum(sizes[: number + 1])
    # Each run is more than four times the next smaller one: their number grows with the logarithm.
    runs = sorted(one.size for one in files if one.path.startswith("runs/"))
    assert all(4 * smaller < larger for smaller, larger in pairwise(runs))
    assert len([one for one in files if one.path.startswith("batches/")]) <= 1


def test_files_that_cannot_have_what_is_looked_for_are_not_read() -> None:
    def file(name: str, entity: str, offset: int, partition: int = 0) -> File:
        low = {"entity": entity, "offset": offset, "partition": partition}
        return File(name, 1, 1, low, {**low, "entity": entity + "9", "offset": offset + 9})

    files = [
        file("a", "c1", 0),
        file("b", "c3", 0),
        file("c", "c1", 100),
        file("late", "c1", 0, partition=-1),
        File("unknown", 1, 1, {}, {}),
    ]

    def read(few: list[str] | None, since: int, until: int, merges: list[str]) -> list[str]:
        found = archive.choose(files, few, {"t": {0: since}}, {"t": {0: until}}, merges)
        return [one.path for one in found]

    assert read(None, 0, 200, []) == ["a", "b", "c", "late", "unknown"]
    assert read(["c15", "c2"], 0, 200, []) == ["a", "c", "late", "unknown"]
    assert read(["c39"], 0, 200, []) == ["b", "unknown"]
    assert read(["c4"], 0, 200, []) == ["unknown"]
    assert read(None, 10, 100, []) == ["unknown"]
    assert read(None, 9, 101, []) == ["a", "b", "c", "late", "unknown"]
    assert read(None, 50, 200, ["op-1"]) == ["c", "late", "unknown"]


@pytest.fixture
def table(place: Location) -> Location:
    """Give a table with two files of a batch."""
    location = place / "archive"
    archive_table.make(location, SCHEMA)
    files = [written(location, "batches/1"), written(location, "batches/2")]
    archive_table.append_files(location, files, "app", 1, {"n": 1})
    return location


def written(location: Location, directory: str) -> File:
    """Write a data file that is not part of the table yet."""
    body = pa.BufferOutputStream()
    parquet.write_table(pa.table({"a": [1, 2]}, schema=SCHEMA), body)
    data = body.getvalue().to_pybytes()
    location.put(f"{directory}/x.parquet", data)
    return File(f"{directory}/x.parquet", len(data), 2, {"a": 1}, {"a": 2})


def paths(location: Location) -> list[str]:
    return sorted(one.path for one in archive_table.files(archive_table.require(location)))


def test_a_batch_is_written_once_and_says_what_arrived(table: Location) -> None:
    archive_table.append_files(table, [written(table, "batches/3")], "app", 1, {"n": 2})

    assert paths(table) == ["batches/1/x.parquet", "batches/2/x.parquet"]
    opened = archive_table.require(table)
    assert archive_table.note_of(opened, "app", 1) == {"app": "app", "version": 1, "n": 1}
    assert archive_table.note_of(opened, "app", 2) is None


def test_trap_deltalake_lets_two_commits_remove_the_same_file(table: Location) -> None:
    slow, fast = archive_table.require(table), archive_table.require(table)
    old = archive_table.files(slow)
    archive_table.exchange(table, fast, old, [written(table, "runs/1")])

    with pytest.raises(QueryRunningError, match="another process is already compacting"):
        archive_table.exchange(table, slow, old, [written(table, "runs/2")])

    assert paths(table) == ["runs/1/x.parquet"]


def test_a_batch_that_arrives_during_a_compaction_stays(table: Location) -> None:
    slow = archive_table.require(table)
    old = archive_table.files(slow)
    archive_table.append_files(table, [written(table, "batches/3")], "app", 2, {"n": 2}, after=1)

    archive_table.exchange(table, slow, old, [written(table, "runs/1")])

    assert paths(table) == ["batches/3/x.parquet", "runs/1/x.parquet"]


@pytest.mark.s3
def test_of_two_that_write_one_batch_at_once_one_is_refused(table: Location) -> None:
    ready = threading.Barrier(2)
    results: list[str] = []

    def write(number: int) -> None:
        file = written(table, f"batches/racer-{number}")
        ready.wait()
        try:
            archive_table.append_files(table, [file], "app", 2, {"n": number}, after=1)
            results.append("done")
        except QueryRunningError:
            results.append("refused")

    racers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for one in racers:
        one.start()
    for one in racers:
        one.join()

    # The second either loses the race or finds the batch done; it is never there twice.
    assert "done" in results
    assert len(results) == 2
    assert len([path for path in paths(table) if "racer" in path]) == 1


def test_vacuum_leaves_what_stands_beside_the_events(tmp_path: Path) -> None:
    location = Location.of(str(tmp_path / "archive"))
    archive_table.make(location, SCHEMA)
    archive_table.append_files(location, [written(location, "batches/1")], "app", 1, {"n": 1})
    progress.add(str(location), [Arrival("t", 0, 0, 2, 2, 7)], app="app", version=1)
    location.put(f"{archive.CHECKPOINT}/offsets/0", b"v1")
    written(location, "batches/killed")

    DeltaTable(str(location)).vacuum(
        retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True
    )

    assert paths(location) == ["batches/1/x.parquet"]
    assert not location.exists("batches/killed/x.parquet")
    assert location.exists(f"{archive.CHECKPOINT}/offsets/0")
    assert progress.load(str(location)).end == {"t": {0: 2}}


@given(histories(), st.integers(0, 4))
def test_coarse_arrivals_say_the_same_but_for_a_later_clock(rows: list[Arrival], fine: int) -> None:
    fine_rows = ArchiveProgress("x", tuple(rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "_FINE", fine)
        patch.setattr(progress, "_COARSE", 2)
        coarse = progress.coarsened(progress.coarsened(rows))
    known = ArchiveProgress("x", tuple(coarse))

    assert known.begin == fine_rows.begin
    assert known.end == fine_rows.end
    assert known.holes() == []
    assert sum(one.rows for one in coarse) == sum(one.rows for one in rows)
    assert sum(one.batches for one in coarse) == len(rows)
    assert known.clock(known.end) == fine_rows.clock(known.end)
    if rows:
        asked = {
            "t": {
                part: (first + known.end["t"][part]) // 2
                for part, first in known.begin["t"].items()
            }
        }
        exact, bound = fine_rows.clock(asked), known.clock(asked)
        assert exact is None or (bound is not None and bound >= exact)


def test_arrivals_that_come_while_they_are_compacted_stay(
    place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(place / "archive")
    rows = [Arrival("t", 0, at, at + 1, 1, at) for at in range(5)]
    for at, row in enumerate(rows[:4]):
        progress.add(uri, [row], app="app", version=at)
    coarsened = progress.coarsened

    def slow(known: list[Arrival]) -> list[Arrival]:
        progress.add(uri, rows[4:], app="app", version=4)
        return coarsened(known)

    monkeypatch.setattr(progress, "_FINE", 0)
    monkeypatch.setattr(progress, "_COARSE", 2)
    monkeypatch.setattr(progress, "coarsened", slow)
    with suppress(QueryRunningError):
        progress.compact(uri)
    assert progress.load(uri).end == {"t": {0: 5}}
    assert sum(one.rows for one in progress.load(uri).rows) == 5

    monkeypatch.setattr(progress, "coarsened", coarsened)
    progress.compact(uri)
    found = progress.load(uri)
    assert [one.batches for one in sorted(found.rows, key=lambda one: one.first_offset)] == [
        2,
        2,
        1,
    ]
    assert found.end == {"t": {0: 5}}
