"""Rows of state stores made of rows that people give, beside those that Spark's queries keep."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.evolution import program_layout
from savepoints.checkpoint.logs.offset_log import PARTITIONS_KEY, PROVIDER_KEY
from savepoints.checkpoint.state.operators import HDFS_PROVIDER
from savepoints.io import Location
from savepoints.state.seed import given, visible
from savepoints.state.seed.stores import SeededState
from savepoints.state.storage import canonical_table
from savepoints.state.typed import typed
from tests.draw import some
from tests.fidelity import local_files, pandas_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

_WITH_BOTH = "applyInPandasWithState"
# Both zeros, each beside a key of its own; a pair, for what is inside of a struct.
_ZERO = "(v - 2.5D) * 0D"


def _aggregate(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    known = F.expr("coalesce(v, 0L)")  # Never null, and so what is made of it.
    inside = F.struct(known.alias("a"), F.array(known).alias("many"))
    return events.groupBy("f", "pair", inside).agg(F.count("*").alias("n"))


def _session(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return events.groupBy(F.session_window("t", "4 seconds"), "f", "k").agg(F.count("*"))


def _join(left: DataFrame, right: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    near = F.expr("f = f2 AND k = k2 AND t2 BETWEEN t AND t + INTERVAL 3 SECONDS")
    return left.drop("pair").join(right.selectExpr("f AS f2", "k AS k2", "t AS t2"), near)


def _pandas(events: DataFrame) -> DataFrame:
    keyed = events.selectExpr("f AS k", "v", "t").groupBy("k")
    columns = ("k double, n long, s long", "n long, s long")
    return keyed.applyInPandasWithState(
        pandas_state.PANDAS["NoTimeout"], *columns, "append", "NoTimeout"
    )


_QUERIES: dict[str, tuple[Callable[..., DataFrame], str]] = {
    "stateStoreSave": (_aggregate, "update"),
    "sessionWindowStateStoreSaveExec": (_session, "append"),
    "symmetricHashJoin": (_join, "append"),
    "dedupe": (lambda events: events.dropDuplicates(["f", "pair"]), "append"),
    "dedupeWithinWatermark": (lambda events: events.dropDuplicatesWithinWatermark(["f"]), "append"),
    _WITH_BOTH: (_pandas, "append"),
}


def ran(spark: SparkSession, operator: str, place: Path) -> Location:
    """Run a query over a batch of events, and return its checkpoint."""
    session = spark.newSession()
    for key, value in {
        PARTITIONS_KEY: "1",
        PROVIDER_KEY: HDFS_PROVIDER,
        **local_files.CONF,
    }.items():
        session.conf.set(key, value)
    (place / "events").mkdir()
    lines = [
        json.dumps({"k": f"k{v % 2}", "v": v, "t": f"2026-11-20T10:00:0{v}Z"}) for v in range(6)
    ]
    (place / "events" / "0.json").write_text("\n".join(lines))
    reader = session.readStream.schema("k string, v long, t timestamp")
    build, mode = _QUERIES[operator]
    events = [
        reader.json(str(place / "events"))
        .withWatermark("t", "10 seconds")
        .selectExpr("*", f"{_ZERO} AS f", f"named_struct('z', {_ZERO}, 'k', k) AS pair")
        for _ in range(1 + (operator == "symmetricHashJoin"))
    ]
    running = (
        build(*events)
        .writeStream.outputMode(mode)
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .format("noop")
        .start()
    )
    assert running.awaitTermination(120)
    return Location.of(str(place / "checkpoint"))


def rows(found: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, found.select("key_hash", "key_bytes", "value_bytes").collect()))


def negative(frame: DataFrame) -> DataFrame:
    """Return rows with -0.0 for each floating-point number."""
    from pyspark.sql import functions as F

    text = frame.schema.json()
    for name in frame.columns:
        for field in getattr(frame.schema[name].dataType, "fields", ()):
            path = F.col(name)[field.name]
            if field.dataType.typeName() == "double":
                frame = frame.withColumn(name, F.col(name).withField(field.name, -path))
            elif field.name == "pair":
                frame = frame.withColumn(name, F.col(name).withField("pair.z", -path["z"]))
    assert frame.schema.json() == text
    return frame


@pytest.mark.parametrize("operator", some(2, _QUERIES, "zero"))
def test_trap_a_zero_of_another_sign_is_another_key(
    operator: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Spark would never find its row; only functions over groups keep -0.0 as a key."""
    checkpoint = ran(spark, operator, tmp_path)
    files = read_cut(checkpoint)
    own = typed.reading_session(spark, files.cut)
    (state,) = files.operator_states
    (shape,) = program_layout.read(checkpoint, files.conf)
    path = "state/0/_metadata/metadata"
    variables = [
        one
        for one in typed.variables(checkpoint.get(path), path, files.conf)
        if one.kind != "store"
    ]
    truth = canonical_table.rows_of_checkpoint(own, checkpoint, files)
    seeds = []
    for one in variables:
        seen = visible.of(one, shape)
        found = typed.read_variable(own, checkpoint.uri, files.cut.batch_id, one)
        # Files say of everything that it may be null.
        found.write.parquet(str(tmp_path / str(one.name)))
        found = own.read.parquet(str(tmp_path / str(one.name)))
        bound = given.bound(found, seen)
        seeds.append((seen, bound if operator == _WITH_BOTH else negative(bound)))

    made = SeededState(own, {0: shape}, {0: seeds})

    for store in state.stores:
        expected = rows(truth.where(f"store_name = '{store}'"))
        seeded = rows(made.rows_of(state, store))
        assert expected
        if store.endswith("keyWithIndexToValue"):
            # Its values are events, whose floating-point numbers stay as they are.
            assert [one[:2] for one in seeded] == [one[:2] for one in expected]
        else:
            assert seeded == expected
