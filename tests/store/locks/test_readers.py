"""Marks of readers: who removes a savepoint sees them, or they see that it is being removed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from savepoints.errors import SavepointNotFoundError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.store.locks import lease
from savepoints.store.locks import readers as locks_readers
from tests.samples import take, unpack


@pytest.fixture
def taken(store: Store, place: Location) -> Savepoint:
    return take(store, unpack("two_sources", place / "live"))


def test_a_reader_is_named_for_as_long_as_it_reads(store: Store, taken: Savepoint) -> None:
    with store.using(taken.id, "restore"), store.using(taken.id, "copy"):
        (readers,) = locks_readers.holders(store.root).values()
        assert sorted(one.split()[0] for one in readers) == ["copy", "restore"]
        assert all("process" in one for one in readers)

    assert locks_readers.holders(store.root) == {}
    assert store.root.list("uses") == []


def test_what_is_being_removed_cannot_be_read_any_more(store: Store, taken: Savepoint) -> None:
    store.catalog.relabel([taken.id], lambda old: replace(old, state="expired"))

    with pytest.raises(SavepointNotFoundError), store.using(taken.id, "restore"):
        raise AssertionError("it must not be read")

    assert locks_readers.holders(store.root) == {}


def test_a_reader_that_died_holds_nothing(
    local_store: Store, on_local: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = take(local_store, unpack("two_sources", on_local / "live"))
    mark = lease.mark(local_store.root, f"uses/{taken.id}/op-1.json", "both", "restore")
    assert list(locks_readers.holders(local_store.root)) == [taken.id]

    dead = replace(mark._record, holder=replace(mark._record.holder, pid=2**22 + 1))
    mark._stop.set()
    local_store.root.put(f"uses/{taken.id}/op-1.json", dead.to_bytes())

    assert locks_readers.holders(local_store.root) == {}
    assert locks_readers.leftovers(local_store.root) == [f"uses/{taken.id}/op-1.json"]
