"""A merge equals the full replay: state, outputs, and the outputs of all later batches.

The truth is the same program from scratch, with the late events where they belong; Spark's own
typed reader says what its state is. See `merge_oracle`. A seed is a family of entities, and thirty
of them go through one run of a program; see `merge_families`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest

from tests import draw
from tests.fidelity import harness, merge_families
from tests.fidelity.merge_cases import FAITHFUL, SHORT
from tests.fidelity.merge_families import ONCE, TWICE, Cut, Family
from tests.fidelity.merge_oracle import Merge, Outcome
from tests.fidelity.merge_query import Case, Query
from tests.fidelity.merge_steps import Way

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SEEDS = 30
# How many late events there are of each situation, in thirty families, at least.
SITUATIONS = {
    "known already": 15,
    "removed": 5,
    "of a new entity": 10,
    "before the first event": 10,
    "at the time of another": 5,
    "before the watermark": 10,
    "after the watermark": 10,
    "more comes during the merge": 10,
    "more comes after the merge": 10,
    "new, and comes during the merge": 2,
    "joins two sessions": 10,
    "moves a timer": 3,
}
# What programs without a watermark have not.
BY_WATERMARK = {"before the watermark", "after the watermark", "moves a timer"}
# Their rows meet others of about the same time only, so that no later batch meets late ones.
AT_ONE_TIME = {"dedupe", "join_inner"}
EMPTY_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
STORES = {
    "hdfs": harness.STORES["hdfs"].conf,
    "format_2": harness.STORES["rocksdb_2_changelog"].conf,
    "offsets_2": {"spark.sql.streaming.offsetLog.formatVersion": "2"},
    "join_3": {"spark.sql.streaming.join.stateFormatVersion": "3"},
}


@dataclass
class Trial:
    """A case with thirty families, merged, and what comes of it.

    Attributes:
        spark: What all share.
        case: The program.
        place: A directory of its own.
        seed: Which families.
        cuts: When late batches are merged.
        conf: Settings besides.
        way: How it is replayed.
    """

    spark: SparkSession
    case: Case
    place: Path
    seed: int = 1
    cuts: Sequence[Cut] = ONCE
    conf: Mapping[str, str] | None = None
    way: Way = "short"

    @cached_property
    def families(self) -> list[Family]:
        """Draw families until they have what does not depend on a watermark.

        What a seed gives changes with the modules that hypothesis takes numbers from.
        """
        sources, disorder = self.case.sources, self.case.disorder
        for seed in itertools.count(self.seed, 1000):
            found = merge_families.drawn(SEEDS, self.cuts, sources, disorder=disorder, seed=seed)
            events = merge_families.placed(found, sources)
            never = [0] * len(self.cuts)
            situations = merge_families.situations(events, self.cuts, never)
            if not self._lacking(situations, timed=False):
                return found
        raise AssertionError

    def _lacking(self, found: Counter[str], *, timed: bool) -> set[str]:
        """Return the situations of which there are too few."""
        lacking = {name for name, least in SITUATIONS.items() if found[name] < least}
        lacking -= set() if timed else BY_WATERMARK
        # What is out of order is about windows, which have none.
        return lacking - ({"moves a timer", "joins two sessions"} if self.case.disorder else set())

    def of(self, families: Sequence[Family], name: str) -> Merge:
        """Run the case up to its merges."""
        conf = {EMPTY_BATCHES: "false", **(self.conf or {})}
        saved = (0, 2) if len(self.cuts) == 1 else (0, 1, 4)
        return Merge(self.spark, self.case, self.place / name, families, self.cuts, conf, saved)

    @cached_property
    def merge(self) -> Merge:
        return self.of(self.families, "all")

    @cached_property
    def merged(self) -> Query:
        return self.merge.merged(self.way)

    @cached_property
    def unspliced(self) -> Outcome:
        return self.merge.outcome(self.merge.unspliced(self.merged))

    def require_exact(self) -> None:
        """Check that the merge gives the truth, and that untouched entities come out as they are.

        If it does not, the smallest family for which it does not is shown.
        """
        merged = self.merged
        assert self.merge.controls.rows
        assert self.merge.controls.equal, self.merge.controls.sample
        assert not self.merge.control_outputs
        outcome = self.merge.outcome(merged)
        if not outcome.exact:
            pytest.fail(f"{outcome}; the smallest family is {self.smallest(outcome)}")

    def require_situations(self) -> None:
        """Check that the families have what a merge must be right in."""
        found = self.merge.situations
        print(f"{self.case.name}, seed {self.seed}: {dict(found)}, bases {self.merge.bases}")
        timed = any(watermark for watermark, _ in self.merge.live.watermarks().values())
        assert not self._lacking(found, timed=timed), found
        # Some entities begin with nothing, and some from each savepoint.
        assert set(self.merge.bases) == {-1, *self.merge.saved}

    def smallest(self, outcome: Outcome) -> Family:
        """Return what is left of a family that came out wrong without what does not matter."""
        runs = Counter[str]()

        def wrong(families: Sequence[Family]) -> set[int]:
            runs["all"] += 1
            merge = self.of(families, f"smaller-{runs['all']}")
            return merge.outcome(merge.merged(self.way)).families

        return merge_families.smallest(self.families[min(outcome.families)], wrong)


@pytest.fixture(scope="module")
def trial(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trial]:
    """Give the trial of a program, which is run once for all that is asked of it."""
    known: dict[str, Trial] = {}

    def of(name: str) -> Trial:
        if name not in known:
            known[name] = Trial(spark, SHORT[name], tmp_path_factory.mktemp(name))
        return known[name]

    return of


def programs(*by_day: str) -> list[Any]:
    """Give all programs, each on one worker; those that are not for the day are nightly."""
    return [
        pytest.param(
            one,
            marks=[pytest.mark.xdist_group(one), *([] if one in by_day else [pytest.mark.nightly])],
        )
        for one in SHORT
    ]


# Programs that keep sessions, by Spark or by a function of their own, or join; those with
# transformWithState take twice as long.
BY_DAY = draw.chance("program of the oracle").choice(
    ["pandas", "order_sessions", "session", "join_left"]
)


@pytest.mark.parametrize("name", programs(BY_DAY))
def test_a_merge_gives_what_the_full_replay_gives(trial: Callable[[str], Trial], name: str) -> None:
    """Some entities begin with nothing, some from files of a savepoint, some from its table."""
    trial(name).require_exact()
    trial(name).require_situations()


@pytest.mark.parametrize("name", programs())
def test_without_the_splice_state_and_later_batches_are_wrong(
    trial: Callable[[str], Trial], name: str
) -> None:
    """The outputs were corrected, and the query goes on with the state that it had."""
    outcome = trial(name).unspliced
    assert not outcome.outputs
    assert outcome.state
    assert outcome.later or name in AT_ONE_TIME


@pytest.mark.parametrize("name", programs())
def test_late_events_that_are_appended_give_something_else(
    trial: Callable[[str], Trial], name: str
) -> None:
    """They are dropped, or counted when they arrive; only what adds up is right in the end."""
    outcome = trial(name).merge.appended()
    assert outcome.state
    assert outcome.later if name == "totals" else outcome.outputs_in_the_end


@pytest.mark.nightly
@pytest.mark.parametrize("name", SHORT)
def test_after_an_earlier_merge(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Savepoints before it lack its events; the batches overlap, and some entities are in both."""
    trial = Trial(spark, SHORT[name], tmp_path, seed=2, cuts=TWICE)
    trial.require_exact()
    trial.require_situations()
    both = [{one.k for one in trial.merge.late if one.merge == number} for number in (1, 2)]
    assert both[0] & both[1]


