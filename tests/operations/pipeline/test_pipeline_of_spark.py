"""Three real queries from bronze over silver to gold, against what each of them was given."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.pipeline.pipeline_graph import ExternalInput
from tests import draw
from tests.samples import take

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NAMES = ("bronze", "silver", "gold")


class Lake:
    """Three tables, each written by a query of its name that runs until it has read all."""

    def __init__(self, spark: SparkSession, place: Location) -> None:
        self.spark, self.place = spark, place
        self.incoming = Path(str(place / "incoming"))
        self.incoming.mkdir()

    def uri(self, name: str) -> str:
        return str(self.place / "tables" / name)

    def checkpoint(self, name: str) -> Location:
        return self.place / "checkpoints" / name

    def give(self, *numbers: int) -> None:
        """Give bronze a file, all of it at once."""
        name = f"{len(list(self.incoming.iterdir())):04}.json"
        written = self.incoming.parent / name
        written.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
        written.rename(self.incoming / name)

    def run(self, name: str) -> int:
        """Run a query to the end of what there is, and return the newest version of its table."""
        frames: dict[str, Callable[[], DataFrame]] = {
            "bronze": lambda: self.spark.readStream.schema("n long").json(str(self.incoming)),
            "silver": lambda: self._stream("bronze").where("n % 2 = 0"),
            "gold": lambda: self._stream("silver").groupBy().sum("n").toDF("total"),
        }
        query = (
            frames[name]()
            .writeStream.format("delta")
            .outputMode("complete" if name == "gold" else "append")
            .option("checkpointLocation", str(self.checkpoint(name)))
            .trigger(availableNow=True)
            .start(self.uri(name))
        )
        assert query.awaitTermination(120)
        return int(DeltaTable(self.uri(name)).version())

    def _stream(self, table: str) -> DataFrame:
        return self.spark.readStream.format("delta").load(self.uri(table))


@pytest.fixture
def lake(spark: SparkSession, on_local: Location) -> Lake:
    return Lake(spark, on_local)


@draw.taking_turns("pipeline of Spark", "rollback of a pipeline of Spark")
def test_bronze_silver_gold(lake: Lake, local_store: Store) -> None:
    lake.give(1, 2, 3, 4)
    lake.run("bronze")
    lake.give(5, 6)
    # What silver, and then gold, has read to its end.
    read_of_bronze = lake.run("bronze")
    lake.run("silver")
    lake.give(8)
    lake.run("bronze")
    lake.give(9, 10)
    bronze_now = lake.run("bronze")
    lake.run("gold")
    read_of_silver = versions(lake, "silver")[-1]
    for name in NAMES:
        take(local_store, lake.checkpoint(name), query=name, outputs={name: lake.uri(name)})

    found = local_store.query("silver").pipeline()

    assert [one.name for one in found.queries] == [*NAMES]
    assert (found.upstream, found.downstream, found.findings) == (("bronze",), ("gold",), ())
    assert found.inputs == (ExternalInput("files", "source 0 of bronze", ("bronze",)),)
    first, second = found.edges
    ids = {name: str(DeltaTable(lake.uri(name)).metadata().id) for name in NAMES}
    assert (first.writer, first.reader, first.table_id) == ("bronze", "silver", ids["bronze"])
    assert (second.writer, second.reader, second.table_id) == ("silver", "gold", ids["silver"])
    assert (first.table_uri, second.table_uri) == (lake.uri("bronze"), lake.uri("silver"))
    # Two files came after silver had read all that there was.
    assert (first.version, first.behind) == (bronze_now, 2)
    assert first.position.version == read_of_bronze + 1
    assert (second.version, second.behind) == (read_of_silver, 0)

    lake.run("silver")

    caught_up = local_store.query("gold").pipeline()
    assert [(one.reader, one.behind) for one in caught_up.edges] == [("silver", 0), ("gold", 1)]
    assert sum(caught_up.edges[1].position.version <= v for v in versions(lake, "silver")) == 1


@pytest.mark.nightly
def test_a_plain_driver_takes_groups_of_its_pipeline_while_all_go_on(
    lake: Lake, local_store: Store
) -> None:
    """Gold's total at its savepoint is that of silver's rows, up to where gold has read them."""
    lake.give(1, 2)
    for name in NAMES:
        lake.run(name)
        take(local_store, lake.checkpoint(name), query=name, outputs={name: lake.uri(name)})
    gold, number = local_store.query("gold"), 2

    with gold.periodic_groups(every="1s"):
        # However slow a round is, gold has gone on between some of them.
        while len({group.savepoints[0].cut.batch_id for group in gold.groups()}) < 3:
            assert number < 100
            lake.give(number := number + 2)
            for name in NAMES:
                lake.run(name)

    totals = set()
    for group in gold.groups():
        assert group.problems == ()
        saved = {one.query: one.outputs[0].version for one in group.savepoints}
        (read,) = (one.read for one in group.reads if one.reader == "gold")
        assert read <= saved["silver"]
        (total,) = DeltaTable(lake.uri("gold"), saved["gold"]).to_pandas()["total"]
        assert total == DeltaTable(lake.uri("silver"), read).to_pandas()["n"].sum()
        totals.add(total)
    assert len(totals) >= 3


def versions(lake: Lake, name: str) -> list[int]:
    """Return the versions that the log of a table has, by its files."""
    log = Path(lake.uri(name)) / "_delta_log"
    return sorted(int(path.stem) for path in log.glob("*.json") if path.stem.isdecimal())
