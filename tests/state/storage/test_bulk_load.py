"""State that is loaded into RocksDB as sorted files, beside the state that Spark had written."""

from __future__ import annotations

import io
import json
import zipfile
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from savepoints.checkpoint.cut import CutFiles, read_cut
from savepoints.errors import SavepointsError, StateUnwrittenError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.spark import private_api
from savepoints.state.storage import bulk_load, canonical_table, read, write
from tests.draw import some
from tests.samples import take, unpack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.drawn(2)]

SAMPLES = ["rocksdb", "changelog", "format_2", "format_2_changelog", "grand_total", "join",
           "watermark", "offset_log_2_restarted"]  # fmt: skip


def state(spark: SparkSession, checkpoint: Location, *, places: bool = True) -> Counter[Any]:
    """Count the rows of all stores of a checkpoint, as Spark's raw reader returns them.

    It reads a state partition in each task.
    """
    files = read_cut(checkpoint)
    own = read.reading_session(spark, files.cut.checkpoint_format)
    counted: Counter[Any] = Counter()
    for one in files.operators:
        for store in one.stores:
            rows = read.load(own, checkpoint.uri, files.cut.batch_id, one.operator_id, store)
            found = rows.selectExpr(
                "hex(key_bytes)",
                "hex(value_bytes)",
                "column_family_name",
                "spark_partition_id()" if places else "0",
            )
            counted.update((one.operator_id, store, *row) for row in found.collect())
    return counted


def keys_noted(checkpoint: Location) -> list[int]:
    """Return how many keys each snapshot of RocksDB says it has."""
    found = []
    for info in checkpoint.list("state"):
        if info.path.endswith(".zip"):
            with zipfile.ZipFile(io.BytesIO(checkpoint.get(info.path))) as archive:
                _, _, metadata = archive.read("metadata").decode().partition("\n")
            found.append(int(json.loads(metadata)["numKeys"]))
    return found


def restored(store: Store, sample: str, place: Location, **how: Any) -> tuple[Location, Location]:
    """Restore the rows of a sample, and return its checkpoint and the restored one."""
    checkpoint, target = unpack(sample, place / "checkpoint"), place / "target"
    taken = store.savepoint(take(store, checkpoint).id).export().execute()
    store.savepoint(taken.id).restore(str(target), **how).execute()
    return checkpoint, target


@pytest.mark.parametrize("sample", some(3, SAMPLES, "loaded"))
def test_a_loaded_state_is_the_one_that_was_saved(
    sample: str, on_local: Location, local_store: Store, spark: SparkSession
) -> None:
    checkpoint, target = restored(local_store, sample, on_local, form="canonical")

    truth = state(spark, checkpoint)
    assert truth
    assert state(spark, target) == truth
    # Spark's own writer does not count; then the first batch would.
    assert sum(keys_noted(target)) == truth.total()


@pytest.mark.parametrize("sample", [one for one in SAMPLES if one != "grand_total"])
def test_a_state_in_other_partitions_has_the_same_rows(
    sample: str, on_local: Location, local_store: Store, spark: SparkSession
) -> None:
    checkpoint, target = restored(local_store, sample, on_local, partitions=5)

    truth = state(spark, checkpoint, places=False)
    assert state(spark, target, places=False) == truth
    assert sum(keys_noted(target)) == truth.total()


def test_session_windows_are_left_to_sparks_own_writer(
    on_local: Location, local_store: Store, spark: SparkSession
) -> None:
    """They are found by the beginning of their key, which is stored apart."""
    checkpoint, target = restored(local_store, "session", on_local, form="canonical")

    assert state(spark, target) == state(spark, checkpoint)
    assert set(keys_noted(target)) == {-1}


@pytest.mark.nightly
def test_trap_spark_looks_elsewhere_for_a_directory_with_a_space(
    on_local: Location, local_store: Store, spark: SparkSession
) -> None:
    """Its own error names neither the cause nor a way out."""
    taken = local_store.savepoint(take(local_store, unpack("session", on_local / "live")).id)
    taken.export().execute()
    target = on_local / "a b"

    with pytest.raises(StateUnwrittenError, match=r"checkpoint at file:.*a%20b"):
        taken.restore(str(target), form="canonical").execute()

    assert not target.exists("metadata")


def test_a_spark_with_another_rocksdb_writes_as_it_always_did(
    on_local: Location, local_store: Store, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_api, "ROCKSDB_ARGUMENTS", 9)

    checkpoint, target = restored(local_store, "rocksdb", on_local, form="canonical")

    assert state(spark, target) == state(spark, checkpoint)
    assert set(keys_noted(target)) == {-1}


def rewritten(
    spark: SparkSession, checkpoint: Location, target: Location, rows: DataFrame
) -> CutFiles:
    """Load rows as the state of a copy of a checkpoint with one operator."""
    files = read_cut(checkpoint)
    for info in files.all:
        if info not in files.ssts and info not in files.state:
            target.copy_from(checkpoint, info.path, info.path)
    own = read.state_session(spark, files.cut.checkpoint_format)
    bulk_load.write_state(own, target, files.cut, files.operator_states, lambda *_: rows)
    return files


