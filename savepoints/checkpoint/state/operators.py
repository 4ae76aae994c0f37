"""Stateful operators of a checkpoint: the files below `state/<operator>/_metadata`.

Source: `org.apache.spark.sql.execution.streaming.state.OperatorStateMetadata`: a line with the
version, then JSON with `operatorInfo` and `stateStoreInfo`. Version 1 is the file `metadata`;
version 2 (transformWithState, joins of format 3 and 4) is one file a batch in `v2/`, whose
`stateSchemaFilePaths` are absolute, so that a copied directory would depend on the old one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from savepoints.checkpoint.logs import versioned
from savepoints.checkpoint.logs.offset_log import JOIN_FORMAT_KEY
from savepoints.checkpoint.state.files import StoreDirectory
from savepoints.errors import RESTORE_SAVEPOINT, IncompatibleError

_WHAT = "operator metadata"
_PROVIDERS = "org.apache.spark.sql.execution.streaming.state"
ROCKSDB_PROVIDER = f"{_PROVIDERS}.RocksDBStateStoreProvider"
# Spark's default.
HDFS_PROVIDER = f"{_PROVIDERS}.HDFSBackedStateStoreProvider"
# How rows are encoded in the state stores; only Spark's own form is read here.
ENCODING_KEY = "spark.sql.streaming.stateStore.encodingFormat"
UNSAFE_ROW = "unsaferow"
PROVIDERS = {"rocksdb": ROCKSDB_PROVIDER, "hdfs": HDFS_PROVIDER}
# What operators are called that no metadata names; see `of_directories`.
UNNAMED = "unknown"

# Operators whose raw rows Spark reads and writes (`StatefulOperatorsUtils`).
CANONICAL = frozenset(
    {
        "stateStoreSave",
        "dedupe",
        "dedupeWithinWatermark",
        "symmetricHashJoin",
        "sessionWindowStateStoreSaveExec",
        "flatMapGroupsWithState",
        "applyInPandasWithState",
        "transformWithStateExec",
        "transformWithStateInPandasExec",
        "transformWithStateInPySparkExec",
    }
)
# Their state is one partition without a key, whatever the number of partitions.
_UNPARTITIONED = frozenset({"globalLimit"})
_FIRST_JOIN_FORMAT_WITHOUT_ROWS = 4
# Of the modes of `transformWithState`, the one that has TTLs.
_BY_CLOCK = "ProcessingTime"

_NO_KEY = b'{"type":"struct","fields":[]}'
_KEY_OF_LIMIT = b'{"type":"struct","fields":[{"name":"key","type":"void"'

_METADATA = re.compile(r"^state/\d+/_metadata/(?:metadata|v2/\d+)$")
_SCHEMA_PATH = re.compile(r"^.*?/(state/\d+/_stateSchema/[^/]+/[^/]+)$")


@dataclass(frozen=True)
class Operator:
    """A stateful operator as its checkpoint describes it.

    Attributes:
        operator_id: Its directory below `state/`; operators count from the sink.
        partitions: Number of state partitions of its query; an operator without keys has one.
        schema_paths: Its schema files as absolute URIs; only version 2 lists them.
        has_column_families: Its stores are split into column families, which only RocksDB has.
        properties: What else version 2 records, such as its state variables.
    """

    operator_id: int
    name: str
    stores: tuple[str, ...]
    partitions: int
    schema_paths: tuple[str, ...] = ()
    has_column_families: bool = False
    properties: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def schema_files(self) -> tuple[str, ...]:
        """Its schema files relative to the checkpoint."""
        return tuple(_relative(path) for path in self.schema_paths)


def of_directories(directories: Iterable[StoreDirectory], partitions: int | None) -> list[Operator]:
    """Describe the operators of a checkpoint of Spark before 4.0, which wrote no metadata.

    Their stores are known by their directories; what they are called is not.
    """
    stores: dict[int, set[str]] = {}
    for one in directories:
        stores.setdefault(one.operator_id, set()).add(one.store)
    for number in range(len(stores)):
        if number not in stores:
            raise IncompatibleError(
                f"the directory state/{number} is missing, although the checkpoint has state "
                "for operators with higher numbers",
                hint=RESTORE_SAVEPOINT,
                file=f"state/{number}",
            )
    return [
        Operator(operator_id, UNNAMED, tuple(sorted(names)), partitions or 0)
        for operator_id, names in stores.items()
    ]


def native_only(operator: Operator, conf: Mapping[str, str]) -> str | None:
    """Return why an operator has no canonical form; None when it has one."""
    if operator.name == UNNAMED:
        return (
            "operator metadata is missing, and rows cannot be read without it; Spark writes it "
            "from 4.0 on, so to add it, run one batch with Spark 4"
        )
    if operator.name not in CANONICAL:
        return f"Spark cannot read the state rows of {operator.name}"
    join_format = int(conf.get(JOIN_FORMAT_KEY, "2"))
    if operator.name == "symmetricHashJoin" and join_format >= _FIRST_JOIN_FORMAT_WITHOUT_ROWS:
        return f"Spark cannot write the state rows of a join of format {join_format}"
    return None


def is_unpartitioned(operator_name: str) -> bool:
    """Return True if an operator has one state partition, however many the query has."""
    return operator_name in _UNPARTITIONED


def is_metadata(path: str) -> bool:
    """Return True if a path in a checkpoint is operator metadata."""
    return _METADATA.match(path) is not None


def has_variables(name: str) -> bool:
    """Return True for an operator whose state consists of named variables: `transformWithState`."""
    return name.startswith("transformWithState")


def goes_by_clock(operator: Operator) -> bool:
    """Return True if the timers and TTLs of an operator go by the time at which batches run."""
    return operator.properties.get("timeMode") == _BY_CLOCK


def of_first_batch(path: str) -> str:
    """Return a metadata file's path in a checkpoint whose first batch has that metadata.

    Files of version 2 are named after the batch from which they apply.
    """
    head, separator, _ = path.rpartition("/v2/")
    return f"{head}{separator}0" if separator else path


def has_no_key(operator: Operator, schema: bytes) -> bool:
    """Return True if a state schema file is of an operator without grouping keys.

    The file (`StateSchemaCompatibilityChecker`) has a version, then the key's schema as JSON. The
    key of a limit is one field that is always NULL.
    """
    key = schema[schema.find(b"{") :]
    is_limit = operator.name == UNNAMED and key.startswith(_KEY_OF_LIMIT)
    return is_limit or key.startswith(_NO_KEY)


def parse(data: bytes, path: str) -> Operator:
    """Read the metadata file of an operator."""
    version, content = _content(data, path)
    try:
        stores = content["stateStoreInfo"]
        return Operator(
            operator_id=int(content["operatorInfo"]["operatorId"]),
            name=str(content["operatorInfo"]["operatorName"]),
            stores=tuple(str(store["storeName"]) for store in stores),
            partitions=max(int(store["numPartitions"]) for store in stores),
            schema_paths=tuple(
                str(file) for store in stores for file in store.get("stateSchemaFilePaths", ())
            ),
            has_column_families=version == "v2",
            properties=dict(json.loads(content.get("operatorPropertiesJson") or "{}")),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise versioned.damaged(path, _WHAT, error) from None


def moved(data: bytes, path: str, checkpoint: str, partitions: int | None) -> bytes:
    """Return a metadata file adapted to another checkpoint directory; None keeps the partitions."""
    version, content = _content(data, path)
    try:
        for store in content["stateStoreInfo"]:
            if partitions is not None:
                store["numPartitions"] = partitions
            if "stateSchemaFilePaths" in store:
                store["stateSchemaFilePaths"] = [
                    f"{checkpoint}/{_relative(file)}" for file in store["stateSchemaFilePaths"]
                ]
    except (KeyError, ValueError, TypeError) as error:
        raise versioned.damaged(path, _WHAT, error) from None
    return versioned.join(version, content)


def _relative(schema_path: str) -> str:
    match = _SCHEMA_PATH.match(schema_path)
    if match is None:
        raise IncompatibleError(
            f"the operator metadata refers to the schema file {schema_path}, but Spark does not "
            "store schema files there",
            hint=RESTORE_SAVEPOINT,
            file=schema_path,
        )
    return match.group(1)


def _content(data: bytes, path: str) -> tuple[str, dict[str, Any]]:
    hint = (
        f"{RESTORE_SAVEPOINT}; or upgrade the savepoints package, if the file is from a version of "
        "Spark newer than 4.3"
    )
    version, lines = versioned.split(data, path, "operator metadata", hint)
    return version, versioned.parse_object("\n".join(lines), path, _WHAT)
