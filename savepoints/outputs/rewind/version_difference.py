"""What lies between two versions of a Delta table: files to add and remove, and what forbids it.

Pure: from what the log says of both, as `savepoints.outputs.delta.snapshot` reads it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from savepoints.outputs.delta.snapshot import Action, Snapshot, identity
from savepoints.spark.columns import literal, quoted

# Highest number that an identity column has given out; never lowered, so that none comes twice.
_HIGHEST = "delta.identity.highWaterMark"
# Holds the highest row id that was given out; never lowered, either.
_ROW_IDS = "delta.rowTracking"
_CLUSTERING = "delta.clustering"
# Properties of features that are not taken back by a property alone.
_SET_BY_DELTA = (
    "delta.columnMapping.", "delta.enableInCommitTimestamp", "delta.enableRowTracking",
    "delta.inCommitTimestamp", "delta.rowTracking",
)  # fmt: skip


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


def statements_back(now: Snapshot, then: Snapshot) -> list[str]:
    """Return what of ALTER TABLE gives a table the properties and clustering of another version.

    Empty where something else differs, or a property that Delta sets by itself.
    """
    if any(not _can_be_set(one) for one in beyond_files(now, then)):
        return []
    before, after = (one.metadata.get("configuration") or {} for one in (then, now))
    old = {key: value for key, value in before.items() if after.get(key) != value}
    new = [key for key in after if key not in before]
    found = []
    if old:
        pairs = ", ".join(f"{literal(key)} = {literal(old[key])}" for key in sorted(old))
        found.append(f"SET TBLPROPERTIES ({pairs})")
    if new:
        found.append(f"UNSET TBLPROPERTIES ({', '.join(map(literal, sorted(new)))})")
    if _domains(now).get(_CLUSTERING) != _domains(then).get(_CLUSTERING):
        found.append(f"CLUSTER BY {_clustered(then)}")
    return found


def _can_be_set(changed: str) -> bool:
    kind, _, name = changed.partition(" ")
    return name == _CLUSTERING or (kind == "property" and not name.startswith(_SET_BY_DELTA))


def _clustered(there: Snapshot) -> str:
    """Return what a version is clustered by, as SQL has it."""
    columns = json.loads(_domains(there).get(_CLUSTERING, "{}")).get("clusteringColumns", [])
    mapped = {_physical(field): field["name"] for field in _schema(there)["fields"]}
    names = [".".join(quoted(mapped.get(part, part)) for part in path) for path in columns]
    return f"({', '.join(names)})" if names else "NONE"


def _physical(field: Action) -> str:
    return str(field["metadata"].get("delta.columnMapping.physicalName", field["name"]))


def _schema(there: Snapshot) -> Action:
    fields: Action = json.loads(there.metadata["schemaString"])
    for one in fields["fields"]:
        one["metadata"].pop(_HIGHEST, None)
    return fields


def _domains(there: Snapshot) -> dict[str, str]:
    return {one["domain"]: one["configuration"] for one in there.domains}
