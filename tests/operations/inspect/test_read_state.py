"""`state`: typed rows of savepoints, compared with what the queries' input says."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from savepoints.checkpoint.small_files import Skeleton
from savepoints.errors import (
    IncompatibleError,
    TargetExistsError,
    UsageError,
    VerificationError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.model import Savepoint
from savepoints.operations.inspect import read_state
from savepoints.state.typed import to_json
from tests.samples import contents, files_of, saved, take, unpack, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.drawn(8)

KEYS = 5


def arrived(files: int) -> pd.DataFrame:
    """The rows of the first files of every sample; see data/make_checkpoints.py."""
    return pd.DataFrame(
        {"k": key, "v": 100 * number + key} for number in range(files) for key in range(KEYS)
    )


def at(second: int) -> str:
    return f"1970-01-01T00:{second // 60:02d}:{second % 60:02d}.000000Z"


def rows_of(frame: DataFrame) -> list[Any]:
    """The rows without their place, in an order of their own."""
    lines = to_json.json_lines(frame.drop("partition_id"), 1000)
    return sorted((json.loads(line) for line in lines), key=json.dumps)


def expected(rows: Iterable[Any]) -> list[Any]:
    return sorted(rows, key=json.dumps)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with savepoints of the samples, made when they are first asked for."""
    root = tmp_path_factory.mktemp("samples") / "store"
    root.mkdir()
    return Store.at(str(root)).make()


def chosen(store: Store, sample: str) -> list[tuple[str, str, str | None]]:
    taken = saved(store, sample)
    return [(one.kind, one.store, one.name) for one in read_state.variables(store, taken)]


def test_what_can_be_read_is_known_without_spark(samples: Store) -> None:
    assert chosen(samples, "rocksdb") == [("rows", "default", None)]
    assert chosen(samples, "transform_with_state") == [
        ("map", "default", "counts"),
        ("list", "default", "seen"),
        ("value", "default", "total"),
        ("timers", "default", "timers"),
    ]
    assert chosen(samples, "join") == chosen(samples, "join_3") == [
        ("side", "left-keyWithIndexToValue", "left"),
        ("side", "right-keyWithIndexToValue", "right"),
        ("store", "left-keyWithIndexToValue", None),
        ("store", "left-keyToNumValues", None),
        ("store", "right-keyWithIndexToValue", None),
        ("store", "right-keyToNumValues", None),
    ]  # fmt: skip
    assert chosen(samples, "join_4")[0] == ("side", "left-keyWithTsToValues", "left")
    assert chosen(samples, "limit") == [("rows", "default", None)] * 2
    assert chosen(samples, "two_sources") == []


@pytest.mark.parametrize(
    ("sample", "wanted", "problem", "hint"),
    [
        ("limit", {}, "several kinds", "--operator 0; --operator 1"),
        ("limit", {"operator": 2}, "no state that matches", "--operator 0; --operator 1"),
        (
            "join",
            {},
            "several kinds",
            "--operator 0 --variable left; --operator 0 --variable right",
        ),
        ("join", {"variable": "middle"}, "no state that matches", "--variable left"),
        (
            "join",
            {"state_store": "x"},
            "no state that matches",
            "--state-store left-keyToNumValues",
        ),
        (
            "transform_with_state",
            {"operator": 0},
            "several kinds",
            "--operator 0 --variable timers",
        ),
        (
            "two_sources",
            {},
            "has no state",
            "show the offsets and outputs: savepoints show",
        ),
    ],
)
def test_it_must_be_clear_which_state_is_meant(
    sample: str, wanted: dict[str, Any], problem: str, hint: str, samples: Store
) -> None:
    saved(samples, sample)

    with (
        pytest.raises(UsageError, match=problem) as refused,
        read_state.read_state(samples, "latest", query=sample, **wanted),
    ):
        pass

    assert hint in refused.value.hint


def test_a_store_of_a_join_can_be_chosen(samples: Store) -> None:
    taken = saved(samples, "join")
    found = read_state.variables(samples, taken)

    one = read_state.choose(taken, found, 0, state_store="left-keyToNumValues")
    side = read_state.choose(taken, found, variable="left")

    assert (one.kind, one.name, side.kind) == ("store", None, "side")


def test_a_savepoint_without_its_metadata_is_damaged(
    on_local: Location, local_store: Store
) -> None:
    taken = take(local_store, unpack("rocksdb", on_local / "checkpoint"))
    file = next(
        one for one in local_store.manifest(taken.id).native if one.path.endswith("/metadata")
    )
    local_store.root.delete([file.stored_at])

    with pytest.raises(VerificationError, match=file.stored_at):
        read_state.variables(local_store, taken)


