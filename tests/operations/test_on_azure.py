"""Verbs that need no JVM, with checkpoint, store and table on Azure; see `tests.azure`."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from savepoints.errors import StoreNotFoundError, TargetExistsError
from savepoints.handle import Store
from savepoints.io import Location, storage_options
from tests import samples

pytestmark = pytest.mark.nightly


def append(table: Location, app_id: str, batch: int) -> None:
    """Write a batch as a query's sink does."""
    write_deltalake(
        str(table),
        pa.table({"batch": [batch]}),
        mode="append",
        storage_options=storage_options(table.uri),
        commit_properties=CommitProperties(app_transactions=[Transaction(app_id, batch)]),
    )


def rows(table: Location) -> list[int]:
    """Return what is in the table now."""
    found = DeltaTable(str(table), storage_options=storage_options(table.uri)).to_pyarrow_table()
    return sorted(int(str(one)) for one in found["batch"].to_pylist())


def test_a_query_is_rolled_back_with_its_table_verified_and_copied(
    on_azure: Location, on_local: Location
) -> None:
    live = samples.unpack("rocksdb", on_azure / "live")
    before, app_id = samples.contents(live), samples.query_id("rocksdb")
    table = on_azure / "table"
    for batch in range(3):
        append(table, app_id, batch)
    store = Store.at(str(on_azure / "store")).make()
    saved = store.create(
        checkpoint=str(live),
        query="totals",
        batch_id=2,
        forms=("native",),
        outputs={"totals": str(table)},
        tags=["before-release"],
    ).execute()
    append(table, app_id, 3)

    assert [one.id for one in store.query("totals").savepoints()] == [saved.id]
    assert store.savepoint(saved.id).verify(depth="checksums").findings == ()
    store.query("totals").rollback(
        "before-release", to=str(on_azure / "next"), stopped=True
    ).execute()

    assert rows(table) == [0, 1, 2]
    restored = samples.contents(on_azure / "next")
    assert {path: data for path, data in restored.items() if path in before} == {
        path: before[path] for path in restored if path in before
    }
    assert "offsets/2" in restored
    assert "offsets/3" not in restored
    (on_local / "copies").put("x", b"x")
    (on_local / "copies").delete(["x"])
    elsewhere = Store.at(str(on_local / "copies")).make()
    store.savepoint(saved.id).copy(str(elsewhere.root)).execute()
    assert elsewhere.savepoint(saved.id).verify(depth="checksums").findings == ()


def test_trap_a_listing_on_azure_has_tags_without_quotes_and_files_are_shared_all_the_same(
    on_azure: Location,
) -> None:
    live = samples.unpack("rocksdb", on_azure / "live")
    store = Store.at(str(on_azure / "store")).make()

    def take(batch: int) -> int:
        plan = store.create(checkpoint=str(live), query="totals", batch_id=batch, forms=("native",))
        return plan.execute().cost.objects_shared

    assert (take(1), take(2)) == (0, 4)


def test_what_is_not_there_or_taken_is_named(on_azure: Location) -> None:
    host = on_azure.uri.bucket.partition("@")[2]
    with pytest.raises(StoreNotFoundError, match="nowhere@") as refused:
        Store.at(f"abfss://nowhere@{host}/store").make()
    assert "az storage container create" in refused.value.hint

    live = samples.unpack("rocksdb", on_azure / "live")
    store = Store.at(str(on_azure / "store")).make()
    store.create(checkpoint=str(live), query="totals", forms=("native",)).execute()
    with pytest.raises(TargetExistsError):
        store.savepoint("latest", query="totals").restore(str(live))
