"""`diff`: two savepoints, compared with what the queries' input says of them."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from savepoints.errors import IncompatibleError, UsageError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.operations.inspect.diff import (
    Diff,
    OffsetChange,
    OperatorChange,
    ValueChange,
    VariableDiff,
    diff,
)
from savepoints.spark.multiset import TypeChange
from savepoints.state.typed.compare import RowChange, VariableDifference
from savepoints.state.typed.typed import Variable
from savepoints.store.savepoint import manifest
from savepoints.store.savepoint.manifest import StoredFile
from tests.samples import saved, savepoint, take, unpack
from tests.shown import HOSTILE, assert_only_a_table, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.drawn(8)

KEYS = 5
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def totals(files: int) -> pd.DataFrame:
    """Count and sum by key after so many files; see data/make_checkpoints.py."""
    rows = pd.DataFrame({"k": k, "v": 100 * n + k} for n in range(files) for k in range(KEYS))
    return rows.groupby("k")["v"].agg(["count", "sum"])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store for savepoints of the samples, which each test takes itself."""
    root = tmp_path_factory.mktemp("diff") / "store"
    root.mkdir()
    return Store.at(str(root)).make()


def counts(found: tuple[VariableDiff, ...]) -> dict[str | None, tuple[int, int, int]]:
    return {
        one.variable.name: (one.rows.added, one.rows.removed, one.rows.changed) for one in found
    }


ROWS = Variable(0, "stateStoreSave", "rows")
SAME = Diff(
    savepoints=ValueChange("sp-1", "sp-2"),
    batch_id=ValueChange(3, 3),
    watermark_ms=ValueChange(5, 5),
    offsets=(),
    settings={PROVIDER: ValueChange("one", None)},
    operators_added=(),
    operators_removed=(),
    same_contents=(1,),
    variables=(VariableDiff(ROWS, VariableDifference(0, 0, 0, TypeChange("k int", "k2 int"), ())),),
)


@pytest.mark.parametrize(
    "other",
    [
        {"batch_id": ValueChange(3, 4)},
        {"watermark_ms": ValueChange(5, 6)},
        {"offsets": (OffsetChange(0, None, None, None, "1"),)},
        {"operators_added": (OperatorChange(2, "dedupe"),)},
        {"operators_removed": (OperatorChange(2, "dedupe"),)},
        {"variables": (*SAME.variables, VariableDiff(ROWS, VariableDifference(1, 0, 0, None, ())))},
        {"variables": (VariableDiff(ROWS, VariableDifference(0, 1, 0, None, ())), *SAME.variables)},
        {"variables": (VariableDiff(ROWS, VariableDifference(0, 0, 1, None, ())),)},
    ],
)
def test_everything_but_settings_and_names_counts(other: dict[str, Any]) -> None:
    assert SAME.equal
    assert not dataclasses.replace(SAME, **other).equal


def test_a_notebook_shows_both_side_by_side() -> None:
    found = dataclasses.replace(
        SAME,
        batch_id=ValueChange(3, 4),
        offsets=(OffsetChange(0, "orders", 1, 7, 1200), OffsetChange(1, None, None, None, "5")),
        operators_added=(OperatorChange(2, "dedupe"),),
        variables=(VariableDiff(ROWS, VariableDifference(1200, 0, 3, None, ())),),
    )

    assert read(found._repr_html_()).texts == [
        "differences between sp-1 and sp-2",
        "", "sp-1", "sp-2",
        "batch", "3", "4",
        "watermark, ms since 1970", "5", "5",
        "source 0, orders/1", "7", "1200",
        "source 1", "-", "5",
        f"setting {PROVIDER}", "one", "-",
        "operator 2 (dedupe) was added",
        "operator 1 has the same contents",
        "operator 0 (stateStoreSave): 1,200 rows added, 0 removed, 3 changed",
    ]  # fmt: skip
    same = read(SAME._repr_html_()).texts
    assert same[0] == "no difference between sp-1 and sp-2"
    assert same[-1].endswith("0 rows added, 0 removed, 0 changed, different columns")


@pytest.mark.parametrize("text", HOSTILE)
def test_a_notebook_shows_names_and_positions_as_text(text: str) -> None:
    found = dataclasses.replace(
        SAME,
        savepoints=ValueChange(text, text),
        offsets=(OffsetChange(0, text, 1, 7, 8), OffsetChange(1, None, None, text, text)),
        settings={text: ValueChange(text, text)},
        operators_added=(OperatorChange(2, text),),
        operators_removed=(OperatorChange(2, text),),
        variables=(VariableDiff(Variable(0, text, "list", name=text), SAME.variables[0].rows),),
    )
    page = found._repr_html_()

    assert_only_a_table(page)
    assert sum(text in one for one in read(page).texts) == 12


