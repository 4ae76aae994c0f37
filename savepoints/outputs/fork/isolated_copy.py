"""A Delta table of its own with the rows that an output had at a version: for a fork.

Both ways make one commit, which has the rows and the transaction id of the fork together. `copy`
gives the table its own files, copied by the object store; `clone` lets it read those of the
original (a shallow clone, as Delta calls it). Either is made of the log's own actions, so schema,
partitioning, column mapping, constraints, generated columns and deletion vectors stay as they are,
and no transaction id of the original comes along.
"""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from savepoints import faults
from savepoints.delta_reader import refuse_unwritable
from savepoints.errors import FileSinkError, IncompatibleError, NotAlignedError, TargetExistsError
from savepoints.io import Location, in_parallel
from savepoints.model import OutputVersion
from savepoints.moments import epoch_ms, utc_now
from savepoints.outputs.delta import batch_version, snapshot
from savepoints.outputs.delta.snapshot import Action, FileAt, Snapshot, file_at, vector_at
from savepoints.texts import count_text
from savepoints.uri import Uri

CopyMode = Literal["copy", "clone"]

# Lies in every table that a fork made and says which operation did; Delta takes no notice of it.
FORK_MARKER = "_savepoints_forked_by"
_FIRST = f"{0:020}.json"
# In the `commitInfo` of the one commit: by which a repetition knows its own.
_OPERATION = "savepointsOperation"
_KNOWN_FEATURES = {
    "allowColumnDefaults",
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "clustering",
    "columnMapping",
    "deletionVectors",
    "domainMetadata",
    "generatedColumns",
    "identityColumns",
    "inCommitTimestamp",
    "invariants",
    "rowTracking",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantType",
    "variantType-preview",
}
# They say from which version of the original on commits have times of their own.
_OF_THE_OLD_LOG = {
    "delta.inCommitTimestampEnablementTimestamp",
    "delta.inCommitTimestampEnablementVersion",
}
# That need no feature of the table.
_PLAIN_TYPES = {
    "binary",
    "boolean",
    "byte",
    "date",
    "double",
    "float",
    "integer",
    "long",
    "short",
    "string",
    "timestamp",
}
# Writers that name no features stand for fixed ones; all up to this one are known.
_NAMED = 7


@dataclass(frozen=True)
class Isolation:
    """A table that a fork gets.

    Attributes:
        output: The output of the savepoint, at its pinned version.
        uri: The new table.
        way: `copy`: with files of its own; `clone`: it reads those of the original.
        app_id: The transaction id under which the fork writes.
        batch_id: The batch that the new table is at.
        files: Data files of the version, deletion vectors not counted.
        bytes: Their bytes.
        added: Columns that it has besides, with their types; they are null in the rows there are.
    """

    output: OutputVersion
    uri: str
    way: CopyMode
    app_id: str
    batch_id: int
    files: int
    bytes: int
    added: tuple[tuple[str, str], ...] = ()


def plan(
    output: OutputVersion,
    uri: str,
    way: CopyMode,
    app_id: str,
    batch_id: int,
    columns: str | None = None,
) -> Isolation:
    """Find out what is to be copied and refuse what could not be done exactly; writes nothing.

    Args:
        columns: What the fork's program writes, as Spark's JSON of a row type; None to add nothing.
    """
    if output.kind == "files":
        raise FileSinkError(
            f"the output {output.name}, {output.uri}, is written by Spark's file sink, which "
            "has no versions to copy",
            hint="fork with an application that does not have this output: --app MODULE:ATTR",
            uri=output.uri,
        )
    table = batch_version.open_table(output.uri)
    if batch_version.table_id(table) != output.table_id:
        raise NotAlignedError(
            f"{output.uri} has been deleted and recreated since the savepoint was taken: the table "
            f"now has the id {batch_version.table_id(table)}, not {output.table_id}",
            hint="choose a savepoint that was taken afterwards: savepoints list",
            uri=output.uri,
        )
    there = snapshot.read(output.uri, output.version)
    _require_known(there, output.uri)
    _require_files(there, output)
    sizes = [int(one["size"]) for one in there.files]
    added = _lacking(there, columns) if columns else ()
    return Isolation(output, uri, way, app_id, batch_id, len(sizes), sum(sizes), added)


