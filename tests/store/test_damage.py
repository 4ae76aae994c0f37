"""Damage of every kind of object in a store is found, and the object is named.

Bits are flipped, files cut, deleted, and swapped with others of their kind. The rest of the store
stays usable. Each time a kind of object meets one damage, drawn by the seed of the run, and the
nightly tier goes through all of them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.inspect.verify import verify_all
from savepoints.operations.maintain import rebuild_catalog
from savepoints.operations.savepoint import restore
from savepoints.store.root import TABLES
from savepoints.store.tables import dropped_files
from tests.draw import chance, some
from tests.store import damaged

pytestmark = pytest.mark.drawn(5)

# Every kind of object, by its path.
KINDS = {
    "manifest": r"savepoints/[^/]+/manifest\.json",
    "labels": r"savepoints/[^/]+/labels\.json",
    "metadata": r"savepoints/.*/checkpoint/metadata",
    "offsets": r"savepoints/.*/checkpoint/offsets/\d+",
    "commit": r"savepoints/.*/checkpoint/commits/\d+",
    "source log": r"savepoints/.*/checkpoint/sources/.*",
    "operator metadata": r"savepoints/.*/_metadata/metadata",
    "state schema": r"savepoints/.*/_metadata/schema",
    "snapshot": r"files/.*\.zip",
    "changelog": r"files/.*\.changelog",
    "delta": r"files/.*\.delta",
    "shared file": r"files/.*\.sst",
    "rows": r"savepoints/.*/state/.*\.parquet",
    "log of the rows": r"savepoints/.*/state/_delta_log/.*\.json",
    **{
        f"{what} of the {table}": rf"{table}/{pattern}"
        for table in ("catalog", "generations", "events")
        for what, pattern in {
            "rows": r"part-.*\.parquet",
            "log": r"_delta_log/\d+\.json",
            "checkpoint": r"_delta_log/\d+\.checkpoint\.parquet",
            "checksums": r"_sums/\d+\.json",
        }.items()
    },
}
# These have no checksum of their own: a value in them can change into another that makes sense.
# What breaks their form is found; a lease that is gone is free, an operation that is gone is over.
WITHOUT_CHECKSUM = {
    "lease": r"leases/.*\.json",
    "reader": r"uses/.*\.json",
    "operation": r"operations/op-.*\.json",
    "finished operation": r"operations/finished/.*\.json",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Make one store for all tests, which damage copies of it."""
    return damaged.make(Location.of(str(tmp_path_factory.mktemp("damage") / "place")))


@pytest.fixture(scope="module")
def usual(whole: Store, tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str]]:
    """Return what is said of the store while it is whole: two operations are unfinished."""
    said = damaged.found(damaged.copy_of(whole, tmp_path_factory.mktemp("usual") / "store"))
    assert {name.split("/")[0] for name, _ in said} == {"operations"}
    return set(said)


def paths(store: Store, pattern: str) -> list[str]:
    """Return the files of a kind; of the rows of a table those that a reader needs."""
    found = [info.path for info in store.root.list() if re.fullmatch(pattern, info.path)]
    table, _, name = found[0].partition("/")
    if table not in TABLES or not name.startswith("part-"):
        return found
    needed = dropped_files.current(store.root / table)
    return [path for path in found if path.partition("/")[2] in needed]


def put(store: Store, path: str, data: bytes) -> None:
    store.root.delete([path])
    store.root.put(path, data)


# How many damages of each kind are tried: one of them, or all.
TRIED = ["one", pytest.param("all", marks=pytest.mark.nightly)]
# What costs more is tried with some kinds each time.
SOME_KINDS = some(6, KINDS, "kinds")


def damages(store: Store, path: str, rng: Random) -> list[tuple[str, bytes | None]]:
    """Return what the file is to be instead: some bits flipped, cut, gone."""
    data = store.root.get(path)
    flipped = []
    for _ in range(3):
        at, bit = rng.randrange(len(data)), rng.randrange(8)
        changed = bytearray(data)
        changed[at] ^= 1 << bit
        flipped.append((f"bit {bit} of byte {at} flipped", bytes(changed)))
    cut = rng.randrange(1, len(data))
    return [
        *flipped,
        (f"cut to {cut}", data[:cut]),
        ("one byte cut off", data[:-1]),
        ("emptied", b""),
        ("gone", None),
    ]


