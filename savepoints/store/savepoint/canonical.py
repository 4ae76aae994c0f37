"""The canonical form: a savepoint's state rows as one Delta table, `savepoints/<id>/state/`.

Spark writes and reads the rows (`savepoints.state.storage.read`); this is what can be known of the
table without a JVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from savepoints.delta_reader import open_delta
from savepoints.io import Location, in_parallel
from savepoints.store.savepoint import manifest
from savepoints.store.savepoint.manifest import StoredFile

if TYPE_CHECKING:
    from deltalake import DeltaTable

_LOG = "_delta_log/"


def table(root: Location, savepoint_id: str) -> Location:
    """Return where the rows of a savepoint lie."""
    return root / manifest.directory(savepoint_id) / "state"


def stored_files(root: Location, savepoint_id: str) -> tuple[StoredFile, ...]:
    """List and hash the files of the table: its log, and those that the log names.

    Others may be of a task that was given up and has not noticed yet; it removes them.
    """
    location = table(root, savepoint_id)
    prefix = f"{manifest.directory(savepoint_id)}/state"
    named = {*_written(root, savepoint_id).get_add_actions().column("path").to_pylist()}
    files = [info for info in location.list() if info.path in named or info.path.startswith(_LOG)]
    return tuple(
        in_parallel(
            lambda info: StoredFile(
                info.path, f"{prefix}/{info.path}", info.size, location.sha256(info.path)
            ),
            files,
        )
    )


def row_counts(root: Location, savepoint_id: str) -> dict[int, int]:
    """Return the number of rows by operator id, from the table's log."""
    actions = _written(root, savepoint_id).get_add_actions(flatten=True)
    counts: dict[int, int] = {}
    for operator_id, rows in zip(
        actions.column("partition.operator_id").to_pylist(),
        actions.column("num_records").to_pylist(),
        strict=True,
    ):
        counts[int(operator_id)] = counts.get(int(operator_id), 0) + int(rows)
    return counts


def _written(root: Location, savepoint_id: str) -> DeltaTable:
    """Open the table as it was written, in one commit."""
    return open_delta(table(root, savepoint_id), version=0)
