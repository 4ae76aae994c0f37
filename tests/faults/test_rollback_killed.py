"""A rollback that is killed anywhere goes on when it is run again; no JVM needed."""

from __future__ import annotations

import signal

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.inspect.verify import verify
from savepoints.store.locks import journal
from tests import samples
from tests.draw import some
from tests.processes import killed_at

# Every step of `rollback`, and every moment inside the savepoint and the restore that are in it.
POINTS = (
    "rollback.begun",
    "create.pinned",
    "create.manifest",
    "create.catalog",
    "rollback.safety_savepoint",
    "restore.claimed",
    "restore.files",
    "restore.metadata",
    "rollback.checkpoint_written",
    "rollback.output_totals_rewound",
    "rollback.generation_begun",
    "rollback.finished",
)
BACK_TO, NEWEST = 1, 3


def write_output(uri: str, query_id: str) -> None:
    """Write a table as Delta's streaming sink would: one commit a batch, with its transaction."""
    for batch in range(NEWEST + 1):
        write_deltalake(
            uri,
            pa.table({"batch": pa.array([batch], pa.int64())}),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[Transaction(query_id, batch, 0)]),
        )


def rollback(store: Store, name: str, to: Location, crash_at: str = "") -> int:
    """Call the command line; returns its exit code."""
    return killed_at(
        crash_at, "rollback", name, "--to", str(to), "--yes", "--store", str(store.root)
    )


@pytest.mark.parametrize("point", some(1, POINTS, "rollback"))
def test_killed_and_run_again_it_is_as_if_it_had_not_been_killed(
    local_store: Store, on_local: Location, point: str
) -> None:
    """Trap: `latest` is the safety savepoint by then, or none, so the same words were refused."""
    store, live, target = local_store, on_local / "live", on_local / "next"
    samples.unpack("rocksdb", live)
    before = samples.contents(live)
    table = str(on_local / "totals")
    write_output(table, samples.query_id("rocksdb"))
    saved = samples.take(store, live, batch_id=BACK_TO, outputs={"totals": table})

    assert rollback(store, "latest", target, crash_at=point) == -signal.SIGKILL
    assert journal.unfinished(store.root, "totals") is not None
    assert samples.contents(live) == before, "the old checkpoint is never edited"
    if not target.exists("metadata"):
        assert store.generations.current("totals").generation == 1

    assert rollback(store, "latest", target) == 0
    assert journal.unfinished(store.root, "totals") is None
    assert samples.contents(live) == before
    restored = samples.contents(target)
    del restored["_savepoints_restored_by"]
    assert restored == {path: before[path] for path in restored}
    assert set(restored) == {file.path for file in store.manifest(saved.id).native}

    output = DeltaTable(table)
    assert sorted(output.to_pandas()["batch"]) == list(range(BACK_TO + 1))
    assert output.transaction_version(samples.query_id("rocksdb")) == BACK_TO
    assert [one["operation"] for one in output.history()].count("RESTORE") == 1

    generations = store.generations.all("totals")
    assert [(g.generation, g.status, g.begun_from) for g in generations] == [
        (2, "current", saved.id),
        (1, "ended", None),
    ]
    restored_bytes = sum(len(data) for data in restored.values())
    assert generations[0].restored_bytes == restored_bytes
    safety = [one for one in store.catalog.all() if one.id != saved.id]
    assert [one.cut.batch_id for one in safety] == [NEWEST]
    assert verify(store, safety[0].id, depth="checksums").grade == "ok"
