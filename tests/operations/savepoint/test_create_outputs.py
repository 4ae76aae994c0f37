"""Which versions of its outputs a savepoint pins, by the ids that the settings give."""

from __future__ import annotations

import pytest

from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import NotAlignedError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.operations.inspect import verification
from savepoints.operations.savepoint import create
from tests import samples
from tests.outputs import tables


def saved(store: Store, batch: int, bound: QuerySettings) -> Savepoint:
    """Save the batch of a sample query."""
    checkpoint = Location.of(f"{store.root}-totals")
    if not checkpoint.list():
        samples.unpack("rocksdb", checkpoint)
    settings = Settings(queries={"totals": bound})
    plan = create.plan(
        store.with_settings(settings),
        query="totals",
        checkpoint=str(checkpoint),
        batch_id=batch,
        forms=("native",),
    )
    return create.execute(plan, store.with_settings(settings))


def test_an_output_with_an_id_of_the_users_own_is_found_by_the_settings(
    local_store: Store, on_local: Location
) -> None:
    uri = str(on_local / "rows")
    for batch in range(4):
        tables.append(uri, {"n": [batch]}, "shop-rows", batch)
    bound = QuerySettings(app="a:b", checkpoints=str(on_local), outputs={"rows": uri})

    with pytest.raises(NotAlignedError, match="shop-rows"):
        saved(local_store, 2, bound)
    (found,) = saved(
        local_store, 2, bound.model_copy(update={"app_ids": {"rows": "shop-rows"}})
    ).outputs

    assert (found.version, found.app_id, found.app_version) == (2, "shop-rows", 2)


def test_a_file_sink_is_pinned_by_its_batch_and_looked_at(store: Store, place: Location) -> None:
    sink = place / "clicks"
    for batch in range(4):
        sink.put(f"_spark_metadata/{batch}", b"v1")
    bound = QuerySettings(app="a:b", checkpoints=str(place), outputs={"clicks": str(sink)})

    savepoint = saved(store, 2, bound)

    (found,) = savepoint.outputs
    assert (found.kind, found.version, found.app_version) == ("files", 2, 2)
    assert store.catalog.find("latest").outputs == (found,)
    assert store.manifest(savepoint.id).savepoint.outputs == (found,)
    findings, lifetimes = verification.check_outputs(savepoint)
    assert (findings, [one.until for one in lifetimes]) == ([], [None])
    (sink / "_spark_metadata").delete(["0"])
    (finding,), _ = verification.check_outputs(savepoint)
    assert "cannot be rewound to batch 2" in finding.problem


def test_trap_a_savepoint_by_hand_has_the_tables_that_attach_has_found(
    local_store: Store, on_local: Location
) -> None:
    uri = str(on_local / "rows")
    checkpoint = samples.unpack("rocksdb", on_local / "checkpoint")
    for batch in range(4):
        tables.append(uri, {"n": [batch]}, samples.query_id("rocksdb"), batch)

    def take(batch: int, outputs: dict[str, str] | None) -> Savepoint:
        plan = create.plan(
            local_store,
            checkpoint=str(checkpoint),
            query="totals",
            batch_id=batch,
            forms=("native",),
            outputs=outputs,
        )
        return create.execute(plan, local_store)

    found = take(2, {"rows": uri})
    by_hand, without = take(3, None), take(3, {})

    assert [(one.name, one.uri, one.version) for one in found.outputs] == [("rows", uri, 2)]
    assert [(one.name, one.uri, one.version) for one in by_hand.outputs] == [("rows", uri, 3)]
    assert without.outputs == ()
