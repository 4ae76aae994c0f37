"""The log of a Delta table: who wrote what, read without looking at any data.

Two kinds of files say it (Delta protocol, "Delta Log Entries" and "Checkpoints"). `<version>.json`
is one commit. `<version>.checkpoint…` is the state of the table at a version: classic (one parquet
file), in several parts, or v2 (one parquet or JSON file with a UUID in its name, whose sidecars
hold files only). After a log checkpoint the older commits may be removed; every `txn` action that
was in force then stands in the checkpoint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from savepoints.errors import NotAlignedError
from savepoints.io import Location
from savepoints.model import is_id

# In the `commitInfo` of a rewind, or in its `tags` where Delta's engine wrote it: the version to
# whose rows it goes back.
BACK_TO = "savepointsBackTo"
_CHECKPOINT = re.compile(
    r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(parquet|json)", re.ASCII
)


@dataclass(frozen=True)
class Commit:
    """One commit of a table's log.

    Attributes:
        changes_data: Whether rows were added or removed; OPTIMIZE, for one, says that it did not.
        back_to: The version to whose rows this library took the table back with it, None with all
            others. What was committed in between no longer counts.
        timestamp_ms: When, by the writer's clock, in milliseconds since 1970; None if it says
            nothing of it.
    """

    version: int
    operation: str
    transactions: dict[str, int]
    changes_data: bool
    back_to: int | None = None
    user_metadata: str | None = None
    timestamp_ms: int | None = None
    removes_data: bool = False

    def written_by(self, owner: str, app_ids: tuple[str, ...]) -> bool:
        """Return True if it is the query's own."""
        return any(app.startswith(owner) or app in app_ids for app in self.transactions)


@dataclass(frozen=True)
class LogCheckpoint:
    """A checkpoint of the log."""

    version: int
    names: tuple[str, ...]

    def transactions(self, log: Location) -> dict[str, int]:
        """Return the `txn` actions in force at the version: version by application id."""
        found: dict[str, int] = {}
        for name in self.names:
            found.update(
                _read(log, name, self.version).transactions
                if name.endswith(".json")
                else _transactions(log.get(name))
            )
        return found


def commits(uri: str, newest: int) -> Iterator[Commit]:
    """Walk a table's log from the newest commit back, as far as its JSON files are kept."""
    for version in range(newest, -1, -1):
        try:
            found = commit(uri, version)
        except FileNotFoundError:
            return
        yield found


def commit(uri: str, version: int) -> Commit:
    """Read the commit of one version.

    Raises:
        FileNotFoundError: If the log no longer has it.
        NotAlignedError: If it is damaged.
    """
    return _read(log_of(uri), f"{version:020}.json", version)


def parse_commit(version: int, data: bytes) -> Commit:
    """Read one commit file of a Delta log.

    Raises:
        ValueError: If a line is not a JSON object; empty lines are none, to Delta neither.
    """
    info: dict[str, Any] = {}
    transactions, changes, removes = {}, False, False
    # Of bytes: a text would be split at more than line feeds, of which values may be full.
    for line in filter(bytes.strip, data.splitlines()):
        action: dict[str, Any] = _object(line)
        if "commitInfo" in action:
            info = action["commitInfo"]
        elif "txn" in action:
            transactions[str(action["txn"]["appId"])] = int(action["txn"]["version"])
        elif "add" in action or "remove" in action:
            changed = bool((action.get("add") or action["remove"])["dataChange"])
            changes, removes = changes or changed, removes or (changed and "remove" in action)
    said_back_to = info.get(BACK_TO, (info.get("tags") or {}).get(BACK_TO))
    back_to = int(said_back_to) if said_back_to is not None and rewinds(transactions) else None
    operation, said = str(info.get("operation", "")), info.get("userMetadata")
    at = info.get("timestamp")
    return Commit(
        version, operation, transactions, changes, back_to, said,
        None if at is None else int(at), removes,
    )  # fmt: skip


def checkpoints(uri: str) -> list[LogCheckpoint]:
    """Return the complete checkpoints of a table's log, the newest first."""
    parts: dict[tuple[int, int], dict[int, str]] = {}
    whole: dict[int, str] = {}
    for info in log_of(uri).list():
        match = _CHECKPOINT.fullmatch(info.path)
        if match is None:
            continue
        if match[2]:
            parts.setdefault((int(match[1]), int(match[3])), {})[int(match[2])] = info.path
        else:
            whole[int(match[1])] = info.path
    found: dict[int, tuple[str, ...]] = {at: (name,) for at, name in whole.items()}
    for (version, count), names in parts.items():
        if len(names) == count:
            found.setdefault(version, tuple(names[number] for number in sorted(names)))
    return [LogCheckpoint(version, found[version]) for version in sorted(found, reverse=True)]


def is_whole(uri: str, version: int) -> bool:
    """Return whether the log still has where a version begins: commit 0, or a checkpoint below.

    Delta removes old commits one by one, also in front of the checkpoint from which a version could
    be read, and those that stay are no version without it. deltalake takes them for one, with only
    the rows that they added, where a checksum file beside them has the metadata. Gaps it refuses.
    """
    log = log_of(uri)
    if log.exists(f"{0:020}.json"):
        return True
    saved = max((one.version for one in checkpoints(uri) if one.version <= version), default=-1)
    return saved == version or log.exists(f"{saved + 1:020}.json")


def transactions(uri: str, newest: int) -> dict[str, int]:
    """Return the `txn` actions in force at the newest version: version by application id."""
    later: dict[str, int] = {}
    saved = {one.version: one for one in checkpoints(uri)}
    reached = newest + 1
    for commit in commits(uri, newest):
        if commit.version in saved:
            break
        later = {**commit.transactions, **later}
        reached = commit.version
    before = saved.get(reached - 1)
    return {**(before.transactions(log_of(uri)) if before else {}), **later}


def rewinds(transactions: dict[str, int]) -> set[str]:
    """Return the operations of this library that took the table back, which leave their ids."""
    return {app for app in transactions if is_id(app)}


def log_of(uri: str) -> Location:
    """Return the directory of a table's log."""
    return Location.of(uri) / "_delta_log"


def _read(log: Location, name: str, version: int) -> Commit:
    data = log.get(name)
    try:
        return parse_commit(version, data)
    except ValueError as error:
        raise NotAlignedError(
            f"{log}/{name} is damaged: {error}; what the table's log says is unknown from there on",
            hint="put back an older version of this file, from the versioned bucket or a backup",
            file=f"{log}/{name}",
        ) from None


def _object(line: bytes) -> dict[str, Any]:
    action = json.loads(line)
    if not isinstance(action, dict):
        raise ValueError(f"{line[:40]!r} is not a JSON object")  # noqa: TRY004 - of the file.
    return action


def _transactions(data: bytes) -> dict[str, int]:
    import pyarrow as pa
    from pyarrow import parquet

    column = parquet.read_table(pa.BufferReader(data), columns=["txn"]).column("txn")
    return {row["appId"]: row["version"] for row in column.to_pylist() if row and row["appId"]}
