"""Which files hold the state of one version, with the RocksDB provider.

A store's directory holds `<version>.zip` snapshots, `<version>.changelog` files and immutable,
uniquely named `SSTs/*.sst`. State of version V is the newest snapshot Z <= V, the SSTs it lists,
and the changelogs Z+1 to V. Source: `RocksDBFileManager`, `RocksDBCheckpointMetadata`.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from savepoints.errors import IncompatibleError, NoCommittedBatchError

_SNAPSHOT = re.compile(r"^(\d+)\.zip$")
_CHANGELOG = re.compile(r"^(\d+)\.changelog$")
_STORE = re.compile(
    r"^state/(\d+)/(\d+)/(?:([^/_][^/]*)/)?(\d+\.(?:zip|changelog)|SSTs/[^/]+\.sst)$"
)


# All that zipfile and json raise for bytes that were damaged.
_NOT_A_SNAPSHOT = (
    zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError,
    KeyError, ValueError, TypeError,
)  # fmt: skip


@dataclass(frozen=True)
class StoreDirectory:
    """The directory of one state store in one partition, and the files it has.

    Attributes:
        path: Relative to the checkpoint, such as `state/0/3` or `state/0/3/left-keyToNumValues`.
        operator_id: The operator.
        partition: The state partition.
        files: Names relative to `path`.
    """

    path: str
    operator_id: int
    partition: int
    files: frozenset[str]


@dataclass(frozen=True)
class SnapshotChain:
    """A snapshot and the changelogs on top of it that make one version.

    Attributes:
        directory: The store's directory.
        snapshot: Path of the zip, relative to the checkpoint; None when changelogs start at 1.
        changelogs: Paths of the changelogs.
    """

    directory: str
    snapshot: str | None
    changelogs: tuple[str, ...]


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
            frozenset(names),
        )
        for (operator, partition, store), names in sorted(found.items())
    ]


def chain(directory: StoreDirectory, version: int) -> SnapshotChain:
    """Choose the files that make a version.

    Raises:
        NoCommittedBatchError: If they are not all there; the query's maintenance may have removed
            them.
    """
    snapshots = _versions(_SNAPSHOT, directory.files)
    changelogs = _versions(_CHANGELOG, directory.files)
    base = max((z for z in snapshots if z <= version), default=0)
    missing = [v for v in range(base + 1, version + 1) if v not in changelogs]
    if missing:
        raise NoCommittedBatchError(
            f"{directory.path}: version {version} is not kept whole, changelog {missing[0]} and "
            f"a newer snapshot are missing",
            hint="take the newest batch, or raise spark.sql.streaming.minBatchesToRetain",
            path=directory.path,
            version=version,
        )
    return SnapshotChain(
        directory.path,
        f"{directory.path}/{base}.zip" if base else None,
        tuple(f"{directory.path}/{v}.changelog" for v in range(base + 1, version + 1)),
    )


def listed_ssts(snapshot: bytes, path: str) -> tuple[str, ...]:
    """Return the SST files that a snapshot refers to, as paths relative to its directory.

    Args:
        snapshot: Bytes of `<version>.zip`.
        path: How to call it in an error.

    Raises:
        IncompatibleError: If it is not a snapshot of RocksDB's state store, version 1.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(snapshot)) as archive:
            version, _, body = archive.read("metadata").decode().partition("\n")
        if version != "v1":
            raise ValueError(f"version {version!r}")
        return tuple(f"SSTs/{sst['dfsSstFileName']}" for sst in json.loads(body)["sstFiles"])
    except _NOT_A_SNAPSHOT as error:
        raise IncompatibleError(
            f"{path} is not a snapshot that Spark's RocksDB state store would write: {error!r}",
            hint="the file is damaged: take the savepoint at another batch with --at-batch",
            file=path,
        ) from None


def is_state_data(path: str) -> bool:
    """Say whether a path in a checkpoint holds state itself, not metadata or schema."""
    return _STORE.match(path) is not None


def _versions(pattern: re.Pattern[str], names: Iterable[str]) -> set[int]:
    return {int(match.group(1)) for name in names if (match := pattern.match(name))}
