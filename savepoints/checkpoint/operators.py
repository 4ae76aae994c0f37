"""Stateful operators of a checkpoint: `state/<operator>/_metadata/metadata`.

Source: `org.apache.spark.sql.execution.streaming.state.OperatorStateMetadataV1`: a line `v1`, then
JSON with `operatorInfo` and `stateStoreInfo`. Version 2 lives in `_metadata/v2/<batch>` and carries
absolute paths of schema files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from savepoints.errors import IncompatibleError

ROCKSDB_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

# Operators for which a test shows that a restored query goes on exactly as the original.
SUPPORTED = frozenset({"stateStoreSave", "dedupe"})


@dataclass(frozen=True)
class Operator:
    """A stateful operator as its checkpoint describes it.

    Attributes:
        operator_id: Its directory below `state/`; operators count from the sink.
        name: Spark's short name.
        stores: Names of its state stores.
    """

    operator_id: int
    name: str
    stores: tuple[str, ...]


def has_no_key(schema: bytes) -> bool:
    """Say whether a state schema file is that of an operator without grouping keys.

    The file (`StateSchemaCompatibilityChecker`) has a version, then the key's schema as JSON.
    """
    return schema[schema.find(b"{") :].startswith(b'{"type":"struct","fields":[]}')


def parse(data: bytes, path: str) -> Operator:
    """Read the metadata file of an operator.

    Raises:
        IncompatibleError: If it is of another version or of an operator that is not supported.
    """
    version, _, body = data.decode("utf-8", errors="replace").partition("\n")
    if version != "v1":
        raise IncompatibleError(
            f"{path}: operator metadata version {version[:40]!r} is not supported, only 'v1'",
            hint="transformWithState and joins of format 3 and 4 cannot be saved yet",
            file=path,
        )
    try:
        content = json.loads(body)
        operator = Operator(
            operator_id=int(content["operatorInfo"]["operatorId"]),
            name=str(content["operatorInfo"]["operatorName"]),
            stores=tuple(str(store["storeName"]) for store in content["stateStoreInfo"]),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise IncompatibleError(
            f"{path} is not operator metadata that Spark would write: {error!r}",
            hint="the file is damaged, or was edited: restore from a savepoint",
            file=path,
        ) from None
    if operator.name not in SUPPORTED:
        raise IncompatibleError(
            f"operator {operator.operator_id} ({operator.name}) cannot be saved yet",
            hint=f"supported are: {', '.join(sorted(SUPPORTED))}",
            operator_id=operator.operator_id,
            operator_name=operator.name,
        )
    return operator
