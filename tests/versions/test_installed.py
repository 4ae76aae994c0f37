"""Which Spark is installed is known without importing it; no JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.spark.versions import SparkVersion
from tests.samples import unpack


def planned(place: Location, store: Store, version: str, *options: str) -> tuple[int, str]:
    """Plan a savepoint where `PYTHONPATH` has a zipped PySpark of this version, as on clusters."""
    archive = Path(str(place)) / "pyspark.zip"
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("pyspark/__init__.py", "raise AssertionError('imported')\n")
        files.writestr("pyspark/version.py", f'__version__: str = "{version}"\n')
    command = [sys.executable, "-m", "savepoints", "create", "totals", "--dry-run", "-o", "json"]
    done = subprocess.run(
        [*command, "--checkpoint", str(place / "live"), "--store", str(store.root), *options],
        env={**os.environ, "PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout or done.stderr


@pytest.mark.parametrize(
    ("sample", "version", "forms"),
    [
        ("rocksdb", "3.5.9", ["native"]),
        ("rocksdb", "4.1.4", ["native"]),
        ("rocksdb", "4.1.0.dev3", ["native"]),
        ("rocksdb", "4.2.0", ["native", "canonical"]),
        ("hdfs", "4.1.4", ["native", "canonical"]),
    ],
)
def test_rows_are_planned_where_the_installed_spark_can_read_them(
    sample: str, version: str, forms: list[str], on_local: Location, local_store: Store
) -> None:
    unpack(sample, on_local / "live")

    code, text = planned(on_local, local_store, version)

    assert code == 0, text
    plan = json.loads(text)["plan"]
    assert plan["forms"] == forms
    said = any("cannot read the state rows of RocksDB" in one for one in plan["warnings"])
    assert said == (forms == ["native"])


def test_asked_for_rows_alone_it_is_refused_with_the_way_out(
    on_local: Location, local_store: Store
) -> None:
    unpack("rocksdb", on_local / "live")

    code, text = planned(on_local, local_store, "4.0.5", "--format", "canonical")

    assert code != 0
    assert "Spark 4.0 cannot read the state rows of RocksDB" in text
    assert "savepoints export" in text


def test_a_vendors_version_is_that_of_the_spark_it_was_made_of() -> None:
    assert str(SparkVersion.of("3.5.1-amzn-0")) == "3.5"
    assert SparkVersion.of("4.2.0").number < SparkVersion.of("4.10.0").number