def rows_of(spark: SparkSession, checkpoint: Location, **columns: str) -> DataFrame:
    """Return the rows of a checkpoint's only operator, with other values in some columns."""
    files = read_cut(checkpoint)
    own = read.reading_session(spark, files.cut.checkpoint_format)
    rows = canonical_table.rows_of_checkpoint(own, checkpoint, files)
    return rows.selectExpr(*(f"{columns.get(one, one)} AS {one}" for one in rows.columns))


@pytest.mark.parametrize("order", ["key_bytes", "hash(key_bytes)"])
def test_rows_in_another_order_than_that_of_their_keys_are_put(
    order: str, on_local: Location, spark: SparkSession
) -> None:
    from pyspark.sql import functions as F

    checkpoint, target = unpack("rocksdb", on_local / "checkpoint"), on_local / "target"
    rows = rows_of(spark, checkpoint).sortWithinPartitions(F.expr(order).desc())

    rewritten(spark, checkpoint, target, rows)

    assert state(spark, target) == state(spark, checkpoint)


def test_a_row_in_another_state_partition_than_its_own_is_not_loaded(
    on_local: Location, spark: SparkSession
) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    stray = rows_of(spark, checkpoint, key_hash="key_hash + 1")

    with pytest.raises(SavepointsError, match="in a file of another state partition than its own"):
        rewritten(spark, checkpoint, on_local / "target", stray)


def test_a_key_that_two_rows_have_is_not_loaded(on_local: Location, spark: SparkSession) -> None:
    """Spark's writer keeps the last one of them, silently."""
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    twice = rows_of(spark, checkpoint).selectExpr("*", "explode(array(1, 2)) AS nth")

    with pytest.raises(SavepointsError, match="two state rows have the same key"):
        rewritten(spark, checkpoint, on_local / "target", twice)


@pytest.mark.parametrize("moved", ["first", "last"])
def test_trap_a_key_that_two_rows_have_in_no_order_is_not_loaded(
    moved: str, on_local: Location, spark: SparkSession
) -> None:
    """What is put is below what is loaded, so the first row would win, without a word."""
    from pyspark.sql import functions as F

    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    rows = rows_of(spark, checkpoint).coalesce(1)
    own = rows.where(F.pmod("key_hash", F.lit(read_cut(checkpoint).cut.partitions)) == 0)
    again = own.orderBy("key_bytes" if moved == "first" else F.desc("key_bytes")).limit(1)
    ordered = own.sortWithinPartitions("key_bytes").unionByName(again).coalesce(1)

    with pytest.raises(SavepointsError, match="two state rows have the same key"):
        rewritten(spark, checkpoint, on_local / "target", ordered)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    "sample", some(2, ["rocksdb", "join", "session", "transform_with_state"], "adapted")
)
def test_trap_adapted_plans_run_no_task_for_a_store_without_rows(
    sample: str, known: bool, on_local: Location, local_store: Store, spark: SparkSession
) -> None:
    """Spark adapts plans unless it is told not to, as in these tests."""
    # Restored, so that its schemas are where they say.
    _, checkpoint = restored(local_store, sample, on_local, form="native")
    target = on_local / "empty"
    files = read_cut(checkpoint)
    for info in files.all:
        if info not in files.ssts and info not in files.state:
            data = checkpoint.get(info.path)
            target.put(info.path, data.replace(b"/target/", b"/empty/"))
    adapting = read.reading_session(spark, files.cut.checkpoint_format)
    adapting.conf.set("spark.sql.adaptive.enabled", "true")
    saved = canonical_table.rows_of_checkpoint(adapting, checkpoint, files)
    found = saved.limit(0) if known else saved.where("xxhash64(key_bytes) = 42")
    none = found.selectExpr("*", f"0L AS {write.STORE_ORDER}")

    write.write_rows(spark, target, files.cut, files.operator_states, lambda *_: none)

    written = canonical_table.rows_of_checkpoint(adapting, target, read_cut(target))
    assert saved.count()
    assert not written.count()


def test_a_state_that_does_not_fit_into_one_file_is_loaded_from_several(
    on_local: Location, spark: SparkSession
) -> None:
    """Values of some megabytes, so that few rows fill the 64 MB after which a file ends."""
    checkpoint, target = unpack("rocksdb", on_local / "checkpoint"), on_local / "target"
    rows = (
        rows_of(spark, checkpoint)
        .selectExpr("key_hash", "key_bytes", "explode(sequence(1, 60)) AS nth")
        .selectExpr(
            "key_hash",
            "concat(key_bytes, CAST(format_string('%08d', nth) AS BINARY)) AS key_bytes",
            "CAST(repeat(CHAR(64 + nth % 20), 2000000) AS BINARY) AS value_bytes",
        )
        .sortWithinPartitions("key_bytes")
    )

    files = rewritten(spark, checkpoint, target, rows)

    ssts = [info.path for info in target.list("state") if info.path.endswith(".sst")]
    assert len(ssts) > (files.cut.partitions or 0)
    assert sum(keys_noted(target)) == rows.count()
    own = read.reading_session(spark, files.cut.checkpoint_format)
    own.conf.set("spark.sql.streaming.stateStore.formatValidation.enabled", "false")
    found = read.load(own, target.uri, files.cut.batch_id, 0, "default")
    hashed = ("hex(key_bytes)", "xxhash64(value_bytes)")
    assert Counter(found.selectExpr(*hashed).collect()) == Counter(
        rows.selectExpr(*hashed).collect()
    )
