"""A merge equals the full replay: state, outputs, and the outputs of all later batches.

The truth is the same program from scratch, with the late events where they belong; Spark's own
typed reader says what its state is. See `merge_oracle`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fidelity import harness, local_files
from tests.fidelity.merge_cases import FAITHFUL, SHORT
from tests.fidelity.merge_oracle import Merge, Way
from tests.fidelity.merge_query import Case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

# What they have, others of the suite have too.
COVERED = ("totals", "dedupe", "join_inner")
SLOW_SEEDS = range(3, 33)
STORES = {
    "hdfs": harness.STORES["hdfs"].conf,
    "format_2": harness.STORES["rocksdb_2_changelog"].conf,
    "offsets_2": {"spark.sql.streaming.offsetLog.formatVersion": "2"},
    "join_3": {"spark.sql.streaming.join.stateFormatVersion": "3"},
}


@pytest.fixture(scope="module")
def cheap(spark: SparkSession) -> SparkSession:
    """Give a session whose local files are cheap."""
    local_files.make_cheap(spark)
    return spark


def require_exact(merge: Merge, way: Way) -> None:
    """Check that a merge gives the truth, and that without it there is another."""
    state, outputs = merge.without_it()
    assert state
    assert outputs
    merged = merge.merged(way)
    assert merge.controls.equal, merge.controls.sample
    outcome = merge.outcome(merged)
    assert outcome.exact, outcome


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=[pytest.mark.slow] if one in COVERED else []) for one in SHORT],
)
def test_a_short_replay_gives_the_truth(cheap: SparkSession, tmp_path: Path, name: str) -> None:
    """Late events before, between, at the times of and after known ones, and of a new entity."""
    require_exact(Merge(cheap, SHORT[name], tmp_path, seed=1), "short")


def test_bases_can_be_canonical_tables(cheap: SparkSession, tmp_path: Path) -> None:
    """The state that entities begin from is read from the savepoint's rows, not from its files."""
    require_exact(Merge(cheap, SHORT["session"], tmp_path, seed=2), "short")


def test_late_rows_that_live_dropped_want_the_faithful_way(
    cheap: SparkSession, tmp_path: Path
) -> None:
    """Read as one batch they are not late, read in the batches of the live query they are."""
    merge = Merge(cheap, FAITHFUL["window_disorder"], tmp_path, seed=1)
    short = merge.outcome(merge.merged("short"))
    assert not short.exact
    require_exact(merge, "faithful")


def test_trap_processing_time_wants_the_time_of_each_batch(
    cheap: SparkSession, tmp_path: Path
) -> None:
    """A short replay gets them wrong, and its controls say so."""
    merge = Merge(cheap, FAITHFUL["ticking"], tmp_path, seed=1)
    merge.merged("short")
    assert not merge.controls.equal
    require_exact(merge, "faithful")


@pytest.mark.slow
@pytest.mark.parametrize("seed", SLOW_SEEDS)
@pytest.mark.parametrize("name", SHORT)
def test_many_seeds(cheap: SparkSession, tmp_path: Path, name: str, seed: int) -> None:
    """The same with other events; every third one faithfully."""
    require_exact(Merge(cheap, SHORT[name], tmp_path, seed), "short" if seed % 3 else "faithful")


@pytest.mark.slow
@pytest.mark.parametrize("seed", SLOW_SEEDS)
@pytest.mark.parametrize("name", FAITHFUL)
def test_many_seeds_faithfully(cheap: SparkSession, tmp_path: Path, name: str, seed: int) -> None:
    """The same, for programs that only the faithful way is exact for."""
    require_exact(Merge(cheap, FAITHFUL[name], tmp_path, seed), "faithful")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "store"),
    [
        ("window", "hdfs"),
        ("session", "hdfs"),
        ("join_left", "hdfs"),
        ("transform", "format_2"),
        ("chain", "format_2"),
        ("totals", "offsets_2"),
        ("join_left", "join_3"),
    ],
)
def test_other_state_stores(cheap: SparkSession, tmp_path: Path, name: str, store: str) -> None:
    """Whatever keeps the state: the default provider, ids in the commit log, other formats."""
    case: Case = SHORT[name]
    for seed in (1, 2):
        require_exact(Merge(cheap, case, tmp_path / str(seed), seed, STORES[store]), "short")
