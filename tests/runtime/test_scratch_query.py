"""The scratch query: in which order it reads events, and what a run on nothing shows."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from savepoints.io import Location
from savepoints.runtime import scratch_query
from savepoints.runtime.app import App, Input, Output
from savepoints.runtime.scratch_query import REPLAY_BATCH, ScratchQuery
from tests.fidelity.merge_cases import decode
from tests.fidelity.merge_events import EVENT, Event

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def joined(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Join the inputs, the second one first."""
    from pyspark.sql import functions as F

    left, right = (
        inputs["second"],
        inputs["first"].toDF(*(f"{n}2" for n in inputs["first"].columns)),
    )
    return left.join(right, F.expr("v = v2 AND k = k2"))


APP = App(
    name="joined",
    inputs={
        name: Input(topic=name, decode=decode, entity_key="k", event_time="t")
        for name in ("first", "second")
    },
    build=joined,
    outputs={"out": Output(mode="append")},
)


def test_a_run_on_nothing_shows_sources_and_join_keys(spark: SparkSession, tmp_path: Path) -> None:
    """In the order of the plan, which is not that of the inputs."""
    found = scratch_query.probe(spark, APP, Location.of(str(tmp_path)))
    assert found.sources == ("second", "first")
    assert found.join_keys == {0: (("v", "v2"), ("k", "k2"))}


def test_trap_the_events_of_an_entity_are_read_in_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    """They lie in one file of a slice, by time and then by id, however they arrived."""
    chance = random.Random(1)
    events = [
        Event(0, number % 2, number, f"k{chance.randrange(9)}", 0, chance.randrange(20))
        for number in range(400)
    ]
    chance.shuffle(events)
    table = pa.Table.from_pylist([one.event(one.batch + 1) for one in events], EVENT)
    pq.write_table(table, tmp_path / "events.parquet", row_group_size=50)
    query = ScratchQuery(spark, APP, Location.of(str(tmp_path / "scratch")), 3)
    query.write_events("first", spark.read.parquet(str(tmp_path / "events.parquet")))

    wanted: dict[tuple[int, str], list[tuple[Any, ...]]] = {}
    for one in events:
        place = (one.batch + 1, one.k)
        wanted.setdefault(place, []).append((one.time, f"0-{one.offset}", one.offset))
    found: dict[tuple[int, str], list[dt.datetime]] = {}
    for path in Path(str(query.events("first"))).rglob("*.parquet"):
        number = int(path.parent.name.removeprefix(f"{REPLAY_BATCH}="))
        of_file: dict[tuple[int, str], list[Any]] = {}
        for row in pq.read_table(path, partitioning=None).to_pylist():
            of_file.setdefault((number, row["key"].decode()), []).append(row["offset"])
        assert not found.keys() & of_file.keys()
        found |= of_file
    assert found == {place: [one[2] for one in sorted(rows)] for place, rows in wanted.items()}


def test_the_inputs_of_a_program_are_in_the_order_of_sparks_sources(on_local: Location) -> None:
    for number, name in ((0, "orders"), (1, "clicks"), (10, "last"), (2, "users")):
        entry = {"path": f"file:///tmp/x/empty/{name}/0.json", "timestamp": 1, "batchId": 0}
        on_local.put(f"sources/{number}/0", f"v1\n{json.dumps(entry)}".encode())

    assert scratch_query.inputs_in_order(on_local) == ["orders", "clicks", "users", "last"]
