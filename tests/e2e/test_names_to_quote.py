"""A table and columns whose names SQL has to quote: every verb as with any other names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

from savepoints.errors import IncompatibleError
from savepoints.local import LocalWorld
from savepoints.operations.rollback.target import BeforeLast
from savepoints.runtime.app import App, Input, Output
from spark_jobs import json_records
from tests.e2e import late_apps
from tests.e2e.desk import Desk
from tests.e2e.late_desk import Event, LateDesk
from tests.e2e.marks import NIGHTLY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = NIGHTLY

KEY, TOTAL, ID = "kä.y", "to tal (=)", "i.`d"
TABLE = "tä.b `l"
FIRST = (Event("1", "a", 1, 3), Event("2", "b", 2, 4), Event("3", "c", 4, 5))
SECOND = (Event("4", "a", 8, 13), Event("5", "d", 16, 14))
NEWEST = (Event("8", "a", 64, 23), Event("9", "new", 128, 24))
LATE = (Event("6", "a", 1000, 3.5), Event("7", "new", 32, 6))


def decode(records: DataFrame) -> DataFrame:
    return late_apps.decode(records).withColumnsRenamed({"k": KEY, "id": ID})


def totals(inputs: Mapping[str, DataFrame]) -> DataFrame:
    return (
        inputs["events"].groupBy(F.col(f"`{KEY.replace('`', '``')}`")).agg(F.sum("n").alias(TOTAL))
    )


quoted = App(
    "quoted",
    {"events": Input("events", decode, entity_key=KEY, event_time=json_records.AT, event_id=(ID,))},
    totals,
    {"to.tal": Output("upsert", (KEY,))},
)


def summed(events: Sequence[Event]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for one in events:
        found[one.k] += one.n
    return dict(found)


def test_names_that_sql_has_to_quote(
    world: LocalWorld, world_environment: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    desk = LateDesk(Desk.open(world, tmp_path, f"{__name__}:quoted", archived=True), spark)

    table = str(tmp_path / TABLE)
    desk.bind(outputs={"to.tal": table})

    def rows() -> dict[str, int]:
        found = DeltaTable(table).to_pyarrow_table().to_pylist()
        return {row[KEY]: row[TOTAL] for row in found}

    desk.arrive(FIRST)
    query = desk.desk.store.query(desk.desk.query)
    saved = desk.desk.store.savepoint("latest")
    desk.arrive(SECOND)
    assert rows() == summed([*FIRST, *SECOND])

    query.rollback(saved.id).execute()
    assert rows() == summed(FIRST)
    query.rollback(BeforeLast()).execute()
    assert rows() == summed([*FIRST, *SECOND])

    desk.archive()
    query.merge(desk.write(LATE)).execute()
    assert rows() == summed([*FIRST, *SECOND, *LATE])
    query.rollback(BeforeLast()).execute()
    assert rows() == summed([*FIRST, *SECOND])

    desk.arrive(NEWEST)
    assert rows() == summed([*FIRST, *SECOND, *NEWEST])


def in_backticks(inputs: Mapping[str, DataFrame]) -> DataFrame:
    return inputs["events"].groupBy("k").agg(F.sum("n").alias("to`tal"))


unwritable = App(
    "unwritable", {"events": late_apps.read()}, in_backticks, {"out": Output("upsert", ("k",))}
)


def test_trap_delta_cannot_upsert_into_columns_with_backticks(
    world: LocalWorld, world_environment: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    """The first batch failed for it, when the table was there already."""
    desk = LateDesk(Desk.open(world, tmp_path, f"{__name__}:unwritable"), spark)

    with pytest.raises(IncompatibleError, match="the column 'to`tal': Delta cannot upsert"):
        desk.arrive(FIRST)

    assert not (tmp_path / "out").exists()
