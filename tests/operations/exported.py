"""Savepoints that have a canonical form, without Spark having written the rows."""

from __future__ import annotations

import dataclasses

from savepoints.handle import Store
from savepoints.model import FORMS, Savepoint
from savepoints.store.savepoint import manifest

ROWS = 5


def in_manifest(store: Store, taken: Savepoint) -> Savepoint:
    """Let the manifest have a canonical form, as an export that died before the catalog."""
    stored = store.manifest(taken.id)
    operators = tuple(
        one
        if one.native_only
        else dataclasses.replace(one, rows=ROWS, state_bytes=100, content_hash="0" * 32)
        for one in taken.operators
    )
    exported = dataclasses.replace(taken, forms=FORMS, operators=operators, spark_version="4.2.0")
    where = manifest.manifest_path(taken.id)
    store.root.put(where, dataclasses.replace(stored, savepoint=exported).to_bytes())
    return exported


def as_exported(store: Store, taken: Savepoint) -> Savepoint:
    """Let a savepoint have a canonical form without rows; plans do not read them."""
    exported = in_manifest(store, taken)
    store.catalog.exported(exported)
    return exported