def is_named(path: str, said: set[tuple[str, str]]) -> bool:
    """Say whether an object is named, with its path in the store or within its table."""
    within = path.partition("/")[2]
    return any(path in name or path in seen or within in seen for name, seen in said)


@pytest.mark.parametrize("tried", TRIED)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_flipped_cut_or_gone_is_found_and_named(
    kind: str, tried: str, whole: Store, usual: set[tuple[str, str]], tmp_path: Path
) -> None:
    rng = chance(kind, tried)
    path = rng.choice(paths(whole, KINDS[kind]))
    some = damages(whole, path, rng)

    for number, (how, data) in enumerate(some if tried == "all" else [rng.choice(some)]):
        store = damaged.copy_of(whole, tmp_path / str(number))
        if data is None:
            store.root.delete([path])
        else:
            put(store, path, data)
        said = set(damaged.found(store)) - usual
        assert is_named(path, said), f"{path}: {how}: {said}"


@pytest.mark.parametrize("kind", SOME_KINDS)
def test_two_that_are_swapped_are_found_and_named(
    kind: str, whole: Store, usual: set[tuple[str, str]], tmp_path: Path
) -> None:
    store = damaged.copy_of(whole, tmp_path / "store")
    candidates, rng = paths(store, KINDS[kind]), chance(kind, "swapped")
    one = rng.choice(candidates)
    data = store.root.get(one)
    others = [path for path in candidates if store.root.get(path) != data]
    if not others:  # One of its kind: one of another, but what says which files there are.
        others = [path for path in paths(store, r".*\.(json|parquet)") if path != one]
        others = [path for path in others if not path.endswith("/manifest.json")]
    other = rng.choice(others)
    content = store.root.get(other)
    put(store, other, data)
    put(store, one, content)

    said = set(damaged.found(store)) - usual

    assert is_named(one, said), f"{one} and {other}: {said}"
    assert is_named(other, said), f"{one} and {other}: {said}"


@pytest.mark.parametrize("kind", SOME_KINDS)
def test_the_rest_of_the_store_stays_usable(kind: str, whole: Store, tmp_path: Path) -> None:
    store = damaged.copy_of(whole, tmp_path / "store")
    path = chance(kind, "usable").choice(paths(store, KINDS[kind]))
    put(store, path, store.root.get(path)[:-7])
    affected = {
        one.id
        for one in whole.catalog.all()
        if path in {file.stored_at for file in whole.manifest(one.id).files}
        or path == f"savepoints/{one.id}/manifest.json"
    }

    rebuild_catalog.execute(rebuild_catalog.plan(store), store)

    expected = [one.id for one in whole.catalog.all()]
    assert [one.id for one in store.catalog.all()] == expected
    grades = {one.savepoint_id: one.grade for one in verify_all(store).reports}
    assert {name for name, grade in grades.items() if grade == "broken"} == affected
    spared = next(name for name in expected if name not in affected)
    target = str(tmp_path / "restored")
    restore.execute(restore.plan(store, spared, target, form="native"), store)
    assert (tmp_path / "restored" / "metadata").exists()


@pytest.mark.parametrize("tried", TRIED)
@pytest.mark.parametrize("kind", WITHOUT_CHECKSUM)
def test_a_small_file_whose_form_is_broken_is_found_and_named(
    kind: str, tried: str, whole: Store, usual: set[tuple[str, str]], tmp_path: Path
) -> None:
    rng = chance(kind, tried)
    path = rng.choice(paths(whole, WITHOUT_CHECKSUM[kind]))
    data = whole.root.get(path)
    content = json.loads(data)
    first = next(iter(content))
    broken = (
        data[: len(data) // 2],
        data[:-1],
        data.replace(b'"', b"#", 1),
        data.replace(first.encode(), first.upper().encode(), 1),
        b"[]",
        b"\xff\xfe",
        b"",
    )

    for number, damage in enumerate(broken if tried == "all" else [rng.choice(broken)]):
        store = damaged.copy_of(whole, tmp_path / str(number))
        put(store, path, damage)
        said = set(damaged.found(store)) - usual
        assert is_named(path, said), f"{path}: {damage[:80]!r}: {said}"