def test_a_target_that_exists_is_refused(place: Location) -> None:
    place.put("a.parquet", b"a file")
    place.put("b.parquet/part-0", b"a directory")

    for name in ("a.parquet", "b.parquet"):
        with pytest.raises(TargetExistsError, match=name):
            read_state.free_target(str(place / name))
    assert read_state.free_target(str(place / "c.parquet")) == (place / "c.parquet").uri


def totals(files: int) -> list[Any]:
    """What `groupBy("k").agg(count, sum)` has after so many files."""
    return expected(
        {"key": {"k": key}, "value": {"count": len(values), "sum": int(values.sum())}}
        for key, values in arrived(files).groupby("k")["v"]
    )


@pytest.mark.spark
@pytest.mark.parametrize(
    ("sample", "batch"),
    [
        ("rocksdb", 0),
        ("rocksdb", 3),
        ("changelog", 2),
        ("hdfs", 1),
        ("hdfs_snapshot", 3),
        ("format_2_changelog", 3),
        ("offset_log_2", 0),
    ],
)
def test_totals_are_those_of_the_input(
    sample: str, batch: int, samples: Store, spark: SparkSession
) -> None:
    taken = saved(samples, sample, batch)

    with read_state.read_state(samples, taken.id) as frame:
        assert frame.columns == ["key", "value", "partition_id"]
        assert {row.partition_id for row in frame.collect()} == {0, 1}
        assert rows_of(frame) == totals(batch + 1)


@pytest.mark.spark
def test_state_without_keys_or_values_has_no_such_column(
    samples: Store, spark: SparkSession
) -> None:
    saved(samples, "grand_total"), saved(samples, "limit")
    everything = [{"key": {"k": row.k, "v": row.v}} for row in arrived(2).itertuples()]

    with read_state.read_state(samples, "latest", query="grand_total") as frame:
        assert rows_of(frame) == [{"value": {"count": 2 * KEYS}}]
    with read_state.read_state(samples, "latest", query="limit", operator=0) as frame:
        assert rows_of(frame) == [{"value": {"value": 8}}]
    with read_state.read_state(samples, "latest", query="limit", operator=1) as frame:
        assert rows_of(frame) == expected(everything)


@pytest.mark.spark
def test_times_of_keys_and_windows(samples: Store, spark: SparkSession) -> None:
    keys, sessions = saved(samples, "watermark"), saved(samples, "session")
    # What the watermark has passed is no longer kept.
    new = [row for row in arrived(4).itertuples() if 1000 * row.v > keys.cut.watermark_ms]
    open_sessions = [
        row for row in arrived(2).itertuples() if 1000 * (row.v + 30) > sessions.cut.watermark_ms
    ]

    with read_state.read_state(samples, keys.id) as frame:
        assert rows_of(frame) == expected({"key": {"k": row.k, "at": at(row.v)}} for row in new)
    with read_state.read_state(samples, sessions.id) as frame:
        assert rows_of(frame) == expected(
            {
                "key": {"k": row.k, "sessionStartTime": at(row.v)},
                "value": {
                    "session_window": {"start": at(row.v), "end": at(row.v + 30)},
                    "k": row.k,
                    "sum": row.v,
                },
            }
            for row in open_sessions
        )
    assert len(new) == len(open_sessions) == KEYS


def buffered(sample: str, side: str) -> list[Any]:
    """What one side of the joins has to keep, after one file or, in time, after two."""
    if sample == "join":
        other = {"left": "v", "right": "w"}[side]
        rows = [{"k": row.k, other: row.v} for row in arrived(1).itertuples()]
    elif side == "left":
        rows = [{"k": row.k, "v": row.v, "at": at(row.v)} for row in arrived(2)[KEYS:].itertuples()]
    else:
        rows = [{"k2": row.k, "at2": at(row.v)} for row in arrived(2)[KEYS:].itertuples()]
    return expected(
        {"key": {"field0": next(iter(row.values()))}, "value": {**row, "matched": True}}
        for row in rows
    )


@pytest.mark.spark
@pytest.mark.parametrize("sample", ["join", "join_3", "join_4"])
def test_both_sides_of_a_join(sample: str, samples: Store, spark: SparkSession) -> None:
    taken = saved(samples, sample)

    for side in ("left", "right"):
        with read_state.read_state(samples, taken.id, variable=side) as frame:
            assert rows_of(frame) == buffered(sample, side)
    store = "left-tsWithKey" if sample == "join_4" else "left-keyToNumValues"
    with read_state.read_state(samples, taken.id, state_store=store) as frame:
        assert {row.key.field0 for row in frame.collect()} == set(range(KEYS))


