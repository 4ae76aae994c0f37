"""Late events of a program whose state begins with given rows: these count in each replay, once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from savepoints.local import LocalWorld
from savepoints.runtime.app import App, Output
from tests.e2e import late_apps
from tests.e2e.late_desk import Event, LateDesk
from tests.e2e.marks import NIGHTLY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = NIGHTLY

GIVEN = {"a": 1000, "b": 2000, "c": 3000, "unseen": 4000}
FIRST = (Event("1", "a", 1, 3), Event("2", "b", 2, 4), Event("3", "c", 4, 5), Event("4", "d", 8, 5))
SECOND = (Event("5", "a", 16, 13), Event("6", "b", 32, 14), Event("7", "e", 64, 15))
LAST = tuple(Event(f"last {k}", k, 1, 20) for k in (*GIVEN, "d", "e", "new"))


class Totals(StatefulProcessor):
    """Keeps a total that begins with what is given."""

    def init(self, handle: Any) -> None:
        """Declare the state variable."""
        self.total: Any = handle.getValueState("total", "total long, count long")

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N802, N803
        """Take what is given."""
        self.total.update((initialState.total, 0))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        """Add the events."""
        total, count = self.total.get() if self.total.exists() else (0, 0)
        for row in rows:
            total, count = total + row.n, count + 1
        self.total.update((total, count))
        yield Row(k=key[0], total=total, count=count)

    def close(self) -> None:
        """Nothing is open."""


def totals(inputs: Mapping[str, DataFrame]) -> DataFrame:
    events = inputs["events"]
    given = events.sparkSession.createDataFrame([*GIVEN.items()], "k string, total long")
    return events.groupBy("k").transformWithState(
        Totals(),
        "k string, total long, count long",
        "update",
        "none",
        initialState=given.groupBy("k"),
    )


app = App("running", {"events": late_apps.read()}, totals, {"out": Output("upsert", ("k",))})


def expected(events: Sequence[Event]) -> dict[str, tuple[int, int]]:
    mine = {one.k: [other for other in events if other.k == one.k] for one in events}
    return {
        k: (GIVEN.get(k, 0) + sum(one.n for one in those), len(those)) for k, those in mine.items()
    }


@pytest.mark.parametrize("has_base", [False, True])
def test_what_state_begins_with_counts_once(
    world: LocalWorld,
    world_environment: dict[str, str],
    spark: SparkSession,
    tmp_path: Path,
    has_base: bool,
) -> None:
    desk = LateDesk.open(world, spark, tmp_path, "running")
    desk.bind(app=f"{__name__}:app")
    query = desk.desk.store.query("running")

    def written() -> dict[str, tuple[int, int]]:
        rows = spark.read.format("delta").load(str(tmp_path / "out")).collect()
        return {row["k"]: (row["total"], row["count"]) for row in rows}

    desk.arrive(FIRST)
    if has_base:
        query.create().execute()
        desk.archive()
    desk.arrive(SECOND)
    late = [Event(f"late {k}", k, 100, 6 if has_base else 3.5) for k in ("a", "unseen", "new")]

    query.merge(desk.write(late)).execute()

    assert written() == expected([*FIRST, *SECOND, *late])
    desk.arrive(LAST)
    assert written() == expected([*FIRST, *SECOND, *late, *LAST])
