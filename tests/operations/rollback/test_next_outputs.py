"""Under which application ids a query's own rows were written."""

from __future__ import annotations

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.rollback import next_outputs
from tests.samples import saved


def test_a_checkpoint_that_is_damaged_or_gone_leaves_the_ids_of_the_savepoints(
    local_store: Store,
) -> None:
    taken = saved(local_store, "rocksdb")
    checkpoint = Location.of(local_store.generations.current(taken.query).checkpoint)
    checkpoint.put("metadata", b'{"id": "another life"}')
    both = next_outputs.own_ids(local_store, taken.query)
    checkpoint.put("metadata", b"garbage")
    damaged = next_outputs.own_ids(local_store, taken.query)
    checkpoint.delete(["metadata"])

    assert both == tuple(sorted(["another life", taken.query_id]))
    assert damaged == next_outputs.own_ids(local_store, taken.query) == (taken.query_id,)
