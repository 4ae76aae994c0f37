"""Names and paths, from users and from stored files, cannot leave the store.

Each manifest here is edited by hand, with a checksum that fits, by somebody who can write into the
store and wants a verb to touch something else.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from savepoints.errors import SavepointsError, UsageError, VerificationError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Labels, Savepoint
from savepoints.operations.check.check import check
from savepoints.operations.inspect.verify import verify
from savepoints.operations.maintain import copy, rebuild_catalog, tag
from savepoints.operations.rollback import rollback
from savepoints.operations.savepoint import create, export, restore
from savepoints.store.savepoint import labels, sealed
from savepoints.store.savepoint.manifest import Manifest, manifest_path
from tests.samples import contents, savepoint, take, unpack
from tests.templates import first_of

pytestmark = pytest.mark.drawn(5)

OTHER = "sp-20261121-101530-k3f9ab"
OUTSIDE = [
    "../secret",
    "../../outside/secret",
    "savepoints/{id}/../../../outside/secret",
    "savepoints/{id}/checkpoint/../../../../outside/secret",
    "/etc/passwd",
    "//etc/passwd",
    "file:///etc/passwd",
    "s3://elsewhere/secret",
    "savepoints/{id}/%2e%2e/%2e%2e/%2e%2e/outside/secret",
    "savepoints/{id}/..%2f..%2f..%2foutside/secret",
    "savepoints/{id}/..\\..\\..\\outside\\secret",
    "savepoints\\{id}\\checkpoint",
    "savepoints/{id}/./checkpoint",
    "savepoints/{id}//checkpoint",
    "savepoints/{id}/",
    "savepoints/{id}/a\0b",
    "savepoints/{id}/a\nb",
    f"savepoints/{OTHER}/checkpoint/metadata",
    "savepoints/{id}x/checkpoint/metadata",
    "files/another-query/000001.sst",
    "files/{query_id}/../another-query/000001.sst",
    "files/{query_id}x/000001.sst",
    "catalog/_delta_log/00000000000000000000.json",
    "leases/totals.json",
    "",
]


def edited(data: bytes, edit: Callable[[dict[str, Any]], None]) -> bytes:
    """Edit a manifest and make its checksum fit."""
    content = json.loads(data)
    del content["sha256"]
    edit(content)
    sha256 = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return json.dumps({**content, "sha256": sha256}, indent=1, sort_keys=True).encode()


def prepare(place: Location, store: Store) -> Savepoint:
    (place / "outside").put("secret", b"a secret")
    store.root.put("files/another-query/000001.sst", b"of another query")
    return first_of(store, place, "rocksdb")


def refused_everywhere(store: Store, place: Location, taken: Savepoint) -> None:
    """Require that every verb refuses the savepoint, names its manifest, and touches nothing."""
    path = manifest_path(taken.id)
    (place / "elsewhere").put(".keep", b"1")
    before = {**contents(place / "outside"), **contents(store.root / "files/another-query")}
    verbs: list[Callable[[], object]] = [
        lambda: restore.plan(store, taken.id, str(place / "target")),
        lambda: copy.plan(store, taken.id, str(place / "elsewhere")),
        lambda: export.execute(export.plan(store, taken.id), store),
        lambda: rollback.plan(store, taken.id, to=str(place / "target")),
    ]
    for verb in verbs:
        with pytest.raises(VerificationError, match=path):
            verb()
    report = verify(store, taken.id, depth="checksums")
    assert [(one.grade, one.what) for one in report.findings] == [("broken", path)]
    assert path in {one.name for one in check(store).seen if one.grade == "broken"}
    assert rebuild_catalog.plan(store).kept == (taken.id,)
    after = {**contents(place / "outside"), **contents(store.root / "files/another-query")}
    assert after == before
    assert contents(place / "target") == {}


@pytest.mark.parametrize("end", ["?X-Amz-Signature=secret", "#secret", "?"])
@pytest.mark.parametrize("begin", ["s3://bucket/store", "/var/store"])
def test_trap_a_query_in_the_uri_of_a_store_becomes_a_part_of_its_tables(
    begin: str, end: str
) -> None:
    with pytest.raises(UsageError) as refused:
        Store.at(begin + end)

    assert begin in refused.value.message
    assert "secret" not in refused.value.message


def test_trap_the_tables_of_a_store_are_written_to_one_place_and_read_from_another(
    on_local: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """deltalake reads `a%20b` as `a b`, which may be the directory of another store."""
    for plain in ("a b", "a%b", "ü+x=1"):
        store = Store.at(str(on_local / plain)).make()
        store.generations.begin("q", 1, on_local / "live", by="somebody")
        assert [one.query for one in Store.at(str(on_local / plain)).generations.all()] == ["q"]
    (on_local / "a%20b").put("mine", b"")
    monkeypatch.chdir(str(on_local / "a%20b"))
    before = set(contents(on_local))

    for uri in (str(on_local / "a%20b"), "store", "s3://bucket/a%C3%BC"):
        with pytest.raises(UsageError, match="which deltalake takes for"):
            Store.at(uri)

    assert set(contents(on_local)) == before


@pytest.mark.parametrize("character", list("[]^|\\"))
def test_trap_deltalake_panics_at_characters_in_the_path_of_a_store(
    character: str, on_local: Location
) -> None:
    for uri in (str(on_local / f"a{character}b"), f"s3://bucket/a{character}b/store"):
        with pytest.raises(UsageError, match=r"deltalake (writes no tables|takes for)") as refused:
            Store.at(uri)
        assert character in refused.value.hint

    assert on_local.list() == []


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_manifest_that_points_elsewhere_is_no_manifest(path: str) -> None:
    taken = savepoint(1)
    told = path.replace("{id}", taken.id).replace("{query_id}", taken.query_id)
    whole = Manifest(taken, ()).to_bytes()
    file = {"path": "metadata", "stored_at": told, "size": 1, "sha256": "0" * 64}

    for part in ("native", "canonical"):
        data = edited(whole, lambda one, part=part: one[part].append(file))  # type: ignore[misc]
        with pytest.raises(VerificationError, match=manifest_path(taken.id)):
            Manifest.parse(data, manifest_path(taken.id))


@pytest.mark.parametrize(
    "path",
    ["../metadata", "/etc/passwd", "%2e%2e/x", "..\\x", "a\0b", "a\nb", "", ".", "offsets/../../x"],
)
def test_a_manifest_whose_files_would_be_restored_elsewhere_is_no_manifest(path: str) -> None:
    taken = savepoint(1)
    stored_at = f"savepoints/{taken.id}/checkpoint/metadata"
    file = {"path": path, "stored_at": stored_at, "size": 1, "sha256": "0" * 64}
    data = edited(Manifest(taken, ()).to_bytes(), lambda one: one["native"].append(file))

    with pytest.raises(VerificationError, match=manifest_path(taken.id)):
        Manifest.parse(data, manifest_path(taken.id))


@pytest.mark.parametrize(
    "path",
    [
        "savepoints/{id}/../../../outside/secret",
        "savepoints/{id}/%2e%2e/%2e%2e/%2e%2e/outside/secret",
        "files/another-query/000001.sst",
    ],
)
def test_every_verb_refuses_an_edited_manifest_and_touches_nothing(
    path: str, local_store: Store, on_local: Location
) -> None:
    taken = prepare(on_local, local_store)
    told = path.replace("{id}", taken.id)
    where = manifest_path(taken.id)

    def edit(content: dict[str, Any]) -> None:
        content["native"][0]["stored_at"] = told

    local_store.root.put(where, edited(local_store.root.get(where), edit))

    refused_everywhere(local_store, on_local, taken)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("query_id", "../another-query"),
        ("query_id", ".."),
        ("query_id", "%2e%2e"),
        ("query_id", "another-query"),
        ("id", "../../outside"),
        ("id", OTHER),
    ],
)
def test_a_manifest_of_a_hostile_id_or_query_is_refused(
    key: str, value: str, local_store: Store, on_local: Location
) -> None:
    taken = prepare(on_local, local_store)
    where = manifest_path(taken.id)

    def edit(content: dict[str, Any]) -> None:
        content["savepoint"][key] = value

    local_store.root.put(where, edited(local_store.root.get(where), edit))

    refused_everywhere(local_store, on_local, taken)


@pytest.mark.parametrize("hostile", ["../x", "/etc", "a/b", "", ".", "..", "%2e%2e", "a\nb", "a\0"])
def test_names_from_users_are_refused(hostile: str, local_store: Store, on_local: Location) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    taken = take(local_store, checkpoint)
    before = set(contents(on_local))

    if hostile:  # Without a name, that of the checkpoint is taken.
        with pytest.raises(UsageError, match="invalid query name"):
            create.plan(local_store, query=hostile, checkpoint=str(checkpoint), forms=("native",))
    with pytest.raises(UsageError):
        create.plan(local_store, query="q", checkpoint=str(checkpoint), tags=(hostile,))
    with pytest.raises(UsageError):
        tag.plan(local_store, taken.id, add=(hostile,))
    with pytest.raises(SavepointsError):
        local_store.catalog.find(hostile)

    assert set(contents(on_local)) == before


@pytest.mark.parametrize("uri", ["s3://bucket/../other", "s3://bucket/a/./b", "s3://"])
def test_uris_that_climb_are_refused(uri: str) -> None:
    with pytest.raises(UsageError):
        Store.at(uri).make()


@pytest.mark.parametrize("hostile", ["../x", "/etc", "", ".lock", "a\\..\\b", "%2e%2e"])
def test_the_store_refuses_to_look_for_what_is_no_id(
    hostile: str, local_store: Store, on_local: Location
) -> None:
    (on_local / "x").put("manifest.json", b"secret")

    with pytest.raises(VerificationError, match="which is not a valid id"):
        local_store.manifest(hostile)
    with pytest.raises(VerificationError, match="which is not a valid id"):
        labels.read(local_store.root, hostile)


def test_labels_that_were_edited_by_hand_name_themselves_only(
    local_store: Store, on_local: Location
) -> None:
    taken = prepare(on_local, local_store)
    path = labels.labels_path(taken.id)
    hostile = Labels(taken.query, ("../../outside", "latest"), "../x", state_reason="/etc")
    local_store.root.put(path, sealed.encode(dataclasses.replace(hostile)))
    before = contents(on_local / "outside")

    report = verify(local_store, taken.id, depth="checksums")
    rebuild_catalog.execute(rebuild_catalog.plan(local_store), local_store)

    assert [one.what for one in report.findings] == [path]
    assert local_store.catalog.find("latest").id == taken.id
    assert contents(on_local / "outside") == before
    elsewhere = sealed.encode(dataclasses.replace(hostile, query="../../outside"))
    with pytest.raises(VerificationError, match="invalid query name"):
        labels.document(local_store.root, taken.id).decode(elsewhere)
