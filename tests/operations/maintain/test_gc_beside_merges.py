"""What a merge works with, while `gc` may delete whatever nobody needs, however young."""

from __future__ import annotations

from datetime import timedelta

from savepoints.handle import Store
from savepoints.model import new_id
from savepoints.moments import utc_now
from savepoints.operations.maintain import gc
from savepoints.store import scratch


def test_trap_gc_without_grace_takes_what_a_merge_has_made_before_its_journal_begins(
    local_store: Store,
) -> None:
    """Only a journal kept `gc` away, and a merge has none until it has replayed."""
    operation_id = new_id("op", utc_now())
    work = scratch.claim(local_store, operation_id)
    assert scratch.claim(local_store, operation_id) == work
    work.put("events/part-0.parquet", b"late events")

    assert not gc.plan(local_store, grace=timedelta(0)).orphans
    assert work.exists("events/part-0.parquet")

    scratch.discard(local_store, operation_id)
    assert not local_store.root.list("scratch")
    assert not local_store.root.list("uses")
