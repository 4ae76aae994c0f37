"""The catalog made anew from the savepoints: row for row the same."""

from __future__ import annotations

import dataclasses
import json
import signal

import pytest

from savepoints.errors import VerificationError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Labels, Savepoint
from savepoints.operations.inspect.verify import verify_all
from savepoints.operations.maintain import rebuild_catalog, tag
from savepoints.operations.maintain.rebuild_catalog import Rebuilt
from savepoints.store.savepoint import manifest
from savepoints.store.savepoint.labels import labels_path
from savepoints.store.tables.catalog import Catalog
from tests.processes import killed_at
from tests.samples import contents, lasting, savepoint, take, unpack
from tests.templates import made_once

pytestmark = pytest.mark.drawn(5)

LOG = "catalog/_delta_log"


@made_once
def filled(store: Store, place: Location) -> list[Savepoint]:
    """Give a store three savepoints of two queries, one tagged and pinned later, one broken."""
    first = take(store, unpack("changelog", place / "one"), tags=("born",))
    second = take(store, unpack("rocksdb", place / "two"), query="other", batch_id=1)
    third = take(store, place / "two", query="other")
    store.catalog.relabel(
        [first.id],
        lambda old: dataclasses.replace(
            old, tags=(*old.tags, "later"), description="ü \"1\" 'x'", pinned=True
        ),
    )
    store.catalog.relabel(
        [second.id], lambda old: dataclasses.replace(old, state="broken", state_reason="why")
    )
    known = store.catalog.all()
    # Two queries within a second of a store's clock have no order of their own.
    assert {one.id for one in known} == {third.id, second.id, first.id}
    return known


def rebuilt(store: Store) -> Rebuilt:
    return rebuild_catalog.execute(rebuild_catalog.plan(store), store)


def without_catalog(store: Store) -> None:
    store.root.delete([info.path for info in store.root.list("catalog")])


def flipped(store: Store, path: str, at: int = -20) -> None:
    data = bytearray(store.root.get(path))
    data[at] ^= 0x01
    store.root.put(path, bytes(data))


def test_a_catalog_that_is_right_is_left_alone(place: Location, store: Store) -> None:
    known = filled(store, place)
    before = lasting(store)

    plan = rebuild_catalog.plan(store)
    done = rebuild_catalog.execute(plan, store)

    assert plan.done
    assert (plan.steps, done.savepoints) == ((), len(known))
    assert lasting(store) == before


def test_a_lost_catalog_comes_back_row_for_row(place: Location, store: Store) -> None:
    known = filled(store, place)
    without_catalog(store)
    assert store.catalog.all() == []

    done = rebuilt(store)

    assert store.catalog.all() == known
    assert set(done.added) == {one.id for one in known}
    assert done.aside is None
    assert verify_all(store).grade == "ok"


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda root: root.delete([f"{LOG}/{0:020}.json"]), id="log without beginning"),
        pytest.param(
            lambda root: root.put(f"{LOG}/{1:020}.json", b'{"add": 3'), id="a commit cut off"
        ),
        pytest.param(
            lambda root: root.delete(
                [info.path for info in root.list("catalog") if info.path.endswith(".parquet")]
            ),
            id="without its rows",
        ),
    ],
)
def test_a_table_that_cannot_be_read_is_put_aside_and_made_anew(
    damage: object, place: Location, store: Store
) -> None:
    known = filled(store, place)
    damage(store.root)  # type: ignore[operator]
    before = contents(store.root / "catalog")

    plan = rebuild_catalog.plan(store)
    done = rebuild_catalog.execute(plan, store)

    assert store.catalog.all() == known
    assert plan.aside == done.aside
    assert plan.aside is not None
    assert contents(store.root / plan.aside) == before
    assert rebuild_catalog.plan(store).done


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "unreadable"])
@pytest.mark.parametrize("is_born", [True, False], ids=["the newer has it", "given later"])
def test_trap_a_tag_comes_back_on_two_savepoints(
    local_store: Store, on_local: Location, is_lost: bool, is_born: bool
) -> None:
    """One whose making was killed before it had a row was to have a tag that another has now."""
    place = unpack("changelog", on_local / "one")
    older = take(local_store, place, tags=("release",) if is_born else (), batch_id=1)
    if is_born:
        local_store.catalog.remove([older.id])
    newer = take(local_store, place, tags=("release",))
    if not is_born:
        local_store.catalog.remove([newer.id])
        tag.execute(tag.plan(local_store, older.id, add=["release"]), local_store)
    named = local_store.catalog.find("release").id
    assert named == (newer.id if is_born else older.id)

    if is_lost:
        without_catalog(local_store)
    else:
        local_store.root.put(f"{LOG}/{1:020}.json", b'{"add": 3')
    rebuilt(local_store)

    assert {one.id for one in local_store.catalog.all()} == {older.id, newer.id}
    assert local_store.catalog.find("release").id == named
    assert rebuild_catalog.plan(local_store).done


def test_only_rows_that_differ_are_changed(local_store: Store, on_local: Location) -> None:
    known = filled(local_store, on_local)
    newest, middle, oldest = known
    local_store.catalog.remove([newest.id])
    local_store.catalog.put([dataclasses.replace(middle, generation=9)])
    local_store.catalog.put([oldest.with_labels(Labels(oldest.query))])
    stray = savepoint(3, query="stray")
    local_store.catalog.add(stray)

    plan = rebuild_catalog.plan(local_store)
    done = rebuild_catalog.execute(plan, local_store)

    assert local_store.catalog.all() == known
    assert (done.added, set(done.changed)) == ((newest.id,), {middle.id, oldest.id})
    assert done.removed == (stray.id,)
    assert f"remove the catalog row of {stray.id}, which has no manifest" in {
        step.what for step in plan.steps
    }


