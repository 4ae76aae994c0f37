"""What lies below `savepoints/` and `files/`, and which savepoint needs which shared file.

Whoever deletes files decides by this, and holds the lease of the query id meanwhile, so that nobody
adds a manifest that names them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from savepoints.errors import VerificationError
from savepoints.io import Location, ObjectInfo, in_parallel
from savepoints.model import Savepoint, is_id
from savepoints.store.savepoint import manifest
from savepoints.store.savepoint.labels import labels_path
from savepoints.store.savepoint.manifest import Manifest

_SAVEPOINTS = "savepoints"
SHARED = "files"


@dataclass(frozen=True)
class Directory:
    """One directory below `savepoints/`.

    Attributes:
        manifest: None when it is missing, damaged, or of no interest.
        query_id: Of the row, the manifest, or the checkpoint within; None if not recorded.
    """

    savepoint_id: str
    row: Savepoint | None
    files: tuple[ObjectInfo, ...]
    manifest: Manifest | None
    problem: str
    is_newer: bool
    query_id: str | None

    @property
    def data(self) -> tuple[ObjectInfo, ...]:
        """Its files but for labels, which are hardly any bytes and may come and go."""
        return tuple(info for info in self.files if info.path != labels_path(self.savepoint_id))

    @property
    def own(self) -> tuple[ObjectInfo, ...]:
        """Its files but for manifest and labels, which go last."""
        last = manifest.manifest_path(self.savepoint_id)
        return tuple(info for info in self.data if info.path != last)


@dataclass(frozen=True)
class Inventory:
    """The directories of savepoints that were looked at, by id."""

    directories: Mapping[str, Directory]

    def shared(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the shared files that savepoints name, with their sizes."""
        return {
            file.stored_at: file.size
            for one in ids
            if (found := self.directories.get(one)) and found.manifest
            for file in found.manifest.files
            if file.stored_at.startswith(f"{SHARED}/")
        }

    def unknown(self, query_id: str, ids: Iterable[str]) -> list[str]:
        """Say which shared files of a query id may be needed by whom nobody knows.

        Returns:
            What is wrong with each savepoint whose manifest cannot be read.
        """
        found = (self.directories[one] for one in ids if one in self.directories)
        return [
            f"{one.savepoint_id} {one.problem}"
            for one in found
            if one.problem and one.query_id in {query_id, None} and _may_name_files(one)
        ]

    def missing(self, savepoint_id: str, shared: Mapping[str, int]) -> list[str]:
        """Name the files of a savepoint that are not there with their size."""
        found = self.directories[savepoint_id]
        there = {info.path: info.size for info in found.files} | dict(shared)
        files = found.manifest.files if found.manifest else ()
        return [file.stored_at for file in files if there.get(file.stored_at) != file.size]


def list_directories(
    root: Location, rows: Sequence[Savepoint], query_ids: Iterable[str] | None = None
) -> Inventory:
    """Look at the directories of savepoints.

    Args:
        query_ids: Only those of these, and directories without a row; by default all.
    """
    wanted = None if query_ids is None else frozenset(query_ids)
    by_id = {row.id: row for row in rows}
    listed: dict[str, list[ObjectInfo]] = {name: [] for name in by_id}
    for info in root.list(_SAVEPOINTS):
        name = info.path.split("/")[1]
        if is_id(name) or name in by_id:
            listed.setdefault(name, []).append(info)
    names = [
        name
        for name in listed
        if wanted is None or name not in by_id or by_id[name].query_id in wanted
    ]
    found = in_parallel(lambda name: _look(root, by_id.get(name), name, listed[name]), names)
    return Inventory({one.savepoint_id: one for one in found})


def look(root: Location, row: Savepoint) -> Directory:
    """Look at the directory of one savepoint."""
    files = root.list(manifest.directory(row.id))
    return _look(root, row, row.id, files)


def is_shared(path: str) -> bool:
    """Return True for a path of the form that `native.pin` gives to shared files.

    `files/<query id>/<name>.sst` or `files/<query id>/<savepoint id>/…`.
    """
    _, _, *rest = path.split("/")
    return rest[0].endswith(".sst") if len(rest) == 1 else len(rest) > 1 and is_id(rest[0])


def shared_files(root: Location, query_id: str) -> dict[str, ObjectInfo]:
    """Return the shared files of a query id that are there."""
    return {info.path: info for info in root.list(f"{SHARED}/{query_id}")}


def _look(
    root: Location, row: Savepoint | None, savepoint_id: str, files: list[ObjectInfo]
) -> Directory:
    path = manifest.manifest_path(savepoint_id)
    read, problem, is_newer = None, "has no manifest", False
    if any(info.path == path for info in files):
        try:
            data = root.get(path)
            is_newer = _version(data) > manifest.SCHEMA_VERSION
            read, problem = Manifest.parse(data, path), ""
        except FileNotFoundError:
            pass  # Removed at this moment.
        except VerificationError as error:
            problem = f"has a manifest that cannot be read: {error.message}"
    if row is not None:
        query_id: str | None = row.query_id
    else:
        query_id = read.savepoint.query_id if read else _query_id_within(root, savepoint_id)
    return Directory(savepoint_id, row, tuple(files), read, problem, is_newer, query_id)


def _version(data: bytes) -> int:
    try:
        return int(json.loads(data)["schema_version"])
    except (ValueError, KeyError, TypeError):
        return 0


def _query_id_within(root: Location, savepoint_id: str) -> str | None:
    """Read Spark's id of the query from the copy of its checkpoint."""
    try:
        data = json.loads(root.get(f"{manifest.directory(savepoint_id)}/checkpoint/metadata"))
        return str(data["id"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _may_name_files(one: Directory) -> bool:
    """Say whether a directory without a readable manifest is, or was, a savepoint.

    A `create` that died before it wrote the manifest is none: its files are copied again.
    """
    manifest_path = manifest.manifest_path(one.savepoint_id)
    return one.row is not None or any(info.path == manifest_path for info in one.files)