@pytest.mark.nightly
@pytest.mark.parametrize("name", FAITHFUL)
def test_some_programs_want_the_faithful_way(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """A short replay gets them wrong: late rows that live dropped, the clock, timers that re-arm.

    Of the two last ones its controls say so, by their state or by what they wrote.
    """
    trial = Trial(spark, FAITHFUL[name], tmp_path)
    short = trial.merge.merged("short")
    assert not (trial.merge.controls.equal and trial.merge.outcome(short).exact)
    proved = trial.merge.controls.equal and not trial.merge.control_outputs
    assert not (proved and name in {"ticking", "rearming"})
    trial.way = "faithful"
    trial.require_exact()
    trial.require_situations()


@pytest.mark.nightly
@pytest.mark.parametrize("way", get_args(Way))
@pytest.mark.parametrize("name", [*SHORT, *FAITHFUL])
def test_other_families(spark: SparkSession, tmp_path: Path, name: str, way: Way) -> None:
    """Thirty others each night; one time with batches without input, one time faithfully."""
    case = {**SHORT, **FAITHFUL}[name]
    empty = {EMPTY_BATCHES: str(way == "short").lower()}
    seed = draw.chance("families", name, way).randrange(6, 1000)
    way = "faithful" if name in FAITHFUL else way
    Trial(spark, case, tmp_path, seed, conf=empty, way=way).require_exact()


@pytest.mark.nightly
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
def test_other_state_stores(spark: SparkSession, tmp_path: Path, name: str, store: str) -> None:
    """Whatever keeps the state: the default provider, ids in the commit log, other formats."""
    Trial(spark, SHORT[name], tmp_path, seed=5, conf=STORES[store]).require_exact()