@pytest.mark.parametrize("point", ["cleared", "anew", "rows"])
def test_killed_and_run_again_it_is_as_if_it_had_not_been_killed(
    point: str, local_store: Store, on_local: Location
) -> None:
    known = filled(local_store, on_local)
    local_store.catalog.remove([known[0].id])
    local_store.catalog.add(savepoint(3, query="stray"))
    if point != "rows":
        local_store.root.put(f"{LOG}/{1:020}.json", b"{")
    words = ("check", "--rebuild-catalog", "--yes", "--store", str(local_store.root))

    assert killed_at(f"rebuild-catalog.{point}", *words) == -signal.SIGKILL
    if point == "cleared":
        # Not as in a store without savepoints.
        with pytest.raises(VerificationError, match="is damaged") as refused:
            local_store.reopened().catalog.all()
        assert "savepoints check --rebuild-catalog" in refused.value.hint
    assert killed_at("", *words) == 0

    assert local_store.reopened().catalog.all() == known
    assert rebuild_catalog.plan(local_store).done


def test_a_row_whose_manifest_is_damaged_stays_and_is_named(
    local_store: Store, on_local: Location
) -> None:
    known = filled(local_store, on_local)
    flipped(local_store, manifest.manifest_path(known[0].id))

    plan = rebuild_catalog.plan(local_store)
    rebuild_catalog.execute(plan, local_store)

    assert local_store.catalog.all() == known
    assert plan.kept == (known[0].id,)
    assert any(manifest.manifest_path(known[0].id) in warning for warning in plan.warnings)


def test_what_cannot_be_had_back_is_named_and_the_rest_comes_back(
    local_store: Store, on_local: Location
) -> None:
    known = filled(local_store, on_local)
    flipped(local_store, manifest.manifest_path(known[0].id))
    without_catalog(local_store)

    plan = rebuild_catalog.plan(local_store)
    done = rebuild_catalog.execute(plan, local_store)

    assert local_store.catalog.all() == known[1:]
    assert done.lost == (known[0].id,)
    assert f"{known[0].id} cannot be recovered" in " ".join(plan.warnings)


def test_damaged_labels_are_taken_from_the_row(local_store: Store, on_local: Location) -> None:
    known = filled(local_store, on_local)
    path = labels_path(known[-1].id)
    flipped(local_store, path)

    plan = rebuild_catalog.plan(local_store)
    rebuild_catalog.execute(plan, local_store)

    assert local_store.catalog.all() == known
    assert any(path in warning for warning in plan.warnings)


def test_one_that_is_being_removed_stays_hidden(local_store: Store, on_local: Location) -> None:
    known = filled(local_store, on_local)
    gone = known[0]
    local_store.catalog.relabel([gone.id], lambda old: dataclasses.replace(old, state="expired"))
    expected = local_store.catalog.all()

    local_store.catalog.remove([gone.id])
    rebuilt(local_store)
    assert local_store.catalog.all() == known[1:], "its row was taken away already"

    local_store.root.put(f"{LOG}/{1:020}.json", b"{")
    rebuilt(local_store)
    assert local_store.catalog.all() == expected, "nobody knows any more whether it was"


@pytest.mark.parametrize(
    "name",
    ["..", "sp-1", "%2e%2e", "sp-20261121-101530-k3f9ab'--", "latest", "SP-20261121-101530-k3f9ab"],
)
def test_directories_with_hostile_names_are_never_opened(
    name: str, local_store: Store, on_local: Location
) -> None:
    known = filled(local_store, on_local)
    stored = local_store.root.get(manifest.manifest_path(known[0].id))
    if name != "..":
        local_store.root.put(f"savepoints/{name}/manifest.json", stored)
    else:
        local_store.root.put("manifest.json", stored)
    without_catalog(local_store)

    rebuilt(local_store)

    assert local_store.catalog.all() == known


def test_a_manifest_in_another_savepoints_directory_is_no_savepoint(
    local_store: Store, on_local: Location
) -> None:
    known = filled(local_store, on_local)
    other = "sp-20261121-101530-k3f9ab"
    stored = local_store.root.get(manifest.manifest_path(known[0].id))
    local_store.root.put(manifest.manifest_path(other), stored)

    plan = rebuild_catalog.plan(local_store)

    assert plan.lost == (other,)
    assert plan.added == ()


@pytest.mark.parametrize("hostile", ["../../outside", "x') OR ('a'='a", "/etc", "%2e%2e/x", "a\nb"])
def test_a_catalog_with_hostile_ids_is_put_aside(
    hostile: str, local_store: Store, on_local: Location
) -> None:
    known = filled(local_store, on_local)
    outside = on_local / "outside"
    outside.put("manifest.json", b"secret")
    local_store.catalog.add(savepoint(1, id=hostile))

    plan = rebuild_catalog.plan(local_store)
    rebuild_catalog.execute(plan, local_store)

    assert local_store.catalog.all() == known
    assert plan.aside is not None
    assert contents(outside) == {"manifest.json": b"secret"}


def test_the_rebuilt_catalog_has_the_same_bytes_of_facts_as_a_fresh_one(
    local_store: Store, on_local: Location
) -> None:
    filled(local_store, on_local)
    before = [one.to_json() for one in local_store.catalog.all()]
    without_catalog(local_store)

    rebuilt(local_store)

    after = [one.to_json() for one in Catalog(local_store.root).all()]
    assert json.dumps(after) == json.dumps(before)
