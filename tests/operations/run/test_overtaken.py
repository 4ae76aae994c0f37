"""Drivers behind their own tables: Delta would drop what they write, without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import NotAlignedError
from savepoints.io import Location
from savepoints.operations.run import overtaken
from savepoints.store.root import Store
from tests.outputs import tables

SPARKS_ID = "b2cbd1c6-0a1c-4a7e-9d0c-6a3f2b8c1d11"


@pytest.mark.parametrize("app", [SPARKS_ID, "our-totals", "orders/totals/1"])
def test_trap_an_old_checkpoint_under_an_id_that_foreach_batch_names(
    tmp_path: Path, app: str
) -> None:
    """Spark's id of the query was looked for alone; `foreachBatch` may write under two others."""
    uri, checkpoint = str(tmp_path / "totals"), Location.of(str(tmp_path / "checkpoint"))
    bound = QuerySettings(app="shop:totals", checkpoints="unused", app_ids={"totals": "our-totals"})
    store = Store.at(str(tmp_path / "store"), settings=Settings(queries={"orders": bound})).make()
    for batch in range(3):
        tables.append(uri, {"n": [batch]}, app, batch)

    def refuse() -> None:
        generation = store.generations.of_checkpoint(checkpoint)
        overtaken.refuse(store, generation, "orders", SPARKS_ID, checkpoint, {"totals": uri})

    with pytest.raises(NotAlignedError, match=r"up to 2, but in .* no batch has begun"):
        refuse()
    for batch in range(2):
        checkpoint.put(f"offsets/{batch}", b"v1")
    with pytest.raises(NotAlignedError, match=r"up to 2, but in .* only batches up to 1 have"):
        refuse()
    checkpoint.put("offsets/2", b"v1")
    refuse()