def execute(one: Isolation, operation_id: str, check: Callable[[], None] = lambda: None) -> None:
    """Make the table, in one commit; done before by the same operation, nothing happens."""
    target = Location.of(one.uri)
    _claim(target, operation_id)
    if target.exists(f"_delta_log/{_FIRST}"):
        return
    there = snapshot.read(one.output.uri, one.output.version)
    source = Location.of(one.output.uri)
    if one.way == "clone":
        # Nothing is copied, which would fail if VACUUM had removed some since the plan.
        _require_files(there, one.output)
        adds = [_referring(add, source) for add in there.files]
    else:
        moved = _Moved(source, target)
        adds = [moved.own(add) for add in there.files]
        _copy(moved.files, target, one.output)
    faults.reach("fork.files_copied")
    check()
    target.create(f"_delta_log/{_FIRST}", _commit(one, there, adds, operation_id))


def undo(one: Isolation, operation_id: str) -> None:
    """Remove the table if the operation made it and nobody but the fork has written to it since.

    The marker goes last: without it nobody would know any more whose the rest is.
    """
    target = Location.of(one.uri)
    if _owner(target) != operation_id:
        return
    log = target / "_delta_log"
    later = [
        info.path
        for info in log.list()
        if info.path.endswith(".json") and info.path != _FIRST
        and not _is_of(log.get(info.path), one.app_id)
    ]  # fmt: skip
    if later:
        raise NotAlignedError(
            f"{one.uri} was not deleted: {operation_id} created it, but something other than the "
            f"fork has committed to it since (for example {later[0]})",
            hint="find out who writes to the table; if nobody needs it, delete it by hand",
            uri=one.uri,
        )
    target.delete({info.path for info in target.list()} - {FORK_MARKER})
    faults.reach("fork.undo_files")
    target.delete([FORK_MARKER])


def refuse_taken(uri: str) -> None:
    """Refuse a place that has anything already, lies within a table, or can be no table."""
    target = Location.of(uri)
    refuse_unwritable(target.uri, "an output")
    found = target.list()
    if found:
        raise _taken(uri, f"already has {count_text(len(found), 'file')} (first: {found[0].path})")
    parts = target.uri.path.split("/")
    for number in range(1, len(parts)):
        above = Location(Uri(target.uri.scheme, target.uri.bucket, "/".join(parts[:number])))
        if (above / "_delta_log").list():
            raise _taken(uri, f"lies within the Delta table {above}")


def _taken(uri: str, what: str) -> TargetExistsError:
    return TargetExistsError(
        f"{uri} {what}",
        hint="choose an empty location for the fork's output: --table NAME=URI",
        uri=uri,
    )


def _is_of(commit: bytes, app_id: str) -> bool:
    """Return True if a commit was written under a transaction id, as text of the log."""
    actions = (json.loads(line) for line in commit.splitlines())
    return any(one.get("txn", {}).get("appId") == app_id for one in actions)


def _claim(target: Location, operation_id: str) -> None:
    found = target.list()
    if not found:
        try:
            target.create(FORK_MARKER, f"{operation_id}\n{secrets.token_hex(8)}".encode())
        except FileExistsError:
            raise _taken(str(target), "is being written by another fork") from None
    elif _owner(target) != operation_id:
        raise _taken(
            str(target), f"already has {count_text(len(found), 'file')} (first: {found[0].path})"
        )


def _owner(target: Location) -> str | None:
    try:
        return target.get(FORK_MARKER).decode().partition("\n")[0]
    except FileNotFoundError:
        return None


def _require_known(there: Snapshot, uri: str) -> None:
    unknown = sorted(there.features - _KNOWN_FEATURES)
    if there.protocol["minWriterVersion"] > _NAMED:
        unknown.append(f"writer version {there.protocol['minWriterVersion']}")
    if unknown:
        raise IncompatibleError(
            f"{uri} has table features that cannot be copied exactly: {', '.join(unknown)}",
            hint="drop the features (ALTER TABLE … DROP FEATURE …) and fork from a later "
            "savepoint, or fork with an application without this output: --app MODULE:ATTR",
            uri=uri,
            features=unknown,
        )


def _lacking(there: Snapshot, columns: str) -> tuple[tuple[str, str], ...]:
    """Return the columns that a table lacks and that can be added without knowing more of it.

    Nested ones, and all of a table whose columns have ids, are for `ALTER TABLE`, as `run` says.
    """
    if there.metadata.get("configuration", {}).get("delta.columnMapping.mode", "none") != "none":
        return ()
    known = {one["name"].casefold() for one in json.loads(there.metadata["schemaString"])["fields"]}
    return tuple(
        (one["name"], one["type"])
        for one in json.loads(columns)["fields"]
        if one["name"].casefold() not in known
        and isinstance(one["type"], str)
        and (one["type"] in _PLAIN_TYPES or one["type"].startswith("decimal"))
    )


