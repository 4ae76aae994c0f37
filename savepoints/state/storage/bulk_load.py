"""Write RocksDB state stores by loading sorted files into them.

Spark's own writer puts one row after the other, in three times the time. This one serves stores
whose keys are in RocksDB as Spark's rows have them: those without column families, and not those of
session windows, which are looked up by the beginning of a key.
Source: `RocksDB`, `NoPrefixKeyStateEncoder` and `RocksDBDataEncoder` of Spark 4.2; Creating and
Ingesting SST files, RocksDB wiki.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, TypeAlias

from savepoints.checkpoint.logs import commit_log, offset_log
from savepoints.checkpoint.logs.commit_log import StateIds
from savepoints.checkpoint.state.operators import ENCODING_KEY, UNSAFE_ROW
from savepoints.checkpoint.state.records import ROW_CHECKSUM_KEY
from savepoints.checkpoint.state_partitions import Partitions
from savepoints.errors import RESTORE_NATIVE, StateUnwrittenError
from savepoints.io import Location
from savepoints.model import Cut, OperatorState
from savepoints.spark import java_functions, private_api
from savepoints.state.storage.written_state import WrittenState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Returns the canonical rows of (operator, store), those of state partition p in task p.
RowsOf: TypeAlias = "Callable[[OperatorState, str], DataFrame]"
# An operator's store in a state partition.
_Store: TypeAlias = "tuple[int, str, int]"

# Operators whose state is looked up by whole keys.
_OPERATORS = frozenset(
    {
        "stateStoreSave",
        "dedupe",
        "dedupeWithinWatermark",
        "symmetricHashJoin",
        "flatMapGroupsWithState",
        "applyInPandasWithState",
    }
)
_CLASS = "BulkLoad"
_STATE_STORES = "spark.sql.streaming.stateStore."
_CHANGELOGS = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_COLUMNS = ("key_hash", "key_bytes", "value_bytes")


def fits(
    spark: SparkSession, checkpoint: Location, batch_id: int, operators: Sequence[OperatorState]
) -> bool:
    """Return True if the state of these operators can be written here.

    Args:
        checkpoint: One with logs.
        batch_id: The batch whose offset log says how state is encoded.
    """
    conf = _settings(checkpoint, batch_id)
    return (
        all(one.name in _OPERATORS and not one.column_families for one in operators)
        and conf.get(ENCODING_KEY, UNSAFE_ROW) == UNSAFE_ROW
        and conf.get(ROW_CHECKSUM_KEY, "false") == "false"
        and private_api.ROCKSDB_ARGUMENTS in private_api.constructors(spark, private_api.ROCKSDB)
    )


def write_state(
    spark: SparkSession,
    checkpoint: Location,
    cut: Cut,
    operators: Sequence[OperatorState],
    rows_of: RowsOf,
    partitions: Partitions | None = None,
) -> WrittenState:
    """Write the state of a cut into a checkpoint that has everything but its state.

    Args:
        spark: From `read.state_session`, a classic session (no Spark Connect).
        checkpoint: The directory with logs, metadata and schemas of these operators, and no others.
        cut: Its batch and its number of partitions; the state gets the version after the batch.
        rows_of: Rows in the order of `key_bytes` are written fastest.
        partitions: Those that are written, by default all. Whoever calls this has written the
            others; their ids are those that the commit log has.

    Returns:
        The ids of all stores, and the rows of the partitions that were written.

    Raises:
        StateUnwrittenError: If Spark fails, a row is in the task of another state partition than
            its own, or two rows have the same key.
    """
    from py4j.protocol import Py4JJavaError

    for name, value in _settings(checkpoint, cut.batch_id).items():
        spark.conf.set(name, value)
    # What is loaded is in no changelog, so the version is a snapshot.
    spark.conf.set(_CHANGELOGS, "false")
    # Where the offset log does not say so, the settings of the cluster could say otherwise.
    spark.conf.set(ROW_CHECKSUM_KEY, "false")
    conf = private_api.state_store_conf(spark)
    wanted = partitions or {one.operator_id: range(_count(one, cut)) for one in operators}
    function = java_functions.load(spark, _CLASS, [_source()])
    tasks = [
        private_api.called_on_rows(
            rows_of(operator, store).select(*_COLUMNS),
            private_api.made(
                spark,
                function,
                private_api.hadoop_conf(spark),
                conf,
                f"{checkpoint.uri.hadoop}/state/{operator.operator_id}",
                operator.operator_id,
                store,
                cut.batch_id + 1,
                _count(operator, cut),
                private_api.java_list(spark, wanted[operator.operator_id]),
            ),
        )
        for operator in operators
        for store in operator.stores
    ]
    try:
        written = private_api.collected(tasks, None)
    except Py4JJavaError as error:
        raise StateUnwrittenError.of(checkpoint, private_api.root_cause(error)) from error
    ids, rows = {}, {one.operator_id: 0 for one in operators}
    for line in written:
        operator_id, store, partition, count, found = line.split(" ")
        ids[int(operator_id), store, int(partition)] = found
        rows[int(operator_id)] += int(count)
    _require_written(ids, operators, wanted)
    named = _state_ids(ids, checkpoint, cut, operators) if any(ids.values()) else {}
    return WrittenState(named, rows)


def _require_written(
    ids: Mapping[_Store, str], operators: Sequence[OperatorState], wanted: Partitions
) -> None:
    """Check that there was a task for each state partition."""
    expected = {
        (one.operator_id, store, partition)
        for one in operators
        for store in one.stores
        for partition in wanted[one.operator_id]
    }
    for number, store, partition in sorted(expected - ids.keys()):
        raise StateUnwrittenError(
            f"Spark did not write state partition {partition} of the store {store} of operator "
            f"{number}",
            hint=RESTORE_NATIVE,
            operator_id=number,
        )


def _state_ids(
    ids: Mapping[_Store, str], checkpoint: Location, cut: Cut, operators: Sequence[OperatorState]
) -> StateIds:
    """Return ids by operator, state partition and store; of what was not written the known ones."""
    path = f"commits/{cut.batch_id}"
    known = commit_log.parse(checkpoint.get(path), path).state_ids
    return {
        one.operator_id: [
            [
                ids.get((one.operator_id, store, partition))
                or known[one.operator_id][partition][place]
                for place, store in enumerate(one.stores)
            ]
            for partition in range(_count(one, cut))
        ]
        for one in operators
    }


def _count(operator: OperatorState, cut: Cut) -> int:
    return 1 if operator.keyless else cut.partitions or 1


def _settings(checkpoint: Location, batch_id: int) -> dict[str, str]:
    """Return how a checkpoint has its state encoded, by its offset log."""
    conf = offset_log.read(checkpoint, batch_id).conf
    return {name: value for name, value in conf.items() if name.startswith(_STATE_STORES)}


def _source() -> str:
    """Return the Java of the tasks, also where the package is in a zip file."""
    return (files(__package__) / "java" / f"{_CLASS}.java").read_text("utf-8")
