"""Whatever is shared and whatever the policy: no file that a savepoint needs is ever deleted."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from savepoints.handle import Store
from savepoints.operations.maintain import expire, gc
from savepoints.store.retention_policy import RetentionPolicy
from savepoints.store.savepoint.manifest import Manifest, StoredFile, manifest_path
from tests.draw import examples
from tests.leftovers import all_are_whole, left_over
from tests.samples import savepoint

SST = st.sampled_from("abcdef")
POLICIES = st.builds(
    RetentionPolicy,
    keep_last=st.integers(0, 3),
    keep_hourly=st.integers(1, 3),
    keep_daily=st.integers(0, 3),
)


@st.composite
def manifests(draw: st.DrawFn) -> list[Manifest]:
    """Describe savepoints of two queries, one a fork of the other, that share some files."""
    return [
        _manifest(
            number,
            query=draw(st.sampled_from(["orders", "fork"])),
            generation=draw(st.integers(1, 2)),
            tags=draw(st.sampled_from([(), (), ("release",)])),
            ssts=draw(st.sets(SST, max_size=4)),
        )
        for number in range(draw(st.integers(1, 7)))
    ]


def _manifest(
    number: int, *, query: str, generation: int, tags: tuple[str, ...], ssts: set[str]
) -> Manifest:
    one = replace(savepoint(number * 7, query=query, tags=tags), generation=generation)
    shared = [(f"{name}.sst", f"files/{one.query_id}/{name}.sst") for name in sorted(ssts)]
    own = f"savepoints/{one.id}/checkpoint/metadata"
    return Manifest(one, tuple(_file(*each) for each in (("metadata", own), *shared)))


def _file(path: str, stored_at: str) -> StoredFile:
    return StoredFile(path, stored_at, len(path), hashlib.sha256(path.encode()).hexdigest())


# Each makes a store.
@settings(max_examples=examples(5, 50))
@given(manifests(), POLICIES, st.data())
def test_what_stays_is_whole_and_nothing_else_is_left(
    described: list[Manifest], policy: RetentionPolicy, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "store").mkdir()
        store = Store.at(f"{directory}/store").make()
        for one in described:
            for file in one.files:
                store.root.put(file.stored_at, file.path.encode())
            store.root.put(manifest_path(one.savepoint.id), one.to_bytes())
            store.catalog.add(one.savepoint)
        first = described[data.draw(st.integers(0, len(described) - 1), "begun from")].savepoint
        store.generations.begin("other", 1, store.root / "x", by="restore", begun_from=first.id)
        plan = expire.plan(store, policy)
        kept = {one.savepoint_id for one in plan.savepoints if one.kept}

        done = expire.execute(plan, store)

        assert set(done.removed) == {one.savepoint_id for one in plan.removed}
        assert done.bytes == plan.bytes
        assert set(all_are_whole(store)) == kept
        assert first.id in kept
        assert max(described, key=lambda one: one.savepoint.created_at).savepoint.id in kept
        assert left_over(store) == set()
        assert gc.plan(store, grace=timedelta(seconds=-1)).orphans == ()
