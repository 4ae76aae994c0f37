"""What the watermark dropped, merged back, equals a run that got it in time.

State, outputs, and the outputs of all later batches, for each way in which Spark drops late rows:
thirty families of entities each at night; on a change, three of one program, in turns with others.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import draw
from tests.fidelity import merge_families
from tests.fidelity.dropped_cases import DROPPING
from tests.fidelity.dropped_oracle import DroppedMerge
from tests.fidelity.merge_families import ONCE
from tests.fidelity.test_merge_oracle import EMPTY_BATCHES, SEEDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

FEW = 3


@pytest.mark.nightly
@pytest.mark.parametrize("name", DROPPING)
def test_what_was_dropped_is_found_and_merged_back(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """Just what the program's rule says is found; without the merge outputs lack it."""
    merge = _exact(spark, tmp_path, name, SEEDS)
    assert merge.outcome(merge.unmerged()).outputs_in_the_end, "it makes a difference"


@draw.taking_turns("dropped rows", "copied table", "rewind by Spark")
@pytest.mark.parametrize("name", draw.some(1, DROPPING, "dropped"))
def test_what_was_dropped_of_a_few_is_merged_back(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """The same for one of the programs."""
    _exact(spark, tmp_path, name, FEW)


def _exact(spark: SparkSession, place: Path, name: str, count: int) -> DroppedMerge:
    one = DROPPING[name]
    families = merge_families.drawn(count, ONCE, one.case.sources, disorder=True, seed=11)
    conf = {EMPTY_BATCHES: "false"}
    merge = DroppedMerge(spark, one.case, place, families, conf=conf, program=one)
    assert merge.found_ids == merge.by_hand
    assert len(merge.moved) >= count // 3

    merged = merge.merged("faithful")

    assert merge.controls.rows
    assert merge.controls.equal, merge.controls.sample
    assert not merge.control_outputs
    outcome = merge.outcome(merged)
    assert outcome.exact, str(outcome)
    return merge