@pytest.mark.spark
def test_sides_are_those_that_spark_itself_gives(
    samples: Store, on_local: Location, spark: SparkSession
) -> None:
    taken = saved(samples, "join_3")
    skeleton = Skeleton(on_local.uri, 2, {})
    write(on_local, {path: skeleton.changed(path, d) for path, d in files_of("join_3").items()})

    def collected(frame: DataFrame) -> list[Any]:
        # Not as JSON: with `joinSide` Spark hides `matched` from the schema, but leaves it in the
        # row, which `to_json` stumbles over.
        return sorted(repr(row.asDict(recursive=True)) for row in frame.collect())

    for side in ("left", "right"):
        source = spark.read.format("statestore").option("joinSide", side).load(str(on_local))
        with read_state.read_state(samples, taken.id, variable=side) as frame:
            given = frame.withColumn("value", frame["value"].dropFields("matched"))
            assert collected(given) == collected(source) != []


@pytest.mark.spark
def test_variables_and_timers_of_a_processor(samples: Store, spark: SparkSession) -> None:
    taken = saved(samples, "transform_with_state")
    # The watermark begins at 0, so the row of that time is late.
    rows = arrived(2).query("v > 0")
    by_key = {int(key): list(values) for key, values in rows.groupby("k")["v"]}
    digits = rows.assign(digit=rows["v"] // 100 % 3).groupby(["k", "digit"]).size()

    def read(variable: str) -> list[Any]:
        with read_state.read_state(samples, taken.id, variable=variable) as frame:
            return rows_of(frame)

    assert read("total") == expected(
        {"key": {"k": key}, "value": {"s": sum(seen)}} for key, seen in by_key.items()
    )
    assert read("seen") == expected(
        {"key": {"k": key}, "position": position, "value": {"v": value}}
        for key, seen in by_key.items()
        for position, value in enumerate(seen)
    )
    assert read("counts") == expected(
        {"key": {"k": key}, "map_key": {"digit": digit}, "value": {"n": n}}
        for (key, digit), n in digits.items()
    )
    assert read("timers") == expected(
        {"key": {"k": row.k}, "fires_at_ms": 1000 * (row.v + 60)}
        for row in rows.itertuples()
        if 1000 * (row.v + 60) > taken.cut.watermark_ms
    )


@pytest.mark.spark
def test_rows_are_chosen_by_key_and_by_expression(samples: Store, spark: SparkSession) -> None:
    taken, sessions = saved(samples, "rocksdb", 3), saved(samples, "session")

    def read(one: Savepoint, **wanted: Any) -> list[Any]:
        with read_state.read_state(samples, one.id, **wanted) as frame:
            return rows_of(frame)

    all_of_them = totals(4)
    assert read(taken, key={"k": "3"}) == [all_of_them[3]]
    assert read(taken, key={"k": "77"}) == []
    assert read(taken, where="key.k > 1 AND value.sum < 612") == [all_of_them[2]]
    assert read(taken, key={"k": "3"}, where="value.count = 5") == []
    (one,) = read(sessions, key={"sessionStartTime": "1970-01-01 00:01:42"})
    assert one["key"]["k"] == 2
    assert len(read(sessions, where="key.sessionStartTime > '1970-01-01T00:01:42Z'")) == 2


@pytest.mark.spark
@pytest.mark.parametrize(
    ("sample", "wanted", "problem", "hint"),
    [
        ("rocksdb", {"key": {"customer": "1"}}, "no field 'customer'", "its fields: k"),
        ("rocksdb", {"key": {"k": "three"}}, "'three' is not a valid bigint", "--where"),
        ("grand_total", {"key": {"k": "3"}}, "no field 'k'", "this state has no key"),
        ("rocksdb", {"where": "key.j > 1"}, "FIELD_NOT_FOUND", "key.k, value.count, value.sum"),
        ("rocksdb", {"where": "key.k >"}, "PARSE_SYNTAX_ERROR", "the columns are key.k"),
        ("rocksdb", {"where": "sum(key.k) > 1"}, "--where 'sum", "the columns are key.k"),
    ],
)
def test_a_choice_of_rows_that_makes_no_sense_is_refused(
    sample: str,
    wanted: dict[str, Any],
    problem: str,
    hint: str,
    samples: Store,
    spark: SparkSession,
) -> None:
    taken = saved(samples, sample)

    with (
        pytest.raises(UsageError, match=problem) as refused,
        read_state.read_state(samples, taken.id, **wanted),
    ):
        pass

    assert hint in refused.value.hint
    assert "\n" not in refused.value.message
    assert samples.root.list("scratch") == []


@pytest.mark.spark
def test_an_expression_that_fails_on_a_row_is_the_users(
    samples: Store, spark: SparkSession
) -> None:
    taken = saved(samples, "rocksdb", 3)

    with (
        pytest.raises(UsageError, match="DIVIDE_BY_ZERO"),
        read_state.read_state(samples, taken.id, where="1 / key.k > 0") as frame,
    ):
        to_json.json_lines(frame, 10)


@pytest.mark.spark
def test_reading_changes_nothing_and_leaves_nothing(samples: Store, spark: SparkSession) -> None:
    taken = saved(samples, "changelog", 2)
    before = contents(samples.root)

    with (
        read_state.read_state(samples, taken.id) as one,
        read_state.read_state(samples, taken.id) as other,
        read_state.read_state(samples, taken.id) as third,
    ):
        assert rows_of(third) == rows_of(one)
        during = {info.path.split("/")[1] for info in samples.root.list("scratch")}
        assert len(during) == 3
        assert rows_of(other) == rows_of(one)
    with pytest.raises(ZeroDivisionError), read_state.read_state(samples, taken.id):
        raise ZeroDivisionError

    assert contents(samples.root) == before
    with pytest.raises(IncompatibleError, match="Spark cannot read"):
        rows_of(one)


@pytest.mark.spark
def test_a_canonical_savepoint_is_read_like_any_other(
    on_local: Location, local_store: Store, spark: SparkSession
) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    taken = local_store.create(
        checkpoint=str(checkpoint), query="totals", forms=("canonical",)
    ).execute()

    with read_state.read_state(local_store, taken.id) as frame:
        assert rows_of(frame) == totals(4)

    assert local_store.root.list("scratch") == []


@pytest.mark.spark
def test_a_damaged_savepoint_is_named_and_leaves_nothing(
    on_local: Location, local_store: Store, spark: SparkSession
) -> None:
    taken = take(local_store, unpack("rocksdb", on_local / "checkpoint"))
    sst = next(one for one in local_store.manifest(taken.id).native if one.path.endswith(".sst"))
    local_store.root.delete([sst.stored_at])

    with (
        pytest.raises(VerificationError, match=sst.stored_at),
        read_state.read_state(local_store, taken.id),
    ):
        pass

    assert local_store.root.list("scratch") == []


@pytest.mark.spark
def test_rows_on_s3_can_be_written_as_parquet(
    world: LocalWorld, world_environment: dict[str, str], spark: SparkSession
) -> None:
    world.create_bucket("state")
    place = Location.of("s3://state")
    store = Store.at(str(place / "store")).make()
    taken = take(store, unpack("hdfs", place / "checkpoint"))
    target = read_state.free_target(str(place / "rows.parquet"))

    with read_state.read_state(store, taken.id, where="key.k < 3") as frame:
        assert to_json.write_parquet(frame, target) == 3
        with pytest.raises(TargetExistsError):
            to_json.write_parquet(frame, target)

    assert rows_of(spark.read.parquet(target.hadoop)) == totals(4)[:3]
    assert store.root.list("scratch") == []


@pytest.mark.spark
def test_names_twice_nulls_and_buffers(
    on_local: Location, local_store: Store, spark: SparkSession
) -> None:
    from pyspark.sql import functions as F

    source = Path(str(on_local)) / "input"
    source.mkdir()
    (source / "0.json").write_text('{"k": null, "v": 7}\n{"k": "\u00e4", "v": 8}\n')
    (
        spark.readStream.schema("k string, v long")
        .json(str(source))
        .groupBy("k")
        .agg(
            F.collect_list("v"),
            F.collect_set("v"),
            F.max(F.col("v").cast("decimal(38,10)") / 3),
        )
        .writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", str(on_local / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    taken = take(local_store, on_local / "checkpoint")

    with read_state.read_state(local_store, taken.id) as frame:
        found = rows_of(frame)
        (null,) = rows_of(frame.where("key.k IS NULL"))
        assert frame.select("value.buf_2").count() == 2
    with read_state.read_state(local_store, taken.id, key={"k": "\u00e4"}) as frame:
        assert rows_of(frame) == [one for one in found if one != null]

    assert [list(one["value"]) for one in found] == [["buf", "buf_2", "max"]] * 2
    assert null["value"]["max"] == "2.3333333333"
    # An UnsafeArray of one long: 8 bytes for the number of elements, of nulls, and the element.
    assert base64.b64decode(null["value"]["buf"]).endswith((7).to_bytes(8, "little"))
