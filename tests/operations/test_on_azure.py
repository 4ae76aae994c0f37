"""Verbs that need no JVM, with checkpoint, store and table on Azure; see `tests.azure`."""

from __future__ import annotations

import pytest

from savepoints.errors import StoreNotFoundError, TargetExistsError
from savepoints.handle import Store
from savepoints.io import Location
from tests import samples
from tests.operations import native_story

pytestmark = pytest.mark.nightly


def test_a_query_is_rolled_back_with_its_table_verified_and_copied(
    on_azure: Location, on_local: Location
) -> None:
    native_story.require_exact(on_azure, on_local, "rocksdb")


def test_trap_a_listing_on_azure_has_tags_without_quotes_and_files_are_shared_all_the_same(
    on_azure: Location,
) -> None:
    native_story.require_files_shared(on_azure)


def test_what_is_not_there_or_taken_is_named(on_azure: Location) -> None:
    host = on_azure.uri.bucket.partition("@")[2]
    with pytest.raises(StoreNotFoundError, match="nowhere@") as refused:
        Store.at(f"abfss://nowhere@{host}/store").make()
    assert "az storage container create" in refused.value.hint

    live = samples.unpack("rocksdb", on_azure / "live")
    store = Store.at(str(on_azure / "store")).make()
    store.create(checkpoint=str(live), query="totals", forms=("native",)).execute()
    with pytest.raises(TargetExistsError):
        store.savepoint("latest", query="totals").restore(str(live))
