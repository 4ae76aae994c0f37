"""`verify --deep`: what only a restore shows."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.store.savepoint.manifest import manifest_path
from tests import samples

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
