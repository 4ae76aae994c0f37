"""State stores in a Spark that has never run a streaming query: a process for each verb."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from savepoints.io import Location
from savepoints.store.root import Store
from tests import samples, spark_session

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def test_trap_a_fresh_session_has_no_state_store_coordinator(
    local_store: Store, on_local: Location
) -> None:
    """`create` reads state and `restore` writes it; the restored state is the original's."""
    live, target = samples.unpack("rocksdb", on_local / "live"), on_local / "restored"
    for words in (
        ["create", "--checkpoint", str(live), "--name", "live"],
        ["restore", "latest", "--to", str(target), "--format", "canonical", "--yes"],
        ["create", "--checkpoint", str(target), "--name", "restored"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "savepoints", *words, "--store", str(local_store.root)],
            env={**os.environ, "SAVEPOINTS_JARS": str(spark_session.settings().jars)},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    original = local_store.catalog.find("latest", query="live")
    restored = local_store.catalog.find("latest", query="restored")
    assert restored.operators == original.operators
    assert original.operators[0].rows
