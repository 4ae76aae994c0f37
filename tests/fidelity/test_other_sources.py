"""The state goes on with other sources: another place, one more, one less, another order.

What must come out is computed in plain Python over all records that were put in.
"""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.errors import IncompatibleError
from savepoints.handle import Store
from savepoints.operations.savepoint import create
from tests.spark_session import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.drawn(3)]


class Bench:
    """Directories of JSON files, and queries that count their keys."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark, self.directory = spark, directory
        (directory / "store").mkdir()
        self.store = Store.at(str(directory / "store")).make()
        self.put_in: Counter[str] = Counter()

    def put(self, place: str, name: str, keys: str) -> None:
        """Put a file with these keys somewhere."""
        (self.directory / place).mkdir(exist_ok=True)
        rows = "".join(json.dumps({"k": key}) + "\n" for key in keys)
        (self.directory / place / f"{name}.json").write_text(rows)
        self.put_in.update(keys)

    def read(self, place: str) -> DataFrame:
        """Read the files of a place."""
        return self.spark.readStream.schema("k string").json(str(self.directory / place))

    def run(self, places: Iterable[str], checkpoint: str) -> dict[str, int]:
        """Count over all the places together, and return the newest count of each key."""
        seen: dict[str, int] = {}

        def keep(batch: DataFrame, _batch_id: int) -> None:
            seen.update({row["k"]: row["n"] for row in batch.collect()})

        first, *others = map(self.read, places)
        for one in others:
            first = first.union(one)
        query = (
            first.groupBy("k").count().withColumnRenamed("count", "n")
            .writeStream.outputMode("update").foreachBatch(keep)
            .option("checkpointLocation", str(self.directory / checkpoint))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        return seen

    def go_on(self, sources: tuple[str, ...]) -> None:
        """Save the first checkpoint and restore it for other sources."""
        checkpoint = str(self.directory / "first")
        self.store.create(query="counts", checkpoint=checkpoint, forms=("native",)).execute()
        self.store.savepoint("latest").restore(
            str(self.directory / "second"), sources=sources
        ).execute()


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Bench:
    return Bench(spark, tmp_path)


def test_the_records_go_on_in_another_place(bench: Bench) -> None:
    bench.put("a", "0", "xxyz")
    bench.run(["a"], "first")
    bench.go_on(("new",))
    bench.put("b", "0", "xyyz")

    assert bench.run(["b"], "second") == bench.put_in


def test_trap_a_file_of_the_same_name_in_another_place_is_read(bench: Bench) -> None:
    """The log of the source before would say that it has been."""
    bench.put("a", "same", "xxyz")
    bench.run(["a"], "first")
    bench.go_on(("new",))
    bench.put("b", "same", "xyyz")

    assert bench.run(["b"], "second") == bench.put_in


def test_a_source_is_added_and_the_first_goes_on_where_it_was(bench: Bench) -> None:
    bench.put("a", "0", "xxyz")
    bench.run(["a"], "first")
    bench.go_on(("keep:0", "new"))
    bench.put("a", "1", "xz")
    bench.put("b", "0", "yz")

    assert bench.run(["a", "b"], "second") == bench.put_in


def test_sources_change_places(bench: Bench) -> None:
    """Each goes on where it was; Spark knows them by their order alone."""
    bench.put("a", "0", "xxyz")
    bench.put("b", "0", "yy")
    bench.run(["a", "b"], "first")
    bench.go_on(("keep:1", "keep:0"))
    bench.put("a", "1", "xz")
    bench.put("b", "1", "yxz")

    assert bench.run(["b", "a"], "second") == bench.put_in


def test_a_source_is_removed_and_what_it_brought_stays(bench: Bench) -> None:
    bench.put("a", "0", "xxyz")
    bench.put("b", "0", "yyx")
    bench.run(["a", "b"], "first")
    bench.go_on(("keep:1",))
    bench.put("b", "1", "xyz")

    assert bench.run(["b"], "second") == bench.put_in


def socket_query(
    spark: SparkSession, port: int, checkpoint: Path, seen: list[tuple[int, int]]
) -> StreamingQuery:
    def keep(batch: DataFrame, batch_id: int) -> None:
        seen.extend((batch_id, int(row["value"])) for row in batch.collect())

    lines = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port)
    return (
        lines.load().dropDuplicates(["value"]).writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(checkpoint)).start()
    )  # fmt: skip


def test_trap_a_socket_cannot_be_read_again(spark: SparkSession, tmp_path: Path) -> None:
    """What came after the savepoint is gone, which is said before it is."""
    (tmp_path / "store").mkdir()
    store = Store.at(str(tmp_path / "store")).make()
    checkpoint, seen = tmp_path / "checkpoint", list[tuple[int, int]]()
    with socket.create_server(("127.0.0.1", 0)) as server:
        query = socket_query(spark, server.getsockname()[1], checkpoint, seen)
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"1\n2\n2\n")
            wait_until(lambda: len(seen) == 2, "both lines are there")
            query.processAllAvailable()
            query.stop()

    plan = create.plan(store, checkpoint=str(checkpoint), query="lines", forms=("native",))
    assert "lines cannot read the records of source 0 again" in plan.warnings[0]
    create.execute(plan, store)
    to = str(tmp_path / "restored")
    saved = store.savepoint("latest", query="lines")
    for verb in (saved.restore, saved.rollback):
        with pytest.raises(IncompatibleError, match="cannot read the records of source") as refused:
            verb(to=to)
        assert "--accept-unreplayable" in refused.value.hint
    assert not Path(to).exists()

    restored = store.savepoint("latest").restore(to, accept_unreplayable=True).execute()
    assert restored.batch_id == plan.newest_batch


def test_a_rate_source_makes_the_same_rows_again(spark: SparkSession, tmp_path: Path) -> None:
    """Its position is a bare number, too, but it keeps when it began."""
    (tmp_path / "store").mkdir()
    store = Store.at(str(tmp_path / "store")).make()
    seen: dict[str, dict[int, int]] = {"live": {}, "restored": {}}

    def start(name: str) -> StreamingQuery:
        def keep(batch: DataFrame, _batch_id: int) -> None:
            values = batch.collect()
            seen[name].update({row["value"]: row["timestamp"].timestamp() for row in values})

        rate = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
        return (
            rate.dropDuplicates(["value"]).writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path / name)).start()
        )  # fmt: skip

    def run_on(name: str) -> None:
        before = len(seen[name])
        query = start(name)
        wait_until(lambda: len(seen[name]) > before, "rows came")
        query.stop()

    run_on("live")
    run_on("live")
    store.create(checkpoint=str(tmp_path / "live"), query="rate", forms=("native",)).execute()
    at = max(seen["live"])
    run_on("live")
    store.savepoint("latest").restore(str(tmp_path / "restored")).execute()

    wait_until(lambda: len(seen["live"]) > at + 1, "more rows came")
    run_on("restored")

    assert min(seen["restored"]) == at + 1
    again = seen["live"].keys() & seen["restored"].keys()
    assert again
    assert {one: seen["live"][one] for one in again} == {
        one: seen["restored"][one] for one in again
    }