def _with_columns(there: Snapshot, added: Sequence[tuple[str, str]]) -> str:
    """Return the schema of a table with more columns (protocol, "Schema Serialization Format")."""
    found = json.loads(there.metadata["schemaString"])
    more = [{"name": n, "type": kind, "nullable": True, "metadata": {}} for n, kind in added]
    return json.dumps({**found, "fields": [*found["fields"], *more]}, separators=(",", ":"))


def _require_files(there: Snapshot, output: OutputVersion) -> None:
    if lost := snapshot.missing_files(there, Location.of(output.uri)):
        raise NotAlignedError(
            f"version {output.version} of {output.uri} is missing "
            f"{count_text(len(lost), 'file')} (for example {lost[0]}), deleted by VACUUM or by "
            "hand",
            hint="choose a newer savepoint to fork from: savepoints list",
            uri=output.uri,
            files=lost,
        )


def _referring(add: Action, source: Location) -> Action:
    """Return an `add` that reads the files where they are."""
    changed = {**add, "path": file_at(add["path"], source).absolute, "dataChange": True}
    if (vector := vector_at(add, source)) is not None:
        changed["deletionVector"] = _at(add, vector.absolute)
    return changed


def _at(add: Action, path: str) -> Action:
    return {**add["deletionVector"], "storageType": "p", "pathOrInlineDv": path}


class _Moved:
    """Collects what is to be copied where."""

    def __init__(self, source: Location, target: Location) -> None:
        self._source = source
        self._target = target
        self.files: dict[str, FileAt] = {}

    def own(self, add: Action) -> Action:
        """Return an `add` that reads copies of the files."""
        data = file_at(add["path"], self._source)
        path = self._name(data)
        changed = {**add, "dataChange": True}
        if data.directory != self._source:
            changed["path"] = quote(path)
        vector = vector_at(add, self._source)
        if vector is not None:
            copied = self._name(vector)
            if vector.directory != self._source:
                changed["deletionVector"] = _at(add, FileAt(self._target, copied).absolute)
        return changed

    def _name(self, file: FileAt) -> str:
        """Return what a file is called in the new table; several rows may share one vector."""
        name, number = file.path, 0
        while self.files.get(name, file) != file:
            number += 1
            name = f"{number}-{file.path}"
        self.files[name] = file
        return name


def _copy(files: Mapping[str, FileAt], target: Location, output: OutputVersion) -> None:
    """Copy what an earlier attempt has not copied yet, and compare the sizes."""
    there = {info.path: info.size for info in target.list()}

    def copy(name: str) -> None:
        file = files[name]
        size = file.directory.head(file.path).size
        if there.get(name) != size:
            target.copy_from(file.directory, file.path, name)
            if target.head(name).size != size:
                raise NotAlignedError(
                    f"the copy {target}/{name} differs in size from its original",
                    hint="run the command again",
                )

    try:
        in_parallel(copy, list(files))
    except FileNotFoundError as gone:
        raise NotAlignedError(
            f"version {output.version} of {output.uri} is missing {gone}, which was deleted by "
            "VACUUM or by hand",
            hint="choose a newer savepoint to fork from: savepoints list",
            uri=output.uri,
        ) from None


def _commit(one: Isolation, there: Snapshot, adds: list[Action], operation_id: str) -> bytes:
    """Write version 0 of the new table."""
    now = epoch_ms(utc_now())
    info = {
        "inCommitTimestamp": now,
        "timestamp": now,
        "operation": "CLONE" if one.way == "clone" else "CREATE TABLE AS SELECT",
        "operationParameters": {"source": one.output.uri, "sourceVersion": str(one.output.version)},
        "engineInfo": "savepoints",
        _OPERATION: operation_id,
    }
    configuration = {
        key: value
        for key, value in there.metadata.get("configuration", {}).items()
        if key not in _OF_THE_OLD_LOG
    }
    metadata = {
        **there.metadata,
        "id": str(uuid.uuid4()),
        **({"schemaString": _with_columns(there, one.added)} if one.added else {}),
        "configuration": configuration,
        "createdTime": now,
    }
    actions = [
        {"commitInfo": info},
        {"protocol": there.protocol},
        {"metaData": metadata},
        *({"domainMetadata": domain} for domain in there.domains),
        {"txn": {"appId": one.app_id, "version": one.batch_id, "lastUpdated": now}},
        *({"add": add} for add in adds),
    ]
    return "\n".join(json.dumps(action, separators=(",", ":")) for action in actions).encode()