def test_trap_state_of_which_nothing_can_be_read_was_called_equal(store: Store) -> None:
    """Spark 3.5 does not say what there is; `compare` found no row that differs."""
    one, other = (saved(store, f"3.5_{provider}_totals") for provider in ("rocksdb", "hdfs"))

    with pytest.raises(IncompatibleError, match="the state of operator 0 in") as refused:
        diff(store, one.id, other.id)

    assert "--no-state" in refused.value.hint


@pytest.mark.spark
def test_two_batches_differ_by_what_arrived_between_them(store: Store, spark: SparkSession) -> None:
    first, last = saved(store, "rocksdb", 0), saved(store, "rocksdb", 3)

    found = diff(store, first.id, last.id)

    before, after = totals(1), totals(4)
    assert not found.equal
    assert found.batch_id == ValueChange(0, 3)
    assert found.offsets == (OffsetChange(0, None, None, '{"logOffset":0}', '{"logOffset":3}'),)
    assert (found.settings, found.operators_added, found.operators_removed) == ({}, (), ())
    assert counts(found.variables) == {None: (0, 0, KEYS)}
    assert found.variables[0].rows.sample == tuple(
        RowChange(
            "changed",
            {"key": {"k": key}},
            {"value": before.loc[key].to_dict()},
            {"value": after.loc[key].to_dict()},
        )
        for key in range(KEYS)
    )
    assert store.root.list("scratch") == []


@pytest.mark.spark
@pytest.mark.parametrize("other", ["changelog", "hdfs", "hdfs_snapshot", "format_2_changelog"])
def test_how_state_is_kept_is_no_difference(other: str, store: Store, spark: SparkSession) -> None:
    """Queries that have read the same, with other providers and formats."""
    one, same = saved(store, "rocksdb", 3), saved(store, other, 3)

    found = diff(store, one.id, same.id)
    back = diff(store, same.id, one.id)
    earlier = diff(store, same.id, saved(store, "rocksdb", 2).id)

    assert found.equal
    assert back.equal
    assert found.settings.keys() == ({PROVIDER} if other.startswith("hdfs") else set())
    assert counts(earlier.variables) == {None: (0, 0, KEYS)}


@pytest.mark.spark
def test_joins_of_two_formats_that_hold_the_same_are_equal(
    store: Store, spark: SparkSession
) -> None:
    three, four, two = (saved(store, sample) for sample in ("join_3", "join_4", "join"))

    found = diff(store, three.id, four.id)
    assert found.equal
    assert counts(found.variables) == {"left": (0, 0, 0), "right": (0, 0, 0)}

    # That of format 2 has read one file, and keeps other columns.
    other = diff(store, two.id, three.id, sample=0)
    assert counts(other.variables) == {"left": (KEYS, KEYS, 0), "right": (KEYS, KEYS, 0)}
    assert all(one.rows.layout and not one.rows.sample for one in other.variables)


@pytest.mark.spark
def test_variables_and_timers(store: Store, spark: SparkSession) -> None:
    first, last = (
        saved(store, "transform_with_state", 0), saved(store, "transform_with_state", 2)
    )  # fmt: skip

    found = diff(store, first.id, last.id, sample=100)

    # The row at time 0 is late, so key 0 comes with the second file.
    late, rest = (1, 0, 0), (0, 0, KEYS - 1)
    new = tuple(map(sum, zip(late, rest, strict=True)))
    assert found.watermark_ms == ValueChange(0, 94_000)
    assert counts(found.variables) == {
        "counts": (KEYS, 0, 0),
        "seen": new,
        "total": new,
        # The watermark has passed those of the first file, 60 seconds after their rows.
        "timers": (KEYS, KEYS - 1, 0),
    }
    seen = next(one for one in found.variables if one.variable.name == "seen")
    assert seen.rows.sample[1] == RowChange(
        "changed",
        {"key": {"k": 1}},
        {"value": [{"v": 1}]},
        {"value": [{"v": 1}, {"v": 101}]},
    )


@pytest.mark.spark
def test_state_without_keys_and_state_without_values(store: Store, spark: SparkSession) -> None:
    everything = diff(store, saved(store, "grand_total", 0).id, saved(store, "grand_total", 1).id)
    keys = diff(store, saved(store, "watermark", 0).id, saved(store, "watermark", 6).id)

    assert everything.variables[0].rows.sample == (
        RowChange("changed", {}, {"value": {"count": KEYS}}, {"value": {"count": 2 * KEYS}}),
    )
    # Of the first file only the row that is not late; the watermark has passed it since.
    assert counts(keys.variables) == {None: (KEYS, KEYS - 1, 0)}


