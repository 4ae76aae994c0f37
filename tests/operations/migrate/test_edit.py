"""`edit`: what becomes of the rows of samples, compared with what the queries' input says."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from savepoints import faults
from savepoints.errors import (
    IncompatibleError,
    NativeOnlyError,
    NotFoundError,
    SavepointsError,
    UsageError,
    VerificationError,
)
from savepoints.handle import Store
from savepoints.model import Edit, Savepoint
from savepoints.operations.inspect import read_state
from savepoints.operations.inspect.diff import diff
from savepoints.operations.inspect.verify import verify
from savepoints.operations.migrate import edit
from savepoints.operations.savepoint import export
from savepoints.state.change.edit import StateEdit
from savepoints.state.typed import to_json
from tests import draw
from tests.operations.exported import as_exported
from tests.operations.inspect.test_read_state import arrived
from tests.samples import saved

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.drawn(16)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with savepoints of the samples, made when they are first asked for."""
    root = tmp_path_factory.mktemp("samples") / "store"
    root.mkdir()
    return Store.at(str(root)).make()


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store whose savepoints only say that they have canonical rows; nobody reads them."""
    root = tmp_path_factory.mktemp("planned") / "store"
    root.mkdir()
    return Store.at(str(root)).make()


def exported(store: Store, sample: str) -> Savepoint:
    known = [one for one in store.catalog.all() if one.query == sample and one.edit is None]
    one = known[0] if known else saved(store, sample)
    if one.forms == ("native",):
        return export.execute(export.plan(store, one.id), store)
    return one


def rows_of(store: Store, savepoint: Savepoint, **chosen: Any) -> list[dict[str, Any]]:
    """Rows as Spark itself reads them in a restored checkpoint, in an order of their own."""
    with read_state.read_state(store, savepoint.id, **chosen) as frame:
        lines = to_json.json_lines(frame.drop("partition_id"), 1000)
    return sorted((json.loads(line) for line in lines), key=json.dumps)


SET = StateEdit("k = 1", ("sum = 0",))


@pytest.mark.parametrize(
    ("sample", "change", "chosen", "problem", "hint"),
    [
        ("join", SET, {"variable": "left"}, "number, and finds", "replaying the events"),
        (
            "join",
            SET,
            {"variable": "right"},
            "a join stores each row under",
            "replaying the events",
        ),
        ("transform_with_state", SET, {"variable": "timers"}, "stored twice", "state"),
        (
            "transform_with_state",
            StateEdit("k = 1", delete=True),
            {"variable": "seen"},
            "rows of operator 0 .*, seen cannot be removed by hand: list elements",
            "--set",
        ),
    ],
)
def test_what_would_make_the_state_inconsistent_is_refused(
    sample: str, change: StateEdit, chosen: dict[str, Any], problem: str, hint: str, planned: Store
) -> None:
    as_exported(planned, saved(planned, sample))
    before = [one.id for one in planned.catalog.all()]

    with pytest.raises(IncompatibleError, match=problem) as refused:
        edit.plan(planned, "latest", change, reason="x", query=sample, **chosen)

    assert hint in refused.value.hint
    assert [one.id for one in planned.catalog.all()] == before


@pytest.mark.parametrize(
    ("change", "reason", "problem"),
    [
        (StateEdit("k = 1"), "x", "either set fields or delete rows"),
        (
            StateEdit("k = 1", ("sum = 0",), delete=True),
            "x",
            "either set fields or delete rows",
        ),
        (
            StateEdit("k = 1", ("sum = 0",), function=lambda batch: batch),
            "x",
            "either set fields or delete rows",
        ),
        (StateEdit(None, delete=True), "x", "--delete needs a condition"),
        (SET, " ", "a reason is required"),
    ],
)
def test_a_change_must_say_what_and_why(
    change: StateEdit, reason: str, problem: str, planned: Store
) -> None:
    as_exported(planned, saved(planned, "rocksdb"))

    with pytest.raises(UsageError, match=problem):
        edit.plan(planned, "latest", change, reason=reason, query="rocksdb")


def test_what_can_have_no_rows_is_refused(planned: Store) -> None:
    half = as_exported(planned, saved(planned, "limit"))
    with pytest.raises(NativeOnlyError, match=r"operator 0 \(globalLimit\) has no canonical form"):
        edit.plan(planned, half.id, StateEdit("true", delete=True), reason="x", operator=1)


def totals(files: int) -> dict[int, int]:
    """What the samples sum up, by key."""
    found: dict[int, int] = arrived(files).groupby("k")["v"].sum().to_dict()
    return found


def as_rows(sums: dict[int, int], files: int) -> list[dict[str, Any]]:
    """Totals as state rows; each key comes once a file."""
    return sorted(
        ({"key": {"k": k}, "value": {"count": files, "sum": total}} for k, total in sums.items()),
        key=json.dumps,
    )


@pytest.mark.spark
@draw.taking_turns("rows of no export removed", "variables of transformWithState edited")
@pytest.mark.parametrize("sample", ["rocksdb", "hdfs"])
def test_one_row_is_set_and_everything_else_stays(
    sample: str, samples: Store, spark: SparkSession
) -> None:
    origin = exported(samples, sample)
    files = origin.cut.batch_id + 1
    sums = totals(files)
    assert rows_of(samples, origin) == as_rows(sums, files)
    change = StateEdit("k = 1 and value.sum > 0", ("sum = value.sum - 7",))

    plan = edit.plan(samples, origin.id, change, reason="ticket 1")
    made = edit.execute(plan, samples, change)

    assert (plan.rows, plan.rows_chosen, plan.rows_changed) == (5, 1, 1)
    assert [dataclasses.asdict(one) for one in plan.sample] == [
        {
            "difference": "changed",
            "row": {"key": {"k": 1}},
            "before": {"value": {"count": files, "sum": sums[1]}},
            "after": {"value": {"count": files, "sum": sums[1] - 7}},
        }
    ]
    assert rows_of(samples, made) == as_rows({**sums, 1: sums[1] - 7}, files)
    assert rows_of(samples, origin) == as_rows(sums, files)
    assert verify(samples, made.id, depth="deep").findings == ()
    found = diff(samples, origin.id, made.id)
    assert not found.offsets
    assert not any(one.differs for one in (found.batch_id, found.watermark_ms))
    (of_state,) = found.variables
    assert (of_state.rows.added, of_state.rows.removed, of_state.rows.changed) == (0, 0, 1)
    assert of_state.rows.sample == plan.sample
    assert (made.parent, made.forms, made.cut) == (origin.id, ("canonical",), origin.cut)
    assert made.operators[0].content_hash != origin.operators[0].content_hash
    assert made.edit is not None
    assert made.edit == Edit(
        made.edit.by, "ticket 1", 0, None, change.where, change.assignments, None, 1, 0
    )
    events = [one for one in samples.events.all() if one.savepoint == made.id]
    (event,) = [one for one in events if one.verb == "edit"]
    assert (event.result, event.rows) == ("done", 1)
    assert event.parameters["reason"] == "ticket 1"
    assert edit.execute(plan, samples, change) == made
    assert samples.manifest(made.id).savepoint == samples.catalog.find(made.id) == made


@pytest.mark.spark
@pytest.mark.parametrize("sample", ["rocksdb", "hdfs"])
def test_rows_are_removed_of_a_savepoint_that_nobody_exported(
    sample: str, local_store: Store, spark: SparkSession
) -> None:
    samples, origin = local_store, saved(local_store, sample)
    assert origin.forms == ("native",)
    files = origin.cut.batch_id + 1
    sums = totals(files)

    made = (
        samples.savepoint(origin.id)
        .edit(StateEdit("k in (2, 3)", delete=True), reason="x")
        .execute()
    )

    assert rows_of(samples, made) == as_rows(
        {k: v for k, v in sums.items() if k not in (2, 3)}, files
    )
    assert made.edit is not None
    assert (made.edit.rows_changed, made.edit.rows_removed) == (0, 2)
    none = samples.savepoint(origin.id).edit(StateEdit("true", delete=True), reason="x").execute()
    assert rows_of(samples, none) == []
    assert verify(samples, none.id, depth="deep").findings == ()


def halve(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Halve the sums of even keys."""
    import pyarrow as pa

    sums = [row["value"]["sum"] // (1 if row["key"]["k"] % 2 else 2) for row in batch.to_pylist()]
    counts: Any = batch.column("value")
    parts = [counts.field("count"), pa.array(sums, pa.int64())]
    value = pa.StructArray.from_arrays(parts, names=["count", "sum"])
    return pa.RecordBatch.from_arrays([batch.column("key"), value], names=["key", "value"])


@pytest.mark.spark
def test_a_function_changes_values(samples: Store, spark: SparkSession) -> None:
    origin = exported(samples, "rocksdb")
    files = origin.cut.batch_id + 1
    sums = totals(files)

    made = (
        samples.savepoint(origin.id).edit(StateEdit("k > 1", function=halve), reason="x").execute()
    )

    assert rows_of(samples, made) == as_rows(
        {k: v // 2 if k in (2, 4) else v for k, v in sums.items()}, files
    )
    assert made.edit is not None
    assert (made.edit.function, made.edit.rows_changed) == ("halve", 2)


def fewer(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.slice(1)


def other_keys(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    return batch.take(pa.array(range(batch.num_rows)[::-1], pa.int64()))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("change", "error", "problem"),
    draw.some(
        4,
        [
            (
                StateEdit("k = 99", ("sum = 0",)),
                NotFoundError,
                r"no row matches: k = 99 .5 rows checked",
            ),
            (
                StateEdit("k = 1", ("sum = sum",)),
                NotFoundError,
                "already have these values",
            ),
            (
                StateEdit("true", ("sum = 0",)),
                UsageError,
                "5 of 5 rows would be updated, more than the limit of 3",
            ),
            (
                StateEdit("true", delete=True),
                UsageError,
                "5 of 5 rows would be removed, more than the limit of 3",
            ),
            (StateEdit("k = 1", ("k = 2",)), UsageError, "identifies the row, so"),
            (StateEdit("k = 1", ("key.k = 2",)), UsageError, "identifies the row, so"),
            (StateEdit("k = 1", ("total = 2",)), UsageError, "no column 'total'"),
            (StateEdit("k = 1", ("sum",)), UsageError, "is not in the form FIELD=SQL"),
            (
                StateEdit("k = 1", ("sum = 1", "value.sum = 2")),
                UsageError,
                "set by two --set options",
            ),
            (StateEdit("k + 1", ("sum = 1",)), UsageError, "a condition must return true or false"),
            (StateEdit("nobody = 1", ("sum = 1",)), UsageError, "nobody"),
            (StateEdit("k = 1", ("sum = nobody",)), UsageError, "nobody"),
            (StateEdit("k = 1", ("sum = 0.5",)), IncompatibleError, "cannot hold 0.5"),
            (
                StateEdit("k = 1", ("sum = '1'",)),
                UsageError,
                "'1' is text, but the field is of type bigint",
            ),
            (
                StateEdit("rand() < 2", ("sum = 1",)),
                UsageError,
                "where 'rand.* is not deterministic",
            ),
            (StateEdit("k = 1", ("sum = 9 * rand()",)), UsageError, "is not deterministic"),
            (StateEdit("k = 1", ("sum = sum / 0",)), IncompatibleError, "DIVIDE_BY_ZERO"),
            (StateEdit("k = 1", function=fewer), IncompatibleError, "returned 0 rows instead of 1"),
            (StateEdit("k < 2", function=other_keys), IncompatibleError, "changed key"),
        ],
        "refused edits",
    ),
)
def test_what_is_not_exact_is_refused_and_nothing_is_written(
    change: StateEdit,
    error: type[SavepointsError],
    problem: str,
    samples: Store,
    spark: SparkSession,
) -> None:
    origin = exported(samples, "rocksdb")
    before = [one.id for one in samples.catalog.all()]

    with pytest.raises(error, match=problem) as refused:
        edit.plan(samples, origin.id, change, reason="x", at_most=3)

    assert refused.value.hint
    assert [one.id for one in samples.catalog.all()] == before


@pytest.mark.spark
def test_sql_means_the_same_whatever_the_settings_say(samples: Store, spark: SparkSession) -> None:
    origin = exported(samples, "rocksdb")
    settings = {"spark.sql.ansi.enabled": "false", "spark.sql.session.timeZone": "Asia/Tokyo"}
    before = {name: str(spark.conf.get(name)) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        change = StateEdit("sum > 0", ("sum = sum + 9223372036854775807",))
        with pytest.raises(IncompatibleError, match="ARITHMETIC_OVERFLOW"):
            edit.plan(samples, origin.id, change, reason="x")
        change = StateEdit("k = 1", ("sum = unix_seconds(timestamp '1970-01-01 00:01:00')",))
        (row,) = edit.plan(samples, origin.id, change, reason="x").sample
        assert row.after is not None
        assert row.after["value"]["sum"] == 60
        assert {name: spark.conf.get(name) for name in settings} == settings
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("planned", "done"),
    [
        (StateEdit("k = 1", delete=True), StateEdit("k = 2", delete=True)),
        (StateEdit("true", ("sum = unix_micros(now())",)), None),
    ],
)
def test_as_many_other_rows_or_values_than_those_of_the_plan_are_refused(
    planned: StateEdit, done: StateEdit | None, samples: Store, spark: SparkSession
) -> None:
    origin = exported(samples, "rocksdb")
    plan = edit.plan(samples, origin.id, planned, reason="x")

    with pytest.raises(VerificationError, match="the change is not deterministic"):
        edit.execute(plan, samples, done or planned)

    assert all(one.id != plan.savepoint_id for one in samples.catalog.all())


@pytest.mark.spark
@draw.taking_turns("variables of transformWithState edited", "rows of no export removed")
@pytest.mark.parametrize(
    ("variable", "change", "repair"),
    draw.some(
        2,
        [
            (
                "total",
                StateEdit("k = 2", ("s = s + 100",)),
                lambda row: {**row, "value": {"s": row["value"]["s"] + 100}},
            ),
            ("total", StateEdit("k = 2", delete=True), lambda _: None),
            (
                "counts",
                StateEdit("k = 2 and map_key.digit >= 0", ("value.n = 77",)),
                lambda row: {**row, "value": {"n": 77}},
            ),
            ("counts", StateEdit("k = 2", delete=True), lambda _: None),
            (
                "seen",
                StateEdit("k = 2 and position = 1", ("v = -1",)),
                lambda row: row if row["position"] != 1 else {**row, "value": {"v": -1}},
            ),
        ],
        "variables",
    ),
)
def test_variables_of_transform_with_state(
    variable: str,
    change: StateEdit,
    repair: Callable[[dict[str, Any]], dict[str, Any] | None],
    samples: Store,
    spark: SparkSession,
) -> None:
    origin = exported(samples, "transform_with_state")
    before = rows_of(samples, origin, variable=variable)
    wanted = [repair(row) if row["key"] == {"k": 2} else row for row in before]
    expected = sorted((row for row in wanted if row is not None), key=json.dumps)
    assert expected != before

    made = samples.savepoint(origin.id).edit(change, reason="x", variable=variable).execute()

    assert rows_of(samples, made, variable=variable) == expected
    for other in {"total", "counts", "seen", "timers"} - {variable}:
        assert rows_of(samples, made, variable=other) == rows_of(samples, origin, variable=other)


@pytest.mark.spark
def test_sessions_keep_what_belongs_to_their_key(samples: Store, spark: SparkSession) -> None:
    origin = exported(samples, "session")
    before = rows_of(samples, origin)
    for assignment in ("session_window = null", "value.k = 9"):
        with pytest.raises(UsageError, match="identifies the row, so"):
            edit.plan(samples, origin.id, StateEdit("true", (assignment,)), reason="x")

    made = (
        samples.savepoint(origin.id)
        .edit(StateEdit("true", ("sum = sum + 1",)), reason="x")
        .execute()
    )

    expected = [
        {**row, "value": {**row["value"], "sum": row["value"]["sum"] + 1}} for row in before
    ]
    assert rows_of(samples, made) == expected
    assert verify(samples, made.id).findings == ()


@pytest.mark.spark
def test_keys_of_a_deduplication_can_be_forgotten(samples: Store, spark: SparkSession) -> None:
    origin = exported(samples, "watermark")
    before = rows_of(samples, origin)
    forgotten = before[0]["key"]["k"]
    with pytest.raises(UsageError, match="have only a key and no value"):
        edit.plan(samples, origin.id, StateEdit("true", ("x = 1",)), reason="x")

    change = StateEdit(f"k = {forgotten}", delete=True)
    made = samples.savepoint(origin.id).edit(change, reason="x").execute()

    assert rows_of(samples, made) == [row for row in before if row["key"]["k"] != forgotten]


class Killed(BaseException):
    """Stands for the death of the process: nothing catches it."""


@pytest.mark.spark
def test_stopped_anywhere_and_run_again_it_is_as_if_it_had_not_been(
    samples: Store, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = exported(samples, "rocksdb")
    files = origin.cut.batch_id + 1
    sums = totals(files)
    change = StateEdit("k = 4", ("sum = 0",))
    plan = edit.plan(samples, origin.id, change, reason="x")

    for point in ("edit.files", "edit.rows", "edit.manifest", "edit.catalog"):

        def reach(reached: str, point: str = point) -> None:
            if reached == point:
                raise Killed

        monkeypatch.setattr(faults, "reach", reach)
        with pytest.raises(Killed):
            edit.execute(plan, samples, change)
        found = [one for one in samples.catalog.all() if one.id == plan.savepoint_id]
        assert bool(found) == (point == "edit.catalog")

    monkeypatch.undo()
    made = edit.execute(plan, samples, change)

    assert rows_of(samples, made) == as_rows({**sums, 4: 0}, files)
    assert verify(samples, made.id).findings == ()
