"""Verbs in the order of chance on a pipeline, against pandas over the orders that count."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.local import LocalWorld
from tests import draw
from tests.e2e.medallion_shop import MedallionShop
from tests.fidelity.pipeline_walk import PipelineWalk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(3000),
]
STEPS = 40


def test_after_each_verb_each_level_is_what_pandas_computes(
    world: LocalWorld, world_environment: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    walk = PipelineWalk(MedallionShop.open(world, tmp_path), draw.chance("pipeline walk"))
    walk.sell()
    walk.check()
    for _ in range(STEPS):
        walk.step()
