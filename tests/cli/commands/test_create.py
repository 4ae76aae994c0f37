"""`savepoints create` where Spark cannot be used: what was pinned is kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.observe import metrics
from savepoints.operations.inspect.verify import verify
from savepoints.operations.savepoint import restore
from tests.samples import contents, unpack

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("form", ["both", "canonical"])
def test_trap_rows_that_cannot_be_written_take_the_savepoint_with_them(
    form: str, on_local: Location, local_store: Store
) -> None:
    """Spark does not start; in a process of its own, since here it may run already."""
    live = unpack("rocksdb", on_local / "live")
    words = ["create", "--checkpoint", str(live), "--name", "clicks", "--format", form]

    done = subprocess.run(
        [sys.executable, "-m", "savepoints", *words, "-o", "json"],
        env={**os.environ, "SAVEPOINTS_STORE": str(local_store.root), "JAVA_HOME": "/nowhere"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr, "of what has been explained"
    (saved,) = local_store.catalog.all()
    assert json.loads(done.stdout)["savepoint"]["id"] == saved.id
    error = json.loads(done.stderr.splitlines()[-1])
    assert f"savepoints export {saved.id}" in error["hint"]
    assert "--format native" in error["hint"], "for types that no table can have"
    assert "Spark did not start" in error["message"]
    assert (saved.forms, saved.state) == (("native",), "complete")
    assert saved.rows_missing is not None
    assert "Spark did not start" in saved.rows_missing
    assert local_store.manifest(saved.id).savepoint == saved
    (event,) = local_store.events.all()
    assert event.result == "done"
    assert "without the state rows" in event.message
    counted = metrics.values([saved], [event])
    assert counted["savepoints_without_rows"] == {("clicks",): 1}
    assert verify(local_store, saved.id, depth="checksums").findings == ()
    restore.execute(restore.plan(local_store, saved.id, str(on_local / "again")), local_store)
    restored = contents(on_local / "again")
    assert {path: data for path, data in restored.items() if path.startswith("state/")} == {
        path: data
        for path, data in contents(live).items()
        if path.startswith("state/") and path in restored
    }
