"""What lies between two versions of a Delta table: files to add and remove, and what forbids it.

Pure: from what the log says of both, as `savepoints.outputs.delta.snapshot` reads it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from savepoints.outputs.delta.snapshot import Action, Snapshot, identity

# Highest number that an identity column has given out; never lowered, so that none comes twice.
_HIGHEST = "delta.identity.highWaterMark"
# Holds the highest row id that was given out; never lowered, either.
_ROW_IDS = "delta.rowTracking"


@dataclass(frozen=True)
class FileDifference:
    """What makes the files of one version those of another, as values of `add` actions."""

    adds: tuple[Action, ...]
    removes: tuple[Action, ...]


def files(now: Snapshot, then: Snapshot) -> FileDifference:
    """Return what leads from the files of one version to those of an older one."""
    here = {identity(one) for one in now.files}
    there = {identity(one) for one in then.files}
    return FileDifference(
        tuple(one for one in then.files if identity(one) not in here),
        tuple(one for one in now.files if identity(one) not in there),
    )


def beyond_files(now: Snapshot, then: Snapshot) -> list[str]:
    """Return what else differs: it does not come back with the files of the older version."""
    found = []
    if _schema(now) != _schema(then):
        found.append("columns")
    if now.metadata.get("partitionColumns") != then.metadata.get("partitionColumns"):
        found.append("partitioning")
    before, after = (one.metadata.get("configuration") or {} for one in (then, now))
    found += sorted(
        f"property {key}" for key in {*before, *after} if before.get(key) != after.get(key)
    )
    domains, others = _domains(now), _domains(then)
    return found + sorted(
        f"domain {name}"
        for name in {*domains, *others}
        if domains.get(name) != others.get(name) and name != _ROW_IDS
    )


def _schema(there: Snapshot) -> Action:
    fields: Action = json.loads(there.metadata["schemaString"])
    for one in fields["fields"]:
        one["metadata"].pop(_HIGHEST, None)
    return fields


def _domains(there: Snapshot) -> dict[str, str]:
    return {one["domain"]: one["configuration"] for one in there.domains}
