"""A real reader of a real table behind a rewind; the other shapes are in `tests/fidelity`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from tests import draw
from tests.fidelity.lake import CHAIN, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@draw.taking_turns("rollback of a pipeline of Spark", "pipeline of Spark")
def test_trap_a_reader_reads_up_to_the_cut_and_goes_on_behind_the_rewind(
    spark: SparkSession, on_local: Location, local_store: Store
) -> None:
    """Started as it is, it would read what was taken back, or fail at the commit that did it."""
    shape = {name: CHAIN[name] for name in ("bronze", "silver")}
    lake = Lake(spark, on_local / "lake", local_store, shape)
    lake.give(1, 2)
    lake.run()
    lake.give(3, 4)
    lake.run("bronze")
    lake.save()
    lake.has_bug = True
    lake.give(5, 6)
    lake.run()
    lake.has_bug = False

    plan = local_store.query("silver").rollback_pipeline(
        "latest",
        every=True,
        writers={"silver": "tests.fidelity.lake:write_silver"},
        checkpoints=str(lake.place / "checkpoints"),
        stopped=True,
    )
    plan.execute()

    lake.follow()
    assert lake.rows("bronze") == Counter([(1,), (2,), (3,), (4,)])
    assert lake.rows("silver") == Counter([(2, 20), (4, 40)]), "exactly what bronze goes back to"
    lake.run()
    assert lake.rows("bronze") == Counter((n,) for n in range(1, 7))
    assert lake.rows("silver") == Counter((n, n * 10) for n in (2, 4, 6))
