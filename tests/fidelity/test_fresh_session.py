"""State stores in a Spark that has never run a streaming query: a process for each verb."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from tests import samples, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(900)]


def test_trap_a_fresh_session_has_no_state_store_coordinator(
    spark: SparkSession, local_store: Store, on_local: Location, tmp_path: Path
) -> None:
    """`create` reads state and `restore` writes it; the restored state is the original's."""
    live, target = samples.unpack("rocksdb", on_local / "live"), on_local / "restored"
    settings = spark_session.settings()
    conf = "".join(f'"{key}" = "{value}"\n' for key, value in settings.spark.conf.items())
    (tmp_path / "savepoints.toml").write_text(
        f'store = "{local_store.root}"\njars = "{settings.jars}"\n'
        f'[spark]\nmaster = "local[2]"\n[spark.conf]\n{conf}'
    )
    for words in (
        ["create", "--checkpoint", str(live), "--name", "live"],
        ["restore", "latest", "--to", str(target), "--format", "canonical", "--yes"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "savepoints", *words],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    original = local_store.catalog.find("latest", query="live")
    restored = local_store.create(checkpoint=str(target), query="restored").execute()
    assert restored.operators == original.operators
    assert original.operators[0].rows
