"""Canonical rows that somebody has changed, with checksums that fit."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq

from savepoints.handle import Store
from savepoints.store.savepoint.manifest import manifest_path


def edit_rows(store: Store, savepoint_id: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change the rows of the first file of a savepoint's canonical table."""
    stored = store.manifest(savepoint_id)
    file = next(one for one in stored.canonical if one.path.endswith(".parquet"))
    sink = BytesIO()
    rows = pq.read_table(BytesIO(store.root.get(file.stored_at)), partitioning=None)
    pq.write_table(change(rows), sink)
    data = sink.getvalue()
    store.root.put(file.stored_at, data)
    folder, _, name = file.stored_at.rpartition("/")
    store.root.delete([f"{folder}/.{name}.crc"])  # Hadoop's own, on a local disk alone.
    fits = dataclasses.replace(file, size=len(data), sha256=hashlib.sha256(data).hexdigest())
    files = tuple(fits if one == file else one for one in stored.canonical)
    manifest = dataclasses.replace(stored, canonical=files)
    store.root.put(manifest_path(savepoint_id), manifest.to_bytes())
