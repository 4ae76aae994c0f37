"""`verify --deep`: what only a restore shows."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.store.savepoint.manifest import manifest_path
from tests import samples
from tests.edited_rows import edit_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.drawn(3)]


@pytest.mark.parametrize("sample", ["limit", "transform_with_state", "format_2_changelog"])
def test_a_whole_savepoint_is_restored_and_equal(
    spark: SparkSession, local_store: Store, on_local: Location, sample: str
) -> None:
    checkpoint = samples.unpack(sample, on_local / "live")
    taken = local_store.create(checkpoint=str(checkpoint), query="q").execute()

    report = local_store.savepoint(taken.id).verify(depth="deep")

    assert (report.grade, report.findings) == ("ok", ())
    assert not local_store.root.list("scratch")


def test_a_file_that_fits_its_checksum_and_not_the_rows_is_found(
    spark: SparkSession, local_store: Store, on_local: Location
) -> None:
    """The last delta of a partition is that of the batch before, in the manifest as well."""
    checkpoint = samples.unpack("hdfs", on_local / "live")
    taken = local_store.create(checkpoint=str(checkpoint), query="q").execute()
    stored = local_store.manifest(taken.id)
    wrong = checkpoint.get("state/0/0/3.delta")
    files = []
    for file in stored.native:
        if file.path == "state/0/0/4.delta":
            local_store.root.delete([file.stored_at])  # It may be a hard link of the live one.
            local_store.root.put(file.stored_at, wrong)
            sha256 = hashlib.sha256(wrong).hexdigest()
            files.append(dataclasses.replace(file, size=len(wrong), sha256=sha256))
        else:
            files.append(file)
    manifest = dataclasses.replace(stored, native=tuple(files))
    local_store.root.put(manifest_path(taken.id), manifest.to_bytes())

    assert local_store.savepoint(taken.id).verify().grade == "ok", "nothing else can find it"
    report = local_store.savepoint(taken.id).verify(depth="deep")

    assert report.grade == "broken"
    assert [one.what for one in report.findings] == ["operator 0 (stateStoreSave)"]
    assert "in the restored native form" in report.findings[0].problem


def test_trap_the_elements_of_a_list_are_in_another_order(
    spark: SparkSession, local_store: Store, on_local: Location
) -> None:
    """All checksums fit, and the rows are the same: a restore would write another list."""
    checkpoint = samples.unpack("transform_with_state", on_local / "live")
    taken = local_store.create(checkpoint=str(checkpoint), query="q").execute()

    def swapped(rows: pa.Table) -> pa.Table:
        listed = rows.filter(pc.field("column_family") == "seen")
        key, orders = listed["key_bytes"].to_pylist()[0], listed["ord"].to_pylist()[:2]
        assert listed["key_bytes"].to_pylist()[:2] == [key, key], "two elements of one list"
        others = {orders[0]: orders[1], orders[1]: orders[0]}
        column = pa.array([others.get(one, one) for one in rows["ord"].to_pylist()], pa.int64())
        return rows.set_column(rows.column_names.index("ord"), "ord", column)

    edit_rows(local_store, taken.id, swapped)

    report = local_store.savepoint(taken.id).verify()

    assert report.grade == "broken"
    assert "has the content hash" in report.findings[0].problem


def test_a_hash_of_an_earlier_version_which_does_not_know_the_order_still_fits(
    spark: SparkSession, local_store: Store, on_local: Location
) -> None:
    checkpoint = samples.unpack("transform_with_state", on_local / "live")
    taken = local_store.create(checkpoint=str(checkpoint), query="q").execute()
    stored = local_store.manifest(taken.id)
    (operator,) = taken.operators
    assert operator.content_hash is not None
    rows, _, order = operator.content_hash.partition("-")
    assert order
    older = dataclasses.replace(
        taken, operators=(dataclasses.replace(operator, content_hash=rows),)
    )
    manifest = dataclasses.replace(stored, savepoint=older)
    local_store.root.put(manifest_path(taken.id), manifest.to_bytes())
    local_store.catalog.put([older])

    report = local_store.savepoint(taken.id).verify(depth="deep")

    assert (report.grade, report.findings) == ("ok", ())


@pytest.mark.parametrize("written_by", [pytest.param("this", marks=pytest.mark.nightly), "another"])
def test_trap_what_another_spark_wrote_is_called_broken(
    spark: SparkSession, local_store: Store, on_local: Location, written_by: str
) -> None:
    """All checksums fit, and this Spark cannot read it: that says something of its own files alone.

    What is called broken is passed over by `latest` and by recovery.
    """
    checkpoint = samples.unpack("hdfs", on_local / "live")
    taken = local_store.create(checkpoint=str(checkpoint), query="q").execute()
    stored = local_store.manifest(taken.id)
    unknown = b"written in a way that is not known yet"
    files = []
    for file in stored.native:
        if file.path == "state/0/0/4.delta":
            local_store.root.delete([file.stored_at])
            local_store.root.put(file.stored_at, unknown)
            sha256 = hashlib.sha256(unknown).hexdigest()
            files.append(dataclasses.replace(file, size=len(unknown), sha256=sha256))
        else:
            files.append(file)
    version = spark.version if written_by == "this" else "9.9.9"
    savepoint = dataclasses.replace(stored.savepoint, spark_version=version)
    manifest = dataclasses.replace(stored, native=tuple(files), savepoint=savepoint)
    local_store.root.put(manifest_path(taken.id), manifest.to_bytes())
    local_store.catalog.put([savepoint])

    report = local_store.savepoint(taken.id).verify(depth="deep")

    (finding,) = report.findings
    expected = ("broken", "broken") if written_by == "this" else ("warning", "complete")
    assert (finding.grade, report.state) == expected, finding
    if written_by == "another":
        assert f"was not checked with Spark {spark.version}" in finding.problem
        assert local_store.catalog.find("latest") == savepoint
