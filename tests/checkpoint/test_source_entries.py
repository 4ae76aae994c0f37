"""Entries of the logs that sources keep themselves, by what a batch has used of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.checkpoint import source_entries
from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.logs.offset_log import PARTITIONS_KEY, OffsetLogEntry
from savepoints.io import Location
from tests.fidelity import local_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def entry(names: Sequence[str], positions: Sequence[str | None]) -> OffsetLogEntry:
    return OffsetLogEntry(0, 0, {}, tuple(positions), tuple(names))


LOGS = [
    "sources/0/0", "sources/0/2", "sources/0/3", "sources/0/4", "sources/0/10",
    "sources/0/9.compact", "sources/0/2.compact", "sources/1/0", "sources/clicks/4",
    "sources/0/deep/0", "offsets/0", "state/0/0/1.zip",
]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "positions", "used"),
    [
        (("0",), ('{"logOffset":3}',), ["0/0", "0/2", "0/3", "0/2.compact"]),
        (("0",), ('{"logOffset":9}',), ["0/0", "0/2", "0/3", "0/4", "0/9.compact", "0/2.compact"]),
        (("0", "1"), (None, '{"logOffset":0}'), ["1/0"]),
        (("0", "1"), ('{"logOffset":-1}', '{"logOffset":-1}'), []),
        (("clicks", "1"), ('{"logOffset":4}', None), ["clicks/4"]),
        # Kafka's own log holds the offsets that the query began from: it is needed for ever.
        (("1",), ('{"orders":{"0":7}}',), ["1/0"]),
        (("1",), ("17",), ["1/0"]),  # The rate source.
        ((), (), []),
    ],
)
def test_trap_a_sources_log_is_cut_where_the_offsets_end(
    names: tuple[str, ...], positions: tuple[str | None, ...], used: list[str]
) -> None:
    offsets = entry(names, positions)

    assert source_entries.used(LOGS, offsets) == [f"sources/{one}" for one in used]


def test_only_a_file_source_needs_its_log() -> None:
    """Kafka's has where it began, and Delta's nothing."""
    positions = ('{"orders":{"0":7}}', "17", '{"reservoirVersion":3}', None, '{"logOffset":-1}')
    offsets = entry(tuple("01234"), positions)
    assert source_entries.missing([], offsets) == []


def logs(**read: int) -> list[str]:
    """Return the entries of file sources with so many each, and one entry of Kafka's."""
    return [
        f"sources/{name[1:]}/{at}" for name, count in read.items() for at in range(count or 1)
    ]  # fmt: skip


FIVE, TWO, KAFKA = '{"logOffset":5}', '{"logOffset":2}', '{"orders":{"0":7}}'


@pytest.mark.parametrize(
    ("positions", "there", "by_log"),
    [
        # Joined with itself, and a source behind that, which has read more since.
        ([FIVE, FIVE], logs(s0=9), [FIVE]),
        ([FIVE, FIVE, TWO], logs(s0=9, s1=9), [FIVE, TWO]),
        ([FIVE, TWO, FIVE, TWO], logs(s0=9, s1=9), [FIVE, TWO]),
        ([FIVE, FIVE, KAFKA], logs(s0=9, s1=1), [FIVE, KAFKA]),
        ([FIVE, FIVE, FIVE, FIVE], logs(s0=9, s1=9), [FIVE, FIVE]),
        ([FIVE, FIVE, None], logs(s0=9), [FIVE, None]),
        # Sources of their own.
        ([FIVE, FIVE], logs(s0=9, s1=9), [FIVE, FIVE]),
        ([FIVE, FIVE, KAFKA], logs(s0=9, s1=9, s2=1), [FIVE, FIVE, KAFKA]),
        ([FIVE, FIVE, '{"reservoirVersion":3}'], logs(s0=9, s1=9),
         [FIVE, FIVE, '{"reservoirVersion":3}']),
        # Nothing fits, or several ways do.
        ([FIVE, TWO], logs(s0=9), [FIVE, TWO]),
        ([FIVE, FIVE], logs(s0=3), [FIVE, FIVE]),
        ([TWO, FIVE, TWO, FIVE], logs(s0=9, s1=9, s2=9), [TWO, FIVE, TWO, FIVE]),
    ],
)  # fmt: skip
def test_trap_a_source_that_a_plan_has_several_times_has_one_log(
    positions: Sequence[str | None], there: list[str], by_log: list[str | None]
) -> None:
    offsets = entry([str(n) for n in range(len(positions))], positions)

    found = source_entries.positions(there, offsets)

    assert found == {str(n): one for n, one in enumerate(by_log)}


@pytest.mark.spark
def test_trap_a_query_that_joins_a_stream_of_files_with_itself_can_be_saved(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It was called damaged, since each position was taken for that of a source of its own."""
    from pyspark.sql import functions as F

    session = spark.newSession()
    for key, value in {PARTITIONS_KEY: "1", **local_files.CONF}.items():
        session.conf.set(key, value)
    inputs = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.json").write_text('{"k": 1}')
        inputs.append(session.readStream.schema("k long").json(str(tmp_path / name)))
    twice = inputs[0].join(inputs[0].selectExpr("k AS other"), F.expr("k = other"))
    running = (
        twice.select("k")
        .union(inputs[1])
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert running.awaitTermination(120)

    files = read_cut(Location.of(str(tmp_path / "checkpoint")))

    assert files.cut.offsets == ('{"logOffset":0}',) * 3
    own = [one.path for one in files.small if one.path.startswith("sources/")]
    assert own == ["sources/0/0", "sources/1/0"]
