"""The manifest: written once, read back equal, refused when damaged."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoints.errors import VerificationError
from savepoints.handle import Store
from savepoints.store.savepoint.manifest import Manifest, StoredFile, manifest_path
from tests.samples import savepoint

PATH = manifest_path(savepoint(1).id)
PATHS = st.from_regex(r"[\w][\w .=-]{0,9}(/[\w][\w .=-]{0,9}){0,3}", fullmatch=True)
FILES = st.lists(
    st.builds(
        StoredFile,
        path=PATHS,
        stored_at=PATHS.map(lambda path: f"savepoints/{savepoint(1).id}/{path}"),
        size=st.integers(min_value=0),
        sha256=st.text("0123456789abcdef", min_size=64, max_size=64),
    ),
    max_size=4,
).map(tuple)


@given(native=FILES, canonical=FILES)
def test_a_manifest_is_read_as_it_was_written(
    native: tuple[StoredFile, ...], canonical: tuple[StoredFile, ...]
) -> None:
    manifest = Manifest(savepoint(1), native, canonical)

    assert Manifest.parse(manifest.to_bytes(), PATH) == manifest
    assert manifest.files == native + canonical


def test_equal_manifests_are_equal_bytes() -> None:
    stored_at = f"files/{savepoint(1).query_id}/b"
    manifest = Manifest(savepoint(1), (StoredFile("a", stored_at, 1, "c"),))

    assert Manifest.parse(manifest.to_bytes(), PATH).to_bytes() == manifest.to_bytes()
    assert json.loads(manifest.to_bytes())["schema_version"] == 1


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"{}", b"null", b'{"schema_version": 2}', b'{"schema_version": 1}']
)
def test_what_is_no_manifest_is_refused_and_named(data: bytes) -> None:
    with pytest.raises(VerificationError, match="the-path") as refused:
        Manifest.parse(data, "the-path")

    assert refused.value.details == {"file": "the-path"}


def test_a_missing_manifest_names_savepoint_and_path(store: Store) -> None:
    missing = savepoint(1).id

    with pytest.raises(VerificationError) as refused:
        store.manifest(missing)

    assert refused.value.details == {"savepoint": missing, "files": [manifest_path(missing)]}
