"""What must hold in a checkpoint; otherwise a query silently continues with wrong results.

Each has been seen to fail. The functions are pure: they take what was read, and `where` names the
directory in their errors. `read_cut` uses them before a savepoint is taken and `restore` before a
directory becomes a checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from savepoints.checkpoint import source_entries
from savepoints.checkpoint.logs import file_log
from savepoints.checkpoint.logs.commit_log import StateIds
from savepoints.checkpoint.logs.offset_log import PARTITIONS_KEY, PROVIDER_KEY, OffsetLogEntry
from savepoints.checkpoint.state.files import StoreDirectory
from savepoints.errors import (
    RESTORE_SAVEPOINT,
    PartitionCountError,
    SchemaPathError,
    SourceLogError,
    StateIdsError,
)
from savepoints.texts import count_text

_STATE_WITH_ID = re.compile(
    r"^state/(\d+)/(\d+)/(?:[^/]+/)?(\d+)_([0-9a-f-]{36})\.(?:zip|changelog)$"
)
_DAMAGED = f"this checkpoint is damaged or was edited; {RESTORE_SAVEPOINT}"


def require_partitions(
    where: str,
    wanted: int | None,
    stores: Mapping[int, Collection[str]],
    directories: Collection[StoreDirectory],
    keyless: Collection[int],
) -> None:
    """Check that each store has exactly the state partitions that the query will look for.

    With any others Spark silently computes wrong results.
    """
    for operator_id, names in stores.items():
        right = [0] if operator_id in keyless else list(range(wanted or 0))
        for name in names:
            existing = sorted(
                one.partition
                for one in directories
                if (one.operator_id, one.store) == (operator_id, name)
            )
            if existing != right:
                raise PartitionCountError(
                    f"store {name} of operator {operator_id} in {where} should have "
                    f"{count_text(len(right), 'state partition')}, numbered from 0, but has "
                    f"{existing or 'none'}",
                    hint=_DAMAGED,
                    operator_id=operator_id,
                    store=name,
                    partitions=wanted,
                )


def require_settings(
    where: str, entries: Mapping[str, OffsetLogEntry], partitions: int | None, provider: str
) -> None:
    """Check that all offset log files name the partitions and the provider that were written.

    A restarted query reads both from there, and falls back to its session's settings.

    Args:
        partitions: State partitions that were written; None in a stateless query.
    """
    if partitions is None:
        return
    for path, entry in entries.items():
        for key, said, written in (
            (PARTITIONS_KEY, entry.partitions, partitions),
            (PROVIDER_KEY, entry.provider, provider),
        ):
            if said != written:
                raise PartitionCountError(
                    f"in {where}/{path}, {key} is {said or 'not set'}, but the state was written "
                    f"with {written}",
                    hint=_DAMAGED,
                    file=path,
                )


def require_schema_files(
    where: str, metadata: str, schema_files: Iterable[str], inside: str, there: Collection[str]
) -> None:
    """Check that the schema files of an operator exist, and within its own checkpoint."""
    for file in schema_files:
        if not file.startswith(f"{inside}/") or file.removeprefix(f"{inside}/") not in there:
            raise SchemaPathError(
                f"{where}/{metadata} refers to the schema file {file}, which is missing or "
                "outside this checkpoint",
                hint=_DAMAGED,
                file=metadata,
            )


def require_source_entries(where: str, paths: Iterable[str], offsets: OffsetLogEntry) -> None:
    """Check that the sources' own logs end where the offsets end."""
    entries = [path for path in paths if file_log.NAME.match(path)]
    if unused := sorted(set(entries) - set(source_entries.used(entries, offsets))):
        raise SourceLogError(
            f"{where}/{unused[0]} lists input that no batch in the offset log has used, so "
            "later batches would read the wrong input",
            hint=_DAMAGED,
            file=unused[0],
        )
    if missing := source_entries.missing(entries, offsets):
        raise SourceLogError(
            f"{where}/{missing[0]} is missing, so the next batches would read files again that "
            "are in the state already",
            hint=_DAMAGED,
            file=missing[0],
        )


def require_state_ids(where: str, version: int, ids: StateIds, paths: Collection[str]) -> None:
    """Check that the commit log names the state files of checkpoint format 2 that exist."""
    there = {match.groups() for path in paths if (match := _STATE_WITH_ID.match(path))}
    for operator_id, partitions in ids.items():
        for partition, stores in enumerate(partitions):
            for one in stores:
                if (str(operator_id), str(partition), str(version), one) not in there:
                    raise StateIdsError(
                        f"the commit log of {where} names the id {one} for version {version} of "
                        f"operator {operator_id}, but state partition {partition} has no file "
                        "with this version and id",
                        hint=_DAMAGED,
                        operator_id=operator_id,
                        partition=partition,
                    )
