"""A store that has one object of every kind, without a JVM; to be damaged."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import FORMS, new_id
from savepoints.moments import rfc3339, utc_now
from savepoints.operations.check import contents
from savepoints.operations.inspect.verify import verify_all
from savepoints.operations.maintain import rebuild_catalog
from savepoints.operations.rollback import rollback
from savepoints.store.locks import lease
from savepoints.store.locks.journal import Journal, Operation
from savepoints.store.savepoint import canonical, manifest
from savepoints.store.tables import checksums
from tests.samples import take, unpack

ROWS = 7


def make(place: Location) -> Store:
    """Make the store: three native savepoints, one with rows too, and all that lies around them."""
    Path(str(place / "store")).mkdir(parents=True)
    store = Store.at(str(place / "store")).make()
    rocksdb = unpack("rocksdb", place / "rocksdb")
    for batch in (1, 2):
        take(store, rocksdb, batch_id=batch, query="sst")
    take(store, unpack("changelog", place / "changelog"), query="changelog")
    with_rows(store, place)
    first, second = (one.id for one in store.catalog.all()[:2])
    for name, tag in ((first, "one"), (second, "two")):
        store.catalog.relabel([name], lambda old, tag=tag: dataclasses.replace(old, tags=(tag,)))  # type: ignore[misc]
    target = place / "rolled-back"
    oldest = store.catalog.all()[-1]
    plan = rollback.plan(store, oldest.id, to=str(target), rewind_outputs=False, check_source=False)
    rollback.execute(plan, store)
    for verb in ("rollback", "merge"):
        begun = Operation(new_id("op", utc_now()), verb, verb, {}, "x", rfc3339(utc_now()))
        Journal.begin(store.root, begun)
    for name in (first, second):
        path = f"uses/{name}/{new_id('op', utc_now())}.json"
        lease.mark(store.root, path, "sst", "restore")._stop.set()  # As one that was killed.
    for table in ("catalog", "generations", "events"):
        opened = DeltaTable(str(store.root / table))
        opened.create_checkpoint()
        # As in a store whose checkpoint is made within the commit, every so many commits.
        version = int(opened.version())
        (store.root / table).delete([f"_sums/{version:020}.json"])
        checksums.record(store.root / table, version)
    # What came after a checkpoint is read from JSON, and the checkpoint is read too.
    take(store, rocksdb, batch_id=3, query="sst")
    return store


def with_rows(store: Store, place: Location) -> None:
    """Take a savepoint and give it canonical rows as Spark would lay them out."""
    taken = take(store, unpack("hdfs", place / "hdfs"), query="rows")
    table = canonical.table(store.root, taken.id)
    write_deltalake(
        str(table),
        pa.table(
            {
                "operator_id": pa.array([0] * ROWS, pa.int32()),
                "key_bytes": [b"key %d" % number for number in range(ROWS)],
            }
        ),
        partition_by=["operator_id"],
    )
    stored = store.manifest(taken.id)
    operators = tuple(
        dataclasses.replace(one, rows=ROWS, state_bytes=70, content_hash="0" * 32)
        for one in taken.operators
    )
    exported = dataclasses.replace(taken, forms=FORMS, operators=operators, spark_version="4.2.0")
    rows = canonical.stored_files(store.root, taken.id)
    path = manifest.manifest_path(taken.id)
    whole = dataclasses.replace(stored, savepoint=exported, canonical=rows)
    store.root.put(path, whole.to_bytes())
    store.catalog.exported(exported)


def copy_of(store: Store, target: Path) -> Store:
    """Copy a store, in which everything is then damaged on its own."""
    shutil.copytree(str(store.root), target)
    return Store.at(str(target)).make()


def found(store: Store) -> list[tuple[str, str]]:
    """Return what `check` and `verify --all` say of a store, all that is not ok."""
    said = [(one.name, one.seen) for one in contents.check_contents(store) if one.grade != "ok"]
    # As a person would: what `check` does not dare to read is made anew first.
    if any(name == "catalog" for name, _ in said):
        rebuild_catalog.execute(rebuild_catalog.plan(store), store)
    for report in verify_all(store).reports:
        said += [(one.what, one.problem) for one in report.findings]
    return said
