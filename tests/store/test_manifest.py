"""The manifest: written once, read back equal, refused when damaged."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoints.errors import VerificationError
from savepoints.store.manifest import Manifest, StoredFile, manifest_path
from savepoints.store.root import Store
from tests.samples import savepoint

FILES = st.lists(
    st.builds(
        StoredFile,
        path=st.text(min_size=1),
        stored_at=st.text(min_size=1),
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

    assert Manifest.parse(manifest.to_bytes(), "m") == manifest
    assert manifest.files == native + canonical


def test_equal_manifests_are_equal_bytes() -> None:
    manifest = Manifest(savepoint(1), (StoredFile("a", "b", 1, "c"),))

    assert Manifest.parse(manifest.to_bytes(), "m").to_bytes() == manifest.to_bytes()
    assert json.loads(manifest.to_bytes())["schema_version"] == 1


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"{}", b"null", b'{"schema_version": 2}', b'{"schema_version": 1}']
)
def test_what_is_no_manifest_is_refused_and_named(data: bytes) -> None:
    with pytest.raises(VerificationError, match="the-path") as refused:
        Manifest.parse(data, "the-path")

    assert refused.value.details == {"file": "the-path"}


def test_a_missing_manifest_names_savepoint_and_path(store: Store) -> None:
    with pytest.raises(VerificationError) as refused:
        store.manifest("sp-1")

    assert refused.value.details == {"savepoint": "sp-1", "files": [manifest_path("sp-1")]}
