"""Groups of savepoints taken while three queries run: each restored, and compared with pandas.

What a restored query has read is known from its checkpoint alone: files from the log of the file
source, versions of a table from Delta's position. What it must have written follows from that.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from deltalake import DeltaTable

from savepoints.checkpoint.logs import offset_log
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.operations.pipeline_rollback import pipeline_rollback, rollback_plan
from savepoints.outputs.fork import isolated_copy
from tests.fidelity.lake import CHAIN, Lake
from tests.samples import take
from tests.spark_session import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(1800)]

GROUPS = 50
# So many files are left to read when the first group is taken; one more comes for each group.
BACKLOG = 10


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    place = Location.of(str(tmp_path)) / "lake"
    lake = Lake(spark, place, Store.at(str(place / "store")).make(), CHAIN)
    lake.give(0)
    lake.run()
    lake.save()
    return lake


@contextmanager
def running(lake: Lake) -> Iterator[None]:
    """Let all queries run without an end, one file a batch; each must be running at the end."""
    more(lake, BACKLOG)
    queries = [
        lake.shape[name](lake).option("checkpointLocation", lake.checkpoints[name]).start()
        for name in lake.shape
    ]
    try:
        yield
        assert all(one.isActive for one in queries), [one.exception() for one in queries]
    finally:
        for one in queries:
            one.stop()


def more(lake: Lake, files: int) -> None:
    """Give files of two numbers that no file has yet, an even and an odd one."""
    there = len(list(lake.incoming.iterdir()))
    for number in range(there, there + files):
        lake.give(2 * number, 2 * number + 1)


def wait_for_another_batch(lake: Lake) -> None:
    def newest() -> list[int]:
        return [newest_batch(lake, query) for query in lake.shape]

    before = newest()
    wait_until(lambda: newest() != before, "one of the queries has gone on")


def newest_batch(lake: Lake, query: str) -> int:
    commits = Location.of(lake.checkpoints[query]).list("commits")
    return max(int(info.path.rpartition("/")[2]) for info in commits if "." not in info.path)


class Restored:
    """The savepoints of a group, each restored beside the live query, with its table copied."""

    def __init__(self, lake: Lake, savepoints: Mapping[str, Savepoint], name: str) -> None:
        """Restore them; no JVM."""
        self.lake, self.place = lake, lake.place / "restored" / name
        self.batch = {query: one.cut.batch_id for query, one in savepoints.items()}
        for query, one in savepoints.items():
            handle = lake.store.savepoint(one.id)
            handle.restore(str(self.checkpoint(query)), query_id=str(uuid.uuid4())).execute()
            (output,) = one.outputs
            copy = isolated_copy.plan(output, self.table(query), "copy", "copy", one.cut.batch_id)
            isolated_copy.execute(copy, f"op-{name}")

    def checkpoint(self, query: str) -> Location:
        return self.place / "checkpoints" / query

    def table(self, query: str) -> str:
        return str(self.place / "tables" / query)

    def rows(self, query: str) -> pd.DataFrame:
        rows: pd.DataFrame = DeltaTable(self.table(query)).to_pandas()
        return rows

    def _source(self, query: str) -> dict[str, int]:
        name = f"offsets/{self.batch[query]}"
        (position,) = offset_log.parse(self.checkpoint(query).get(name), name).sources
        found: dict[str, int] = json.loads(str(position))
        return found

    def given(self) -> set[int]:
        """Return the numbers in the files that the first query has read."""
        last = self._source("bronze")["logOffset"]
        log = self.checkpoint("bronze") / "sources" / "0"
        entries = [
            json.loads(line)
            for info in log.list()
            for line in log.get(info.path).decode().splitlines()[1:]
        ]
        paths = {one["path"] for one in entries if one["batchId"] <= last}
        return {
            json.loads(line)["n"]
            for path in paths
            for line in Path(path.removeprefix("file://")).read_text().splitlines()
        }

    def read(self, reader: str, writer: str) -> set[int]:
        """Return the numbers in what a reader has read of the live table of its writer."""
        position = self._source(reader)
        assert position["index"] == -1, "a version has one file, which is read or not"
        read = DeltaTable(self.lake.uri(writer), version=position["reservoirVersion"] - 1)
        return {*read.to_pandas()["n"]}

    def assert_consistent(self) -> None:
        """Each has written what follows from what it has read, and nobody has read more."""
        bronze, silver, gold = (self.rows(query) for query in self.lake.shape)
        assert sorted(bronze["n"]) == sorted(self.given())
        of_bronze, of_silver = self.read("silver", "bronze"), self.read("gold", "silver")
        even = sorted(n for n in of_bronze if n % 2 == 0)
        assert silver.sort_values("n").to_numpy().tolist() == [[n, 10 * n] for n in even]
        assert gold["total"].tolist() == [10 * sum(of_silver)]
        assert of_bronze <= {*bronze["n"]}, "silver has read more than bronze's savepoint holds"
        assert of_silver <= {*silver["n"]}, "gold has read more than silver's savepoint holds"


def members(lake: Lake, tag: str) -> dict[str, Savepoint]:
    return {one.query: one for one in lake.store.query("silver").group(tag).savepoints}


def take_groups(lake: Lake, count: int) -> None:
    with running(lake):
        for number in range(count):
            more(lake, 1)
            wait_for_another_batch(lake)
            lake.store.query("silver").create_group(name=f"load-{number}").execute()


def test_each_of_fifty_groups_under_load_is_consistent(lake: Lake) -> None:
    take_groups(lake, GROUPS)

    moments = set()
    behind = 0
    for number in range(GROUPS):
        group = lake.store.query("silver").group(f"load-{number}")
        assert not group.problems
        restored = Restored(lake, members(lake, f"load-{number}"), str(number))
        restored.assert_consistent()
        moments.add(tuple(restored.batch.values()))
        behind += any(one.read < one.version for one in group.reads)
    assert len(moments) > GROUPS // 2, "the queries hardly ran meanwhile"
    assert behind, "no reader was ever behind: there was no load"


def test_what_goes_on_from_a_group_under_load_comes_to_all_numbers(lake: Lake) -> None:
    """With the state of the savepoints, too."""
    take_groups(lake, 6)

    plan = rollback_plan.plan(
        lake.store,
        "silver",
        "load-3",
        every=True,
        writers={name: f"tests.fidelity.lake:write_{name}" for name in lake.shape},
        checkpoints=str(lake.place / "checkpoints"),
        stopped=True,
    )
    pipeline_rollback.execute(plan, lake.store)
    lake.follow()

    goes_on(lake)


def goes_on(lake: Lake) -> None:
    """Run all to the end of what there is; compare with pandas."""
    lake.run()
    given = [
        json.loads(line)["n"]
        for path in lake.incoming.iterdir()
        for line in path.read_text().splitlines()
    ]
    rows = {name: DeltaTable(lake.uri(name)).to_pandas() for name in lake.shape}
    even = sorted(n for n in given if n % 2 == 0)
    assert sorted(rows["bronze"]["n"]) == sorted(given)
    assert sorted(rows["silver"]["value"]) == [10 * n for n in even]
    assert rows["gold"]["total"].tolist() == [10 * sum(even)]


def test_trap_savepoints_taken_writers_first_are_found_to_be_inconsistent(lake: Lake) -> None:
    """The negative control: both the group's own check and this one see it."""
    for number, query in enumerate(lake.shape, start=1):
        take(
            lake.store, Location.of(lake.checkpoints[query]), query=query,
            outputs={query: lake.uri(query)}, tags=("wrong",),
        )  # fmt: skip
        lake.give(10 * number)
        lake.run()

    problems = "; ".join(lake.store.query("silver").group("wrong").problems)
    assert "silver is ahead of bronze" in problems
    assert "gold is ahead of silver" in problems
    restored = Restored(lake, members(lake, "wrong"), "wrong")
    with pytest.raises(AssertionError, match="silver has read more than bronze's savepoint holds"):
        restored.assert_consistent()
