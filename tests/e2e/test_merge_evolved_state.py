"""State in Avro that goes on in a changed program: each row has the number of its schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from savepoints.checkpoint.state.operators import ENCODING_KEY
from savepoints.errors import IncompatibleError, LayoutChangedError
from savepoints.local import LocalWorld
from savepoints.runtime.app import App, Output
from tests.e2e import late_apps
from tests.e2e.late_desk import Event, LateDesk
from tests.e2e.marks import NIGHTLY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = NIGHTLY

FIRST = (Event("1", "a", 1, 3), Event("2", "b", 2, 4), Event("3", "c", 4, 5), Event("4", "d", 8, 5))
SECOND = (Event("5", "a", 16, 13), Event("6", "b", 32, 14), Event("7", "e", 64, 15))
THIRD = (Event("8", "b", 1, 18), Event("9", "d", 1, 18))
LAST = tuple(Event(f"last {k}", k, 1, 20) for k in ("a", "b", "c", "d", "e", "new"))


class Totals(StatefulProcessor):
    """Keeps a total."""

    fields: tuple[str, ...] = ("total",)

    def init(self, handle: Any) -> None:
        """Declare the state variable."""
        self.kept: Any = handle.getValueState(
            "kept", ", ".join(f"{one} long" for one in self.fields)
        )

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        """Add and count the events."""
        kept = dict(zip(self.fields, self.kept.get() or (), strict=False))
        total, count = kept.get("total") or 0, kept.get("count") or 0
        for row in rows:
            total, count = total + row.n, count + 1
        self.kept.update(tuple({"total": total, "count": count}.get(one) for one in self.fields))
        yield Row(k=key[0], total=total, count=count)

    def close(self) -> None:
        """Nothing is open."""


class Counting(Totals):
    """Remembers the count, too, in front of the total."""

    fields = ("count", "total")


class Renamed(Totals):
    """Calls the total otherwise."""

    fields = ("sum",)


def program(processor: type[Totals]) -> App:
    def build(inputs: Mapping[str, DataFrame]) -> DataFrame:
        grouped = inputs["events"].groupBy("k")
        columns = "k string, total long, count long"
        return grouped.transformWithState(processor(), columns, "update", "none")

    return App("running", {"events": late_apps.read()}, build, {"out": Output("upsert", ("k",))})


before, after, renamed = map(program, (Totals, Counting, Renamed))


@pytest.fixture
def avro(spark: SparkSession) -> Iterator[None]:
    """Let queries encode their state as Avro."""
    spark.conf.set(ENCODING_KEY, "avro")
    yield
    spark.conf.unset(ENCODING_KEY)


def written(desk: LateDesk) -> dict[str, tuple[int, int]]:
    rows = desk.spark.read.format("delta").load(str(desk.desk.directory / "out")).collect()
    return {row["k"]: (row["total"], row["count"]) for row in rows}


def expected(
    counted: Sequence[Event], before_counts: Sequence[Event] = FIRST
) -> dict[str, tuple[int, int]]:
    """Return total and count: what came before the count was kept is only in the total."""
    events = [*before_counts, *counted]
    return {
        k: (sum(one.n for one in events if one.k == k), sum(one.k == k for one in counted) or 1)
        for k in {one.k for one in events}
    }


def test_trap_rows_of_a_replay_were_taken_for_rows_of_another_schema(
    world: LocalWorld,
    world_environment: dict[str, str],
    spark: SparkSession,
    avro: None,
    tmp_path: Path,
) -> None:
    desk = LateDesk.open(world, spark, tmp_path, "running")
    desk.bind(app=f"{__name__}:before")
    desk.arrive(FIRST)
    desk.desk.store.query("running").create().execute()
    old = desk.desk.store.savepoint("latest")
    assert old.upgrade_check(app=f"{__name__}:after").verdict == "compatible"
    assert old.upgrade_check(app=f"{__name__}:renamed").verdict != "compatible"
    desk.bind(app=f"{__name__}:renamed")
    with pytest.raises(LayoutChangedError, match="read as another value or as null"):
        desk.arrive(SECOND)
    desk.bind(app=f"{__name__}:after")
    desk.desk.run(until="latest")
    assert written(desk) == expected(SECOND)

    query = desk.desk.store.query("running")
    older = [Event(f"older {k}", k, 100, 3.5) for k in ("a", "new")]
    with pytest.raises(IncompatibleError, match="rows of several Avro schemas"):
        query.merge(desk.write(older, "older.parquet"))
    query.create().execute()
    with pytest.raises(LayoutChangedError, match="its rows are of schemas"):
        desk.desk.store.savepoint("latest").migrate(
            str(tmp_path / "migrated"), app=f"{__name__}:after"
        )

    desk.archive()
    desk.arrive(THIRD)
    newer = [Event(f"newer {k}", k, 100, 16) for k in ("a", "new")]
    query.merge(desk.write(newer)).execute()
    assert written(desk) == expected([*SECOND, *THIRD, *newer])
    desk.arrive(LAST)
    assert written(desk) == expected([*SECOND, *THIRD, *newer, *LAST])
