"""The canonical form: a savepoint's state rows as one Delta table, `savepoints/<id>/state/`.

Spark writes and reads the rows (`savepoints.state.storage.read`); this is what can be known of the
table without a JVM.
"""

from __future__ import annotations

from savepoints.delta_reader import open_delta
from savepoints.io import Location, in_parallel
from savepoints.store.savepoint import manifest
from savepoints.store.savepoint.manifest import StoredFile


def table(root: Location, savepoint_id: str) -> Location:
    """Return where the rows of a savepoint lie."""
    return root / manifest.directory(savepoint_id) / "state"


def stored_files(root: Location, savepoint_id: str) -> tuple[StoredFile, ...]:
    """List and hash the files of the table, its log included.

    Hadoop's local file system leaves hidden checksum files beside them, which are not needed.
    """
    location = table(root, savepoint_id)
    prefix = f"{manifest.directory(savepoint_id)}/state"
    files = [info for info in location.list() if not info.path.rpartition("/")[2].startswith(".")]
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
    opened = open_delta(table(root, savepoint_id))
    actions = opened.get_add_actions(flatten=True)
    counts: dict[int, int] = {}
    for operator_id, rows in zip(
        actions.column("partition.operator_id").to_pylist(),
        actions.column("num_records").to_pylist(),
        strict=True,
    ):
        counts[int(operator_id)] = counts.get(int(operator_id), 0) + int(rows)
    return counts
