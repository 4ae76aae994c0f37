"""What a Delta table is at a version: its protocol, description and files, as its log has them.

Read from the log alone (Delta protocol, "Action Reconciliation"): the newest complete checkpoint of
the log up to the version, then the commits after it. deltalake does not give the actions verbatim.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from savepoints.errors import NotAlignedError
from savepoints.io import Location, in_parallel
from savepoints.outputs.delta import log as delta_log
from savepoints.uri import Uri

Action = dict[str, Any]

_KINDS = ("add", "protocol", "metaData", "domainMetadata", "sidecar")
_ABSOLUTE = re.compile(r"/|[a-z][a-z0-9+.-]*:/")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_UUID_DIGITS = 20
# Fields of a checkpoint that Parquet has as maps, which JSON has as objects.
_MAPS = {"partitionValues", "tags", "configuration", "options"}


@dataclass(frozen=True)
class Snapshot:
    """A table at a version, as the values of the actions in force there."""

    protocol: Action
    metadata: Action
    files: tuple[Action, ...]
    domains: tuple[Action, ...]

    @property
    def features(self) -> frozenset[str]:
        """The table features that its protocol names."""
        return frozenset(
            name
            for key in ("readerFeatures", "writerFeatures")
            for name in self.protocol.get(key) or ()
        )


@dataclass(frozen=True)
class FileAt:
    """A file of a table.

    Attributes:
        directory: The table's own directory; of a file that a shallow clone reads, another one.
    """

    directory: Location
    path: str

    @property
    def absolute(self) -> str:
        """Where it is, as an action of another table's log has it."""
        return f"{quote(self.directory.uri.hadoop, safe='/:')}/{quote(self.path)}"


def file_at(path: str, table: Location) -> FileAt:
    """Return where a file is; its path in a log is that of a URI, relative or absolute."""
    if not is_absolute(path):
        return FileAt(table, unquote(path))
    uri = Uri.parse(unquote(path))
    directory, _, name = uri.path.rpartition("/")
    return FileAt(Location(Uri(uri.scheme, uri.bucket, directory)), name)


def vector_at(add: Action, table: Location) -> FileAt | None:
    """Return the file of a deletion vector, None without one or when it stands in the log.

    Delta protocol, "Deletion Vector Descriptor Schema".
    """
    vector = add.get("deletionVector")
    if not vector or vector["storageType"] == "i":
        return None
    text = vector["pathOrInlineDv"]
    if vector["storageType"] == "p":
        return file_at(text, table)
    prefix, digits = text[:-_UUID_DIGITS], text[-_UUID_DIGITS:]
    name = f"deletion_vector_{uuid.UUID(bytes=_z85(digits))}.bin"
    return FileAt(table, f"{prefix}/{name}" if prefix else name)


def missing_files(there: Snapshot, table: Location) -> list[str]:
    """Return the data files and deletion vectors of a table that are gone, also those elsewhere."""
    near = {info.path for info in table.list()}

    def is_gone(file: FileAt) -> bool:
        if file.directory == table:
            return file.path not in near
        return not file.directory.exists(file.path)

    needed = [
        file
        for add in there.files
        for file in (file_at(add["path"], table), vector_at(add, table))
        if file is not None
    ]
    gone = in_parallel(is_gone, needed)
    return [
        str(one.directory.uri / one.path) for one, lost in zip(needed, gone, strict=True) if lost
    ]


def is_absolute(path: str) -> bool:
    """Return True if a file path points outside its table, as those of a shallow clone do."""
    return bool(_ABSOLUTE.match(path))


