"""What can be read of a topic when an archive has what Kafka forgot; against sets of offsets."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from savepoints.errors import SourceDataGoneError
from savepoints.sources.archive import first_at_time
from savepoints.sources.archive.progress import ArchiveProgress, Arrival
from savepoints.sources.combined import available_ranges
from savepoints.sources.kafka import reset_targets
from savepoints.sources.kafka.offsets import Range
from savepoints.sources.kafka.reset_targets import Target
from tests.outputs.tables import append_as_spark

EPOCH = datetime(2026, 11, 20, tzinfo=UTC)


def archived(*stretches: tuple[int, int], partition: int = 0, topic: str = "t") -> ArchiveProgress:
    rows = [Arrival(topic, partition, first, end, end - first, None) for first, end in stretches]
    return ArchiveProgress("file:///archive", tuple(rows))


def one(kafka: tuple[int, int], *known: ArchiveProgress) -> Range:
    found = {"t": {0: Range("t", 0, *kafka)}}
    return available_ranges.extended(found, known)["t"][0]


@given(
    cuts=st.lists(st.integers(0, 30), min_size=1, max_size=8, unique=True).map(sorted),
    missing=st.integers(0, 8),
    kafka=st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted),
)
def test_what_can_be_read_is_what_some_place_has_without_a_hole_up_to_kafka(
    cuts: list[int], missing: int, kafka: list[int]
) -> None:
    batches = list(itertools.pairwise(cuts))
    left = [batch for number, batch in enumerate(batches) if number != missing]
    has = {offset for first, end in left for offset in range(first, end)}
    earliest, end = kafka
    there = (has | set(range(earliest, end))) - set(range(end, 31))
    reachable = min(
        (start for start in range(end + 1) if set(range(start, end)) <= there), default=end
    )

    found = one((earliest, end), archived(*left)) if left else one((earliest, end))

    # What the archive has before a hole of its own cannot be told from what it never had.
    assert found.earliest >= reachable
    assert set(range(found.earliest, end)) <= there
    if len(left) == len(batches):
        begins = min(has, default=earliest)
        joined = bool(has) and max(has) + 1 >= earliest
        assert found.earliest == (min(begins, earliest) if joined else earliest)
    assert (found.kafka_earliest, found.end) == (earliest, end)
    for offset in range(found.earliest, end + 1):
        assert found.from_archive(offset) == len(set(range(offset, earliest)))
        assert found.left_to_kafka(offset) >= min(offset, earliest)


def test_a_hole_between_archive_and_kafka_is_named_and_not_read_over() -> None:
    found = one((50, 90), archived((0, 20), (20, 40)))
    assert (found.earliest, found.kafka_earliest, found.archived_to) == (50, 50, None)
    assert found.text == (
        "50 to 90, and 0 to 40 in the archive file:///archive: 40 to 50 are in neither"
    )
    with pytest.raises(SourceDataGoneError, match="40 to 50 are in neither"):
        reset_targets.resolve(Target("earliest"), {"t": {0: 70}}, {"t": {0: found}})


def test_a_reset_begins_with_the_archive_and_says_what_kafka_has_lost() -> None:
    found = {"t": {0: one((50, 90), archived((0, 60)))}}
    (move,) = reset_targets.resolve(Target("earliest"), {"t": {0: 70}}, found)
    assert (move.to, move.earliest, move.records, move.from_archive) == (0, 0, 70, 50)
    (move,) = reset_targets.resolve(Target("offset", 45), {"t": {0: 70}}, found)
    assert (move.to, move.from_archive) == (45, 5)
    (move,) = reset_targets.resolve(Target("offset", 55), {"t": {0: 70}}, found)
    assert (move.to, move.from_archive) == (55, 0)


def test_an_archive_that_begins_late_is_not_the_first_record() -> None:
    found = {"t": {0: one((50, 90), archived((10, 60)))}}
    with pytest.raises(SourceDataGoneError, match="available 10 to 90"):
        reset_targets.resolve(Target("earliest"), {"t": {0: 70}}, found)


def test_where_two_inputs_read_a_topic_both_archives_are_needed() -> None:
    found = one((50, 90), archived((0, 60)), archived((30, 55)))
    assert (found.earliest, found.archived_to) == (30, 55)
    assert one((50, 90), archived((0, 60)), archived((0, 60), partition=1)).earliest == 50


def test_trap_of_two_topics_with_an_archive_each_neither_archive_counted() -> None:
    known = [archived((0, 60)), archived((0, 7), topic="other")]
    found = {"t": {0: Range("t", 0, 50, 90)}, "other": {0: Range("other", 0, 5, 9)}}

    both = available_ranges.extended(found, known)

    assert [one[0].earliest for one in both.values()] == [0, 0]
    assert [one[0].archived_to for one in both.values()] == [60, 7]


def test_the_first_record_of_a_time_is_the_archives_where_kafka_has_forgotten_it(
    tmp_path: Path,
) -> None:
    """Kafka's own answer would be its first record, however late that is."""
    chance = random.Random(5)
    rows = [
        (part, offset, EPOCH + timedelta(seconds=10 * offset + chance.randrange(-40, 40)))
        for part in (0, 1)
        for offset in range(60)
    ]
    late = (-1, 3, EPOCH + timedelta(days=300))  # Of a merge: no record of the topic.
    columns = list(zip(*rows, late, strict=True))
    write_deltalake(
        str(tmp_path),
        pa.table(
            {
                "topic": ["t"] * len(columns[0]),
                "partition": pa.array(columns[0], pa.int32()),
                "offset": pa.array(columns[1], pa.int64()),
                "timestamp": pa.array(columns[2], pa.timestamp("us", tz="UTC")),
                "merge_id": [None] * len(rows) + ["op-1"],
            }
        ),
    )
    has = {
        "t": {
            0: Range("t", 0, 5, 80, kafka_from=50, archived_to=60),
            1: Range("t", 1, 0, 60, kafka_from=30, archived_to=60),
        }
    }
    for _ in range(20):
        moment = EPOCH + timedelta(milliseconds=chance.randrange(600_000))
        truth = {
            part: min(
                (
                    offset
                    for where, offset, at in rows
                    if where == part and at >= moment and one.earliest <= offset < kafka_from
                ),
                default=None,
            )
            for part, one in has["t"].items()
            for kafka_from in (one.kafka_earliest,)
        }
        found = {part: at for _, part, at in first_at_time.first_at(str(tmp_path), moment, has)}
        assert found == {part: at for part, at in truth.items() if at is not None}


def test_trap_a_record_of_the_archive_is_from_a_time_that_nanoseconds_do_not_have(
    tmp_path: Path,
) -> None:
    """The year 2300 was read as 1715, so the first record at a time was a later one."""
    far = [EPOCH, EPOCH.replace(year=2300), EPOCH + timedelta(hours=1)]
    rows = pa.table(
        {
            "topic": ["t"] * len(far),
            "partition": pa.array([0] * len(far), pa.int32()),
            "offset": pa.array(range(len(far)), pa.int64()),
            "timestamp": pa.array(far, pa.timestamp("us", tz="UTC")),
            "merge_id": pa.array([None] * len(far), pa.string()),
        }
    )
    DeltaTable.create(str(tmp_path), rows.schema)
    append_as_spark(str(tmp_path), rows, "archive", 0)
    has = {"t": {0: Range("t", 0, 0, 80, kafka_from=50, archived_to=60)}}

    found = first_at_time.first_at(str(tmp_path), EPOCH + timedelta(minutes=1), has)

    assert list(found) == [("t", 0, 1)]
