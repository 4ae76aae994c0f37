"""Late events that are older than the week for which Delta lets versions of a table be read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from savepoints.local import LocalWorld
from tests.e2e.late_desk import Event, LateDesk
from tests.e2e.marks import NIGHTLY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = NIGHTLY

CHUNKS = (
    (Event("1", "a", 1, 3), Event("2", "b", 2, 4), Event("3", "c", 4, 5)),
    (Event("4", "a", 8, 13), Event("5", "b", 16, 14)),
    (Event("6", "a", 32, 23), Event("7", "c", 64, 24)),
)
LATE = Event("late", "a", 1000, 20)


def total(events: Sequence[Event], key: str) -> int:
    return sum(one.n for one in events if one.k == key)


def test_trap_a_base_whose_table_version_is_older_than_a_week(
    world: LocalWorld, world_environment: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    desk = LateDesk.open(world, spark, tmp_path, "running")
    for chunk in CHUNKS:
        desk.arrive(chunk)
        desk.archive()
    log = Path(desk.desk.settings.queries[desk.desk.query].outputs["out"]) / "_delta_log"
    for commit in sorted(log.glob("*.json"))[:-1]:
        os.utime(commit, (0, 0))

    merge = desk.desk.store.query(desk.desk.query).merge(desk.write([LATE]))
    merge.execute()

    assert "(1 from sp-" in str(merge.plan)
    events = [*(one for chunk in CHUNKS for one in chunk), LATE]
    assert {row["k"]: row["total"] for row in desk.desk.rows()} == {
        key: total(events, key) for key in "abc"
    }
