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
from tests import draw
from tests.samples import unpack


def planned(place: Location, store: Store, version: str, *options: str) -> tuple[int, str]:
    """Plan a savepoint where this version is installed."""
    words = ["-m", "savepoints", "create", "totals", "--dry-run", "-o", "json"]
    where = ["--checkpoint", str(place / "live"), "--store", str(store.root)]
    return python(place, version, *words, *where, *options)


def python(place: Location, version: str, *arguments: str) -> tuple[int, str]:
    """Run Python where `PYTHONPATH` has a zipped PySpark of this version, as on clusters."""
    archive = Path(str(place)) / "pyspark.zip"
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("pyspark/__init__.py", "raise AssertionError('imported')\n")
        files.writestr("pyspark/version.py", f'__version__: str = "{version}"\n')
        files.writestr("pyspark/core/__init__.py", "")
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(archive), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout or done.stderr


# What `merge` asks before it starts Spark.
MERGE = """
import sys
from savepoints.checkpoint.cut import read_cut
from savepoints.errors import NativeOnlyError
from savepoints.io import Location
from savepoints.operations.savepoint import forms
try:
    forms.require_rows("totals", read_cut(Location.of(sys.argv[1])))
    print("can be merged")
except NativeOnlyError as error:
    print(error.message, error.hint)
"""


@pytest.mark.parametrize(
    ("sample", "version", "expected"),
    draw.some(
        1,
        [
            ("rocksdb", "4.1.4", "Spark 4.1 cannot read state rows from RocksDB"),
            ("rocksdb", "4.2.0", "can be merged"),
            ("hdfs", "4.0.5", "can be merged"),
        ],
        "merged",
    ),
)
def test_trap_a_merge_is_refused_before_spark_is_started_where_it_cannot_read_the_state(
    sample: str, version: str, expected: str, on_local: Location
) -> None:
    unpack(sample, on_local / "live")

    code, text = python(on_local, version, "-c", MERGE, str(on_local / "live"))

    assert code == 0, text
    assert expected in text
    assert ("Spark 4.2" in text) == (expected != "can be merged")


@pytest.mark.parametrize(
    ("sample", "version", "forms"),
    draw.some(
        1,
        [
            ("rocksdb", "3.5.9", ["native"]),
            ("rocksdb", "4.1.4", ["native"]),
            ("rocksdb", "4.1.0.dev3", ["native"]),
            ("rocksdb", "4.2.0", ["native", "canonical"]),
            ("hdfs", "4.1.4", ["native", "canonical"]),
            ("hdfs", "3.5.9", ["native"]),
            ("hdfs", "4.3.0", ["native"]),
        ],
        "installed",
    ),
)
def test_rows_are_planned_where_the_installed_spark_can_read_them(
    sample: str, version: str, forms: list[str], on_local: Location, local_store: Store
) -> None:
    unpack(sample, on_local / "live")

    code, text = planned(on_local, local_store, version)

    assert code == 0, text
    plan = json.loads(text)["plan"]
    assert plan["forms"] == forms
    why = "is not supported" if version == "4.3.0" else "cannot read state rows"
    assert any(why in one for one in plan["warnings"]) == (forms == ["native"])


def test_asked_for_rows_alone_it_is_refused_with_the_way_out(
    on_local: Location, local_store: Store
) -> None:
    unpack("rocksdb", on_local / "live")

    code, text = planned(on_local, local_store, "4.0.5", "--format", "canonical")

    assert code != 0
    assert "Spark 4.0 cannot read state rows from RocksDB" in text
    assert "savepoints export" in text


def test_a_vendors_version_is_that_of_the_spark_it_was_made_of() -> None:
    assert str(SparkVersion.of("3.5.1-amzn-0")) == "3.5"
    assert SparkVersion.of("4.2.0").number < SparkVersion.of("4.10.0").number


@pytest.mark.parametrize(
    ("version", "variables", "expected"),
    draw.some(
        1,
        [
            ("4.3.0", {}, "PySpark 4.3 is not supported: versions 3.5 to 4.2 are"),
            ("3.4.3", {}, "PySpark 3.4 is not supported"),
            (
                "4.2.0",
                {"SPARK_REMOTE": "sc://there"},
                "makes PySpark use Spark Connect in this process",
            ),
        ],
        "rewritten",
    ),
)
def test_trap_state_is_not_rewritten_by_a_spark_that_cannot_before_anything_is_touched(
    version: str,
    variables: dict[str, str],
    expected: str,
    on_local: Location,
    local_store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A native restore, which needs no session, goes through."""
    unpack("hdfs", on_local / "live")
    local_store.create(
        checkpoint=str(on_local / "live"), query="totals", forms=("native",)
    ).execute()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    restore = ["-m", "savepoints", "restore", "latest", "--query", "totals", "--yes"]
    restore += ["--store", str(local_store.root), "--to"]

    refused, said = python(on_local, version, *restore, str(on_local / "more"), "--partitions", "5")
    code, text = python(on_local, version, *restore, str(on_local / "same"))

    assert refused == 16, said
    assert expected in said
    assert (on_local / "more").list() == []
    assert code == 0, text
    assert (on_local / "same").exists("metadata")


def test_trap_a_restore_that_needs_a_newer_spark_was_planned(
    on_local: Location, local_store: Store
) -> None:
    """A rollback would have begun, and stopped half-way."""
    unpack("hdfs", on_local / "live")
    local_store.create(
        checkpoint=str(on_local / "live"), query="totals", forms=("native",)
    ).execute()
    restore = ["-m", "savepoints", "restore", "latest", "--query", "totals", "--dry-run"]
    restore += ["--store", str(local_store.root), "--to", str(on_local / "next")]

    refused, said = python(on_local, "4.1.4", *restore, "--provider", "rocksdb")
    code, text = python(on_local, "4.2.0", *restore, "--provider", "rocksdb")
    assert refused == 16, said
    assert "Spark 4.1 cannot write state rows to RocksDB" in said
    assert "run the command where Spark 4.2 is installed" in " ".join(said.split())
    assert code == 0, text


# What `restore --provider rocksdb` asks of a savepoint that has only rows, before Spark is started.
ROWS_ALONE = """
import dataclasses, sys
from savepoints.checkpoint.state.operators import HDFS_PROVIDER, ROCKSDB_PROVIDER
from savepoints.errors import NativeOnlyError
from savepoints.operations.savepoint import forms
from tests.samples import savepoint
born = savepoint(1)
cut = dataclasses.replace(born.cut, provider=HDFS_PROVIDER)
try:
    saved = dataclasses.replace(born, forms=("canonical",), cut=cut)
    forms.require_writable(saved, HDFS_PROVIDER)
    forms.require_writable(saved, ROCKSDB_PROVIDER)
except NativeOnlyError as error:
    print(error.hint)
"""


def test_trap_rows_of_the_default_store_can_be_restored_into_it_without_a_newer_spark(
    on_local: Location,
) -> None:
    _, said = python(on_local, "4.1.4", "-c", ROWS_ALONE)

    assert said.startswith("omit --provider to keep the state in Spark's default store; or run")


def test_trap_rows_were_planned_that_spark_3_5_cannot_read(
    on_local: Location, local_store: Store
) -> None:
    """A query that 4.0 has begun, so that its operators are known; the export ended in py4j."""
    unpack("hdfs", on_local / "live")

    code, text = planned(on_local, local_store, "3.5.9")

    assert code == 0, text
    plan = json.loads(text)["plan"]
    assert plan["forms"] == ["native"]
    assert any("Spark 3.5 cannot read state rows" in one for one in plan["warnings"])
