"""Labels: what may change about a savepoint, in its own file first and then in the catalog."""

from __future__ import annotations

from dataclasses import replace

import pytest

from savepoints.errors import VerificationError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Labels
from savepoints.store.savepoint import labels
from savepoints.store.savepoint.labels import labels_path
from tests.processes import Processes
from tests.samples import savepoint

ONE = savepoint(1, tags=("born",))


def pinned(old: Labels) -> Labels:
    return replace(old, pinned=True)


def tagged(old: Labels) -> Labels:
    return replace(old, tags=(*old.tags, "release"))


def test_a_savepoint_that_never_changed_has_no_labels(store: Store) -> None:
    store.catalog.add(ONE)

    assert labels.read(store.root, ONE.id) is None
    assert store.catalog.relabel([ONE.id], lambda old: old) == [ONE]
    assert store.root.list("savepoints") == []


def test_a_change_is_in_the_file_and_in_the_catalog(store: Store) -> None:
    store.catalog.add(ONE)
    store.catalog.add(savepoint(2))

    (changed,) = store.catalog.relabel([ONE.id], pinned)

    assert changed == replace(ONE, pinned=True)
    assert store.catalog.all() == [savepoint(2), changed]
    assert labels.read(store.root, ONE.id) == Labels("orders", tags=("born",), pinned=True)


def test_changes_add_up(store: Store) -> None:
    store.catalog.add(ONE)
    store.catalog.relabel([ONE.id], pinned)
    store.catalog.relabel([ONE.id], tagged)

    (found,) = store.catalog.all()
    assert found.labels == Labels("orders", tags=("born", "release"), pinned=True)
    assert store.catalog.find("release") == found


def test_a_change_that_was_cut_off_before_the_catalog_is_finished_by_the_next(
    store: Store,
) -> None:
    store.catalog.add(ONE)
    labels.change(store.root, ONE, pinned)  # And killed here.
    assert not store.catalog.all()[0].pinned

    store.catalog.relabel([ONE.id], pinned)

    assert store.catalog.all()[0].pinned


def test_what_does_not_exist_is_left_out(store: Store) -> None:
    store.catalog.add(ONE)

    assert store.catalog.relabel(["sp-20261120-100000-aaaaaa"], pinned) == []
    assert store.catalog.all() == [ONE]


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"sha256": "0"}', b'{"tags": ["x"]}'])
def test_damaged_labels_are_named_and_replaced_by_what_the_catalog_has(
    local_store: Store, data: bytes
) -> None:
    local_store.catalog.add(ONE)
    local_store.root.put(labels_path(ONE.id), data or b" ")

    with pytest.raises(VerificationError, match=r"labels\.json"):
        labels.read(local_store.root, ONE.id)

    local_store.catalog.relabel([ONE.id], pinned)
    assert labels.read(local_store.root, ONE.id) == Labels("orders", tags=("born",), pinned=True)


def test_a_changed_letter_is_found(local_store: Store) -> None:
    local_store.catalog.add(ONE)
    local_store.catalog.relabel([ONE.id], pinned)
    path = labels_path(ONE.id)
    local_store.root.put(path, local_store.root.get(path).replace(b"born", b"torn"))

    with pytest.raises(VerificationError, match="SHA-256"):
        labels.read(local_store.root, ONE.id)


TAGGING = """
from dataclasses import replace
from savepoints.handle import Store
store = Store.at(uri).make()
store.catalog.relabel(
    [one.id for one in store.catalog.all()],
    lambda old: replace(old, tags=(*old.tags, f"by-{number}")),
)
"""


def test_four_who_tag_one_savepoint_at_once_lose_nothing(place: Location, store: Store) -> None:
    store.catalog.add(ONE)

    failed, errors = Processes(TAGGING, str(store.root), 4).end()

    assert failed == 0, errors
    wanted = {"born", *(f"by-{number}" for number in range(4))}
    assert set(store.catalog.all()[0].tags) == wanted
    known = labels.read(store.root, ONE.id)
    assert known is not None
    assert set(known.tags) == wanted
