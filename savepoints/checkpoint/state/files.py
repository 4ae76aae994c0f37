"""Which files hold the state of one version, in each layout that Spark has.

A store's directory holds full snapshots and, for some layouts, a file of changes per version; the
state of version V is the newest snapshot Z <= V and the changes Z+1 to V.

| provider           | snapshot       | changes              | source                  |
| RocksDB, format 1  | `V.zip`        | `V.changelog`        | `RocksDBFileManager`    |
| RocksDB, format 2  | `V_<id>.zip`   | `V_<id>.changelog`   | the same                |
| HDFS               | `V.snapshot`   | `V.delta`            | `HDFSBackedStateStore…` |

A RocksDB snapshot lists immutable, uniquely named `SSTs/*.sst`. With format 2 several files of one
version may lie side by side (attempts that failed); the commit log has the id of the last version,
and the head of each changelog the ids of those before it.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from savepoints.checkpoint.logs import versioned
from savepoints.checkpoint.state import compression
from savepoints.errors import OTHER_BATCH, IncompatibleError, NoCommittedBatchError

_ID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_SNAPSHOT_SUFFIXES = (".zip", ".snapshot")
_CHANGE_SUFFIXES = (".changelog", ".delta")
_VERSIONED = re.compile(rf"^(\d+)(_{_ID})?(\.(?:zip|snapshot|changelog|delta))$")
_ANY_VERSION = re.compile(
    rf"^state/\d+/\d+/(?:[^/_][^/]*/)?\.?(\d+)(?:_{_ID})?\.(?:zip|snapshot|changelog|delta)(?:\.crc)?$"
)
_STORE = re.compile(
    rf"^state/(\d+)/(\d+)/(?:([^/_][^/]*)/)?"
    rf"(\d+(?:_{_ID})?\.(?:zip|snapshot|changelog|delta)|SSTs/[^/]+\.sst)$"
)

_HINT = (
    f"{OTHER_BATCH}; or upgrade the savepoints package, if the file is from a newer version "
    "of Spark"
)
RETAIN_MORE = (
    "use the newest batch; to retain more batches, raise spark.sql.streaming.minBatchesToRetain"
)

# Everything that zipfile and json raise for damaged bytes.
_NOT_A_SNAPSHOT = (
    zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError,
    KeyError, ValueError, TypeError,
)  # fmt: skip


@dataclass(frozen=True)
class StoreDirectory:
    """The directory of one state store in one partition, and the files it has.

    Attributes:
        path: Relative to the checkpoint, such as `state/0/3` or `state/0/3/left-keyToNumValues`.
    """

    path: str
    operator_id: int
    partition: int
    store: str
    files: frozenset[str]


@dataclass(frozen=True)
class SnapshotChain:
    """A snapshot and the changes on top of it that make one version.

    Attributes:
        snapshot: Path of the snapshot, relative to the checkpoint; None when changes start at 1.
    """

    directory: StoreDirectory
    snapshot: str | None
    changes: tuple[str, ...]


def store_directories(paths: Iterable[str]) -> list[StoreDirectory]:
    """Group the paths of a checkpoint by state store; other paths are left out."""
    found: dict[tuple[int, int, str], set[str]] = {}
    for path in paths:
        match = _STORE.match(path)
        if match:
            operator, partition, store, name = match.groups()
            found.setdefault((int(operator), int(partition), store or ""), set()).add(name)
    return [
        StoreDirectory(
            f"state/{operator}/{partition}/{store}".rstrip("/"),
            operator,
            partition,
            store or "default",
            frozenset(names),
        )
        for (operator, partition, store), names in sorted(found.items())
    ]


def partition_of(path: str) -> tuple[int, int] | None:
    """Return operator and partition of a file of a state store; None for any other path."""
    match = _STORE.match(path)
    return (int(match[1]), int(match[2])) if match else None


def chain(directory: StoreDirectory, version: int) -> SnapshotChain:
    """Choose the files that make a version, where names have no ids.

    Raises:
        NoCommittedBatchError: If one is missing; the query's maintenance may have removed it.
    """
    snapshots = _versions(directory, _SNAPSHOT_SUFFIXES)
    changes = _versions(directory, _CHANGE_SUFFIXES)
    base = max((z for z in snapshots if z <= version), default=0)
    missing = [v for v in range(base + 1, version + 1) if v not in changes]
    if missing:
        raise _not_whole(directory, version, f"the changes of version {missing[0]}")
    return SnapshotChain(
        directory,
        f"{directory.path}/{snapshots[base]}" if base else None,
        tuple(f"{directory.path}/{changes[v]}" for v in range(base + 1, version + 1)),
    )


def chain_of_id(
    directory: StoreDirectory,
    version: int,
    unique_id: str,
    read: Callable[[str], bytes],
    codec: str,
) -> SnapshotChain:
    """Choose the files that make a version of checkpoint format 2.

    Raises:
        FileNotFoundError: If the query's maintenance removed a file meanwhile.
    """
    ids = {version: unique_id}
    changes: list[str] = []
    for at in range(version, 0, -1):
        if at not in ids:
            ids.update(changelog_lineage(read(changes[0]), codec, changes[0]))
        snapshot, change = (f"{at}_{ids.get(at)}{suffix}" for suffix in (".zip", ".changelog"))
        if snapshot in directory.files:
            return SnapshotChain(directory, f"{directory.path}/{snapshot}", tuple(changes))
        if change not in directory.files:
            raise _not_whole(directory, version, snapshot)
        changes.insert(0, f"{directory.path}/{change}")
    return SnapshotChain(directory, None, tuple(changes))


def changelog_lineage(data: bytes, codec: str, path: str) -> dict[int, str]:
    """Read which versions and ids a changelog of checkpoint format 2 builds upon.

    Its head is two strings in Java's modified UTF-8 with a length of two bytes: the version (`v3`,
    with column families `v4`) and JSON. Source: `StateStoreChangelogWriter`.

    Returns:
        Ids by version, back to the snapshot below; empty for the first version.
    """
    stream = compression.open_reader(data, codec, path)

    def text() -> str:
        size = int.from_bytes(stream.read(2), "big")
        return stream.read(size).decode()

    try:
        version = text()
        if version not in {"v3", "v4"}:
            raise versioned.refusal(version)(
                f"{path}: changelog version {version[:40]!r} is not supported; only 'v3' and "
                "'v4' are",
                hint=_HINT,
                file=path,
            )
        return {int(one["version"]): str(one["checkpointUniqueId"]) for one in json.loads(text())}
    except (ValueError, KeyError, TypeError) as error:
        raise IncompatibleError(
            f"{path} is not a changelog of state store checkpoint format 2: {error!r}",
            hint=_HINT,
            file=path,
        ) from None


def listed_ssts(snapshot: bytes, path: str) -> tuple[str, ...]:
    """Return the SST files that a RocksDB snapshot refers to, relative to its directory."""
    try:
        with zipfile.ZipFile(io.BytesIO(snapshot)) as archive:
            version, _, body = archive.read("metadata").decode().partition("\n")
        if version != "v1":
            raise versioned.refusal(version)(
                f"{path}: snapshot version {version[:40]!r} is not supported; only 'v1' is",
                hint=_HINT,
                file=path,
            )
        return tuple(f"SSTs/{sst['dfsSstFileName']}" for sst in json.loads(body)["sstFiles"])
    except _NOT_A_SNAPSHOT as error:
        raise IncompatibleError(
            f"{path} is not a snapshot of Spark's RocksDB state store: {error!r}",
            hint=_HINT,
            file=path,
        ) from None


def of_version(paths: Iterable[str], version: int) -> list[str]:
    """Choose the snapshots and changes of one version in all stores, with their checksums.

    Those of a batch that was begun and is planned again must go: Spark writes a version's
    changes again but not its snapshot, which maintenance may have written, and which is what
    counts (`HDFSBackedStateStoreProvider.loadMap`, `RocksDBFileManager`).
    """
    return [
        path
        for path in paths
        if (match := _ANY_VERSION.match(path)) and int(match.group(1)) == version
    ]


def is_state_data(path: str) -> bool:
    """Return True if a path in a checkpoint holds state itself, not metadata or schema."""
    return _STORE.match(path) is not None


def is_of_operator(path: str, operator_ids: Iterable[int]) -> bool:
    """Return True if a path is in the state directory of one of these operators."""
    return path.startswith(tuple(f"state/{one}/" for one in operator_ids))


def _versions(directory: StoreDirectory, suffixes: tuple[str, ...]) -> dict[int, str]:
    """Return the names with one of the suffixes and without an id, by version."""
    matches = (_VERSIONED.match(name) for name in directory.files)
    return {
        int(match.group(1)): match.string
        for match in matches
        if match and match.group(3) in suffixes and match.group(2) is None
    }


def _not_whole(directory: StoreDirectory, version: int, missing: str) -> NoCommittedBatchError:
    return NoCommittedBatchError(
        f"version {version} of the state cannot be read: {directory.path} has neither {missing} "
        f"nor a later snapshot up to version {version}",
        hint=RETAIN_MORE,
        path=directory.path,
        version=version,
    )
