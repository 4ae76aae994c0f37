"""What needs no JVM, told in a place of any kind of store: saved, rolled back, verified, copied."""

from __future__ import annotations

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from savepoints.handle import Store
from savepoints.io import Location, storage_options
from tests import samples


def require_exact(place: Location, copies: Location, sample: str) -> None:
    """Roll a query back with its table, and copy the savepoint to another kind of store."""
    live = samples.unpack(sample, place / "live")
    before, app_id = samples.contents(live), samples.query_id(sample)
    table = place / "table"
    for batch in range(3):
        _append(table, app_id, batch)
    store = Store.at(str(place / "store")).make()
    saved = store.create(
        checkpoint=str(live),
        query="totals",
        batch_id=2,
        forms=("native",),
        outputs={"totals": str(table)},
        tags=["before-release"],
    ).execute()
    _append(table, app_id, 3)

    assert [one.id for one in store.query("totals").savepoints()] == [saved.id]
    assert store.savepoint(saved.id).verify(depth="checksums").findings == ()
    store.query("totals").rollback("before-release", to=str(place / "next"), stopped=True).execute()

    assert _rows(table) == [0, 1, 2]
    restored = samples.contents(place / "next")
    kept = {path: data for path, data in restored.items() if path in before}
    assert kept == {path: before[path] for path in kept}
    assert "offsets/2" in restored
    assert "offsets/3" not in restored
    (copies / "copies").put("x", b"x")
    (copies / "copies").delete(["x"])
    elsewhere = Store.at(str(copies / "copies")).make()
    store.savepoint(saved.id).copy(str(elsewhere.root)).execute()
    assert elsewhere.savepoint(saved.id).verify(depth="checksums").findings == ()


def require_files_shared(place: Location) -> None:
    """Take two savepoints of a checkpoint, of which the second copies no state."""
    live = samples.unpack("rocksdb", place / "live")
    store = Store.at(str(place / "store")).make()

    def take(batch: int) -> int:
        plan = store.create(checkpoint=str(live), query="totals", batch_id=batch, forms=("native",))
        return plan.execute().cost.objects_shared

    assert (take(1), take(2)) == (0, 4)


def _append(table: Location, app_id: str, batch: int) -> None:
    """Write a batch as a query's sink does."""
    write_deltalake(
        str(table),
        pa.table({"batch": [batch]}),
        mode="append",
        storage_options=storage_options(table.uri),
        commit_properties=CommitProperties(app_transactions=[Transaction(app_id, batch)]),
    )


def _rows(table: Location) -> list[int]:
    """Return what is in the table now."""
    found = DeltaTable(str(table), storage_options=storage_options(table.uri)).to_pyarrow_table()
    return sorted(int(str(one)) for one in found["batch"].to_pylist())