def test_operators_that_only_one_has(store: Store) -> None:
    limit, keys = saved(store, "limit"), saved(store, "watermark")

    found = diff(store, limit.id, keys.id)

    assert found.operators_added == (OperatorChange(0, "dedupe"),)
    assert found.operators_removed == (
        OperatorChange(0, "globalLimit"),
        OperatorChange(1, "dedupe"),
    )
    assert not found.equal


@pytest.mark.spark
def test_one_operator_can_be_compared_alone(store: Store, spark: SparkSession) -> None:
    first, last = saved(store, "limit", 0), saved(store, "limit", 1)

    found = diff(store, first.id, last.id, operator=0)

    assert [one.variable.operator_id for one in found.variables] == [0]
    # The limit of 8 was reached in the second batch.
    assert found.variables[0].rows.sample == (
        RowChange("changed", {}, {"value": {"value": KEYS}}, {"value": {"value": 8}}),
    )
    with pytest.raises(UsageError, match="has an operator 7"):
        diff(store, first.id, last.id, operator=7)


def test_a_savepoint_is_equal_to_itself(store: Store) -> None:
    taken = saved(store, "rocksdb", 3)

    found = diff(store, taken.id, taken.id)

    assert (found.equal, found.same_contents, found.variables) == (True, (0,), ())


def add(store: Store, described: Savepoint, files: tuple[StoredFile, ...] = ()) -> str:
    """Add a savepoint that is described by hand."""
    made = manifest.Manifest(described, files)
    store.root.put(manifest.manifest_path(described.id), made.to_bytes())
    store.catalog.add(described)
    return described.id


def again(store: Store, taken: Savepoint, new_id: str, **other: object) -> str:
    """Add a savepoint with the files of another, under an id of its own."""
    files = []
    for file in store.manifest(taken.id).native:
        stored_at = file.stored_at.replace(taken.id, new_id)
        if stored_at != file.stored_at:
            store.root.put(stored_at, store.root.get(file.stored_at))
        files.append(dataclasses.replace(file, stored_at=stored_at))
    described = dataclasses.replace(taken, id=new_id, **other)  # type: ignore[arg-type]
    return add(store, described, tuple(files))


def test_offsets_are_compared_by_topic_and_partition(local_store: Store) -> None:
    positions = (
        (None, '{"a":{"0":5,"1":7},"b":{"0":1}}', '{"logOffset":3}'),
        ('{"c":{"0":0}}', '{"a":{"0":5,"1":8,"2":0}}', '{"logOffset":3}'),
    )
    first, last = (
        add(local_store, dataclasses.replace(savepoint(number, offsets=offsets), operators=()))
        for number, offsets in enumerate(positions)
    )

    found = diff(local_store, first, last)

    assert found.offsets == (
        OffsetChange(0, "c", 0, None, 0),
        OffsetChange(1, "a", 1, 7, 8),
        OffsetChange(1, "a", 2, None, 0),
        OffsetChange(1, "b", 0, 1, None),
    )


WITHOUT_SPARK = """
import sys
from savepoints.cli.main import _run
from savepoints.cli.output import Terminal
code = _run(Terminal(), sys.argv[1:])
print(code, *[name for name in ("pyspark", "py4j") if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.spark
def test_equal_contents_are_known_without_spark(
    on_local: Location, local_store: Store, spark: SparkSession
) -> None:
    """Restored with other partitions and into the other provider, and saved again."""
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    saved = local_store.create(checkpoint=str(checkpoint), query="totals").execute()
    target = str(on_local / "restored")
    local_store.savepoint(saved.id).restore(target, partitions=5, provider="hdfs").execute()
    again = local_store.create(checkpoint=target, query="again").execute()
    assert again.cut.partitions == 5

    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, "diff", saved.id, again.id],
        env={**os.environ, "SAVEPOINTS_STORE": str(local_store.root)},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stderr.split() == ["0"]
    assert "no difference" in done.stdout
    found = diff(local_store, saved.id, again.id)
    assert (found.equal, found.same_contents) == (True, (0,))
    assert {"spark.sql.shuffle.partitions", PROVIDER} <= found.settings.keys()


@pytest.mark.spark
def test_trap_lists_are_read_although_the_content_hashes_are_equal(
    on_local: Location, local_store: Store, spark: SparkSession
) -> None:
    """The content hash does not know the order of the elements of a list."""
    taken = take(local_store, unpack("transform_with_state", on_local / "checkpoint"))
    (operator,) = taken.operators
    hashed = (dataclasses.replace(operator, content_hash="00" * 16),)
    first, last = (
        again(local_store, taken, f"sp-20261120-10000{n}-aaaaaa", operators=hashed)
        for n in range(2)
    )

    found = diff(local_store, first, last)

    assert found.same_contents == ()
    assert counts(found.variables)["seen"] == (0, 0, 0)