def read(uri: str, version: int) -> Snapshot:
    """Read a table at a version that its log still goes back to."""
    log = delta_log.log_of(uri)
    saved = next((one for one in delta_log.checkpoints(uri) if one.version <= version), None)
    first = 0 if saved is None else saved.version + 1
    names = [f"{number:020}.json" for number in range(first, version + 1)]
    try:
        # Not one at a time: a log may have many commits after its last checkpoint.
        commits = in_parallel(log.get, names)
        before = [] if saved is None else list(_of_checkpoint(log, saved.names))
    except FileNotFoundError as gone:
        raise NotAlignedError(
            f"version {version} of {uri} can no longer be read: {gone} is missing",
            hint="choose a newer savepoint; to keep the log longer, raise "
            "delta.logRetentionDuration",
            uri=uri,
            version=version,
        ) from None
    return _reconciled(uri, version, [*before, *(one for data in commits for one in _lines(data))])


def _reconciled(uri: str, version: int, actions: Iterable[Action]) -> Snapshot:
    """Return what is in force after all actions, the later ones over the earlier ones."""
    files: dict[tuple[str, str], Action] = {}
    domains: dict[str, Action] = {}
    whole: dict[str, Action] = {}
    for action in actions:
        for kind, value in action.items():
            if kind == "add":
                files[identity(value)] = value
            elif kind == "remove":
                files.pop(identity(value), None)
            elif kind == "domainMetadata":
                domains[value["domain"]] = value
            elif kind in {"protocol", "metaData"}:
                whole[kind] = value
    if len(whole) < 2:  # noqa: PLR2004  (protocol and metadata)
        raise NotAlignedError(
            f"the log of {uri} is damaged: it lacks the protocol or the metadata that version "
            f"{version} needs",
            hint="read the table with Spark to find out why",
            uri=uri,
            version=version,
        )
    there = tuple(one for one in domains.values() if not one.get("removed"))
    return Snapshot(whole["protocol"], whole["metaData"], tuple(files.values()), there)


def identity(action: Action) -> tuple[str, str]:
    """Return what identifies a file: its path and its deletion vector."""
    vector = action.get("deletionVector") or {}
    parts = (vector.get(key) for key in ("storageType", "pathOrInlineDv", "offset"))
    return action["path"], "/".join(str(part) for part in parts)


def _lines(data: bytes) -> Iterator[Action]:
    return (json.loads(line) for line in data.splitlines() if line.strip())


def _of_checkpoint(log: Location, names: Iterable[str]) -> Iterator[Action]:
    """Yield the actions of a checkpoint of the log: of one file, of several parts, or v2."""
    for name in names:
        data = log.get(name)
        for action in _lines(data) if name.endswith(".json") else _rows(data):
            if "sidecar" in action:
                yield from _rows(log.get(f"_sidecars/{action['sidecar']['path']}"))
            else:
                yield action


def _rows(data: bytes) -> Iterator[Action]:
    import pyarrow as pa
    from pyarrow import parquet

    file = parquet.ParquetFile(pa.BufferReader(data))
    columns = [name for name in _KINDS if name in file.schema_arrow.names]
    for row in file.read(columns=columns).to_pylist():
        for kind, value in row.items():
            if value is not None:
                yield {kind: _plain(value)}


def _plain(value: Action) -> Action:
    """Return an action of a Parquet checkpoint as a commit has it."""
    parsed = value.get("stats_parsed")
    found: Action = {}
    for key, item in value.items():
        if item is None or key.endswith("_parsed"):
            continue
        if key == "format":
            found[key] = _plain(item)
        else:
            found[key] = dict(item) if key in _MAPS else item
    if parsed and "stats" not in found:
        # A deletion vector needs the number of rows; all else in there only speeds up reading.
        found["stats"] = json.dumps({"numRecords": parsed["numRecords"]})
    return found


def _z85(text: str) -> bytes:
    """Decode ZeroMQ's base 85 (https://rfc.zeromq.org/spec/32/)."""
    data = b""
    for start in range(0, len(text), 5):
        number = 0
        for digit in text[start : start + 5]:
            number = number * 85 + _DIGITS.index(digit)
        data += number.to_bytes(4, "big")
    return data
