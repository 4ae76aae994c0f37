"""Tables with each feature of Delta: corrected, forked, promoted, and written on by Spark.

What must come of it is said by hand; that tables are rewound is in `rewind/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from savepoints.config.settings import Settings
from savepoints.errors import IncompatibleError
from savepoints.io import Location
from savepoints.outputs.correct import correct
from savepoints.outputs.correct.correct import Correction
from savepoints.outputs.delta import batch_version
from savepoints.outputs.fork import isolated_copy, replace_content
from savepoints.outputs.fork.replace_content import Takeover
from savepoints.outputs.rewind import rewind
from tests.outputs.features import FEATURES
from tests.outputs.spark_table import NEXT, OWN, SparkTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

OPERATION = "op-20261121-101530-aaaaaa"
FORK, BATCH = "trial/totals/1", 4
# After batch 4, which deleted a row of batch 1.
ROWS = [(0, "even"), (2, "even"), (3, "even"), *((n, "odd") for n in range(100, 104))]


def correction(table: SparkTable, base: int) -> Correction:
    """Plan to correct entities from a batch on."""
    return correct.plan(
        "totals",
        table.uri,
        [table.at(base)],
        mode="append",
        key=(),
        entity="n",
        owner="orders/",
        own_ids=(),
        app_id=NEXT,
        batch_id=BATCH,
        merge_id=OPERATION,
        own_rows=None,
    )


@pytest.mark.parametrize("name", FEATURES)
def test_rows_of_entities_are_corrected_and_uncorrected(
    spark: SparkSession, on_local: Location, name: str
) -> None:
    table = SparkTable(spark, name, on_local)
    if FEATURES[name].correct.startswith("refused"):
        with pytest.raises(IncompatibleError, match="again for the table's identity columns: id"):
            correction(table, FEATURES[name].base)
        assert table.newest == 5
        return
    before, plan = table.rows(), correction(table, FEATURES[name].base)
    base = plan.live.newest
    entities = spark.createDataFrame([("2", base), ("1", None)], "entity string, version bigint")
    written = "n BIGINT, part STRING, replay_slice INT"
    # 2 had a row at its base and gets another; 1 has none and gets one.
    replayed = spark.createDataFrame([(2, "late", 0), (1, "late", 0)], written)

    for _ in range(2):
        correct.execute(spark, plan, entities, replayed)
    assert table.keys() == sorted([*ROWS, (1, "late"), (2, "late")])
    kept = [row for row in before if row[0] not in {1, 2}]
    assert [row for row in table.rows() if row[0] not in {1, 2}] == kept, "row ids, too"
    table.write(5, NEXT)
    assert table.keys() == sorted([*ROWS, (1, "late"), (2, "late"), (5, "even"), (105, "odd")])


def test_trap_rows_from_before_a_type_was_widened_are_not_taken(
    spark: SparkSession, on_local: Location
) -> None:
    table = SparkTable(spark, "type_widening", on_local)

    with pytest.raises(
        IncompatibleError,
        match=r"the column n of .* was dropped or has changed type since version 2",
    ):
        correction(table, base=1)

    assert table.newest == 5


@pytest.mark.parametrize(
    "name", [name for name in FEATURES if not FEATURES[name].correct.startswith("refused")]
)
def test_a_correction_is_taken_back(spark: SparkSession, on_local: Location, name: str) -> None:
    table = SparkTable(spark, name, on_local)
    before, plan = table.rows(), correction(table, FEATURES[name].base)
    entities = spark.createDataFrame([("3", None)], "entity string, version bigint")
    correct.execute(
        spark, plan, entities, spark.createDataFrame([], "n BIGINT, part STRING, replay_slice INT")
    )
    assert table.keys() == [row for row in ROWS if row[0] != 3]

    for _ in range(2):
        correct.undo(plan, OPERATION, rewind.session_for([plan.live], Settings()))

    assert table.rows() == before


@pytest.mark.parametrize("name", FEATURES)
def test_a_fork_is_written_and_promoted_and_taken_back(
    spark: SparkSession, on_local: Location, name: str
) -> None:
    live = SparkTable(spark, name, on_local)
    before, saved = live.rows(), batch_version.present("totals", live.uri, OWN)
    fork = SparkTable(spark, name, on_local, str(on_local / "fork"))
    isolated_copy.execute(isolated_copy.plan(saved, fork.uri, "copy", FORK, BATCH), OPERATION)
    assert fork.rows() == before
    fork.write(5, FORK)
    fork_rows = sorted([*ROWS, (5, "even"), (105, "odd")])
    assert fork.keys() == fork_rows
    assert live.rows() == before

    if FEATURES[name].promote != "exact":
        with pytest.raises(IncompatibleError, match="generate the same values again"):
            takeover(live, fork)
        assert live.newest == 5
        return
    plan = takeover(live, fork)
    assert plan.live.engine == FEATURES[name].engine
    for _ in range(2):
        replace_content.execute(spark, plan)
    assert live.keys() == fork_rows
    replace_content.undo(plan, OPERATION, rewind.session_for([plan.live], Settings()))
    assert live.rows() == before
    replace_content.execute(spark, takeover(live, fork))
    live.write(6, NEXT)
    assert live.keys() == sorted([*fork_rows, (6, "even"), (106, "odd")])


def takeover(live: SparkTable, fork: SparkTable) -> Takeover:
    """Plan to give the live table the fork's rows."""
    return replace_content.plan(
        "totals",
        live.uri,
        batch_version.present("totals", fork.uri, FORK),
        owner="orders/",
        own_ids=(),
        app_id=NEXT,
        batch_id=5,
        own_rows=None,
    )
