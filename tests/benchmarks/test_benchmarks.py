"""Each measure runs through its public entry on a tiny state and ends with its ratio."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks import result, state
from benchmarks.__main__ import DOWNLOADING, MEASURES, main
from benchmarks.result import Result, Sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROW = re.compile(r"^(.+?)((?: +\d+\.\d+){6}) +(\d+)$", re.MULTILINE)


def medians(printed: str) -> dict[str, tuple[float, float, int]]:
    """Read the table: median of the seconds, median of the MB, and objects, by row."""
    return {
        what.strip(): (float(figures.split()[1]), float(figures.split()[4]), int(objects))
        for what, figures, objects in _ROW.findall(printed)
    }


def run(name: str) -> tuple[str, float]:
    """Run a measure in a process of its own, as all are run; return what it printed and its ratio.

    Some start brokers and servers, and say in their environment where these are.
    """
    command = [sys.executable, "-m", "benchmarks", name, "--keys", "2000", "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    printed = done.stdout
    # Of a measure with several, the last one.
    last = re.fullmatch(rf"{name}(?:-\w+)? ratio (\d+\.\d\d)", printed.splitlines()[-1])
    assert last, printed
    return printed, float(last.group(1))


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.parametrize(
    "name", [name for name in MEASURES if name not in {"incremental", *DOWNLOADING}]
)
def test_a_measure_prints_its_table_and_ends_with_its_ratio(name: str) -> None:
    printed, ratio = run(name)

    assert ratio > 0
    rows = medians(printed)
    assert len(rows) >= 2
    assert all(seconds > 0 for seconds, _, _ in rows.values())


@pytest.mark.nightly
@pytest.mark.spark
def test_a_further_savepoint_is_smaller_than_the_first() -> None:
    printed, ratio = run("incremental")

    rows = medians(printed)
    first, further = rows["RocksDB: first"], rows["RocksDB: further"]
    assert ratio > 2
    assert further[1] < first[1]


@pytest.mark.nightly
@pytest.mark.spark
def test_a_state_has_each_key_and_a_change_touches_one_in_a_hundred(
    spark: SparkSession, tmp_path: Path
) -> None:
    checkpoint = state.built(tmp_path, 300)
    state.change(checkpoint, 300, nth=1)
    state.run(checkpoint)

    rows = spark.read.format("statestore").load(str(checkpoint)).select("value.*").collect()

    assert sorted(row[0] for row in rows) == [1] * 297 + [2] * 3


@pytest.mark.parametrize("arguments", [["nap"], ["pin", "--keys", "99"], ["pin", "--rounds", "0"]])
def test_what_cannot_be_measured_is_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)

    assert refused.value.code == 2


def test_sides_take_turns_in_empty_directories_and_the_first_turn_does_not_count(
    tmp_path: Path,
) -> None:
    turns: list[str] = []

    def side(name: str) -> result.Side:
        def work(scratch: Path) -> Mapping[str, Sample]:
            assert list(scratch.iterdir()) == []
            (scratch / "left").write_text(name)
            turns.append(name)
            return {name: Sample(len(turns), 0, 0)}

        return work

    samples = result.in_turns(tmp_path, 2, side("ours"), side("peer"))

    assert turns == ["ours", "peer"] * 3
    assert [sample.seconds for sample in samples["ours"]] == [3, 5]
    assert [sample.seconds for sample in samples["peer"]] == [4, 6]
    assert list(tmp_path.iterdir()) == []


def test_a_table_has_minimum_median_and_maximum() -> None:
    samples = [Sample(seconds, int(seconds * 1e6), 7) for seconds in (3.0, 1.0, 1.5)]

    lines = result.text("pin", Result({"ours": samples}, 2.346, ("a note",))).splitlines()

    assert lines[2].split() == ["ours", "1.000", "1.500", "3.000", "1.00", "1.50", "3.00", "7"]
    assert lines[3:] == ["a note", "pin ratio 2.35"]


def test_of_several_ratios_each_has_a_line_of_its_own() -> None:
    ratios = {"create": 2.346, "bytes": 0.5}

    lines = result.text("flink", Result({"ours": [Sample(1.0, 1, 1)]}, ratios)).splitlines()

    assert lines[3:] == ["flink-create ratio 2.35", "flink-bytes ratio 0.50"]


def test_sizes_are_of_all_files_below(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "one").write_bytes(b"123")
    (tmp_path / "a" / "b" / "two").write_bytes(b"4567")

    assert result.copied(tmp_path) == (7, 2)
