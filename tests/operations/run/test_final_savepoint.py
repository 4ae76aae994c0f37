"""Which savepoint a run ends with."""

from __future__ import annotations

import dataclasses

from savepoints.config.settings import Settings
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Edit
from savepoints.moments import utc_now
from savepoints.operations.run import final_savepoint
from savepoints.operations.savepoint.create import Saved
from savepoints.plan import silent
from tests.samples import take, unpack


def test_it_is_the_one_that_is_there_and_none_that_was_edited_by_hand(
    on_local: Location, local_store: Store
) -> None:
    taken = take(local_store, unpack("rocksdb", on_local / "live"))
    edited = dataclasses.replace(
        taken, id=f"{taken.id}-edited", created_at=utc_now(), edit=Edit("me", "a try", 0)
    )
    local_store.catalog.add(edited)

    found = final_savepoint.savepoint(
        local_store.with_settings(Settings()),
        local_store.generations.current("totals"),
        Saved(forms=("native",), app="a:b"),
        moved=False,
        progress=silent,
    )

    assert found == taken
