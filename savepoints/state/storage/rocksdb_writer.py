"""Write RocksDB state stores with Spark's own writer; see `savepoints.spark.private_api`.

`StateRewriter` reads the state of a checkpoint as DataFrames, hands each to a function, and writes
what comes back through Spark's own state store writer. The function here ignores what was read (the
frame is lazy, so nothing is) and returns the savepoint's rows instead.
Source: `org.apache.spark.sql.execution.streaming.state.StateRewriter` of Spark 4.2 and 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from savepoints.checkpoint.logs.commit_log import StateIds
from savepoints.errors import RESTORE_NATIVE, PrivateApiError, SavepointsError, StateUnwrittenError
from savepoints.spark import private_api
from savepoints.spark.java_trees import JavaObject
from savepoints.state.storage import read
from savepoints.state.storage.written_state import WrittenState
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Returns the canonical rows of (operator, store), placed in their state partitions and in order.
CanonicalRowsOf: TypeAlias = "Callable[[int, str], DataFrame]"

_ROWS = "rows"

_LOG = logging.getLogger(__name__)


def require_private_api(spark: SparkSession) -> None:
    """Check that the private API has the shape this module was written for.

    Raises:
        PrivateApiError: If it has not; the native form needs none of it.
    """
    arities = private_api.constructors(spark, private_api.STATE_REWRITER)
    wanted = private_api.STATE_REWRITER_ARGUMENTS
    if wanted not in arities:
        taken = " or ".join(map(str, arities))
        why = f"takes {taken} arguments instead of {wanted}" if arities else "does not exist"
        raise PrivateApiError(
            f"Spark {spark.version} cannot write RocksDB state from rows: the constructor of its "
            f"StateRewriter {why}",
            hint=RESTORE_NATIVE,
            spark_version=spark.version,
        )


def require_raw_columns(spark: SparkSession, columns: list[str]) -> None:
    """Check that Spark's raw reader returns the columns this module was written for."""
    if set(columns) != read.COLUMNS:
        raise PrivateApiError(
            f"cannot write RocksDB state with Spark {spark.version}: its state reader "
            f"returns the columns {', '.join(sorted(columns))} instead of "
            f"{', '.join(sorted(read.COLUMNS))}",
            hint=RESTORE_NATIVE,
            spark_version=spark.version,
        )


def _require_found(spark: SparkSession, checkpoint: Uri) -> None:
    """Refuse a directory that the reader of states, which the rewriter asks, would not find.

    It takes the escaped path for the path itself (`StreamingUtils.resolvedCheckpointLocation`).
    """
    escaped = private_api.escaped(spark, checkpoint.hadoop)
    if escaped != checkpoint.hadoop:
        raise StateUnwrittenError(
            f"Spark {spark.version} cannot write rows of this state to {checkpoint}: it would look "
            f"for the checkpoint at {escaped}",
            hint="name a directory without spaces, percent signs and the like with --to, or "
            "restore the native form: --format native",
        )


def write_state(
    spark: SparkSession, checkpoint: Uri, batch_id: int, rows: CanonicalRowsOf
) -> WrittenState:
    """Write the state of batch N into a checkpoint that has everything but its state.

    Args:
        spark: From `read.state_session`, a classic session (no Spark Connect).
        checkpoint: The directory with logs, metadata and schemas; its offset log names provider
            and partitions.
        batch_id: N; the state gets version N + 1.

    Returns:
        The ids of the stores that were written, and the rows of each operator.

    Raises:
        StateUnwrittenError: If Spark fails, or would not find the directory.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.java_gateway import ensure_callback_server_started

    _require_found(spark, checkpoint)
    # Otherwise each put does a get to count rows: twice as slow. The query counts again on load.
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows", "false")
    jvm = private_api.jvm(spark)
    ensure_callback_server_started(private_api.gateway(spark))  # type: ignore[no-untyped-call]
    function = _Replacement(spark, rows)
    java_session = private_api.java_session(spark)
    # It reads and writes the same batch of one directory. It only allows that when the directory to
    # read from is named, so it is named twice; nothing is read there, see `_Replacement`.
    some, none = jvm.scala.Some, getattr(getattr(jvm.scala, "None$"), "MODULE$")
    rewriter = jvm.org.apache.spark.sql.execution.streaming.state.StateRewriter(
        java_session,
        batch_id,
        batch_id,
        checkpoint.hadoop,
        java_session.sessionState().newHadoopConf(),
        some(checkpoint.hadoop),
        some(function),
        none,
    )
    try:
        return WrittenState(_state_ids(rewriter.run()), function.counted())
    except Py4JJavaError as error:
        if isinstance(function.failure, SavepointsError):
            raise function.failure from None
        # Py4J turns a Python exception into a generic Java one, so the function keeps its own.
        cause = function.failure or private_api.root_cause(error)
        raise StateUnwrittenError.of(checkpoint, cause) from error


def _state_ids(found: JavaObject) -> StateIds:
    """Read `Option[Map[Long, Array[Array[String]]]]`: operator, state partition, store."""
    if found is None or found.isEmpty():
        return {}
    ids, entries = {}, found.get().iterator()
    while entries.hasNext():
        entry = entries.next()
        ids[int(entry._1())] = [[str(one) for one in stores] for stores in entry._2()]
    return ids


class _Replacement:
    """The Scala function that returns a store's rows from the savepoint."""

    def __init__(self, spark: SparkSession, rows: CanonicalRowsOf) -> None:
        self._spark = spark
        self._savepoint_rows = rows
        self._given: list[tuple[int, JavaObject]] = []
        self.failure: Exception | None = None

    def apply(self, java_frame: JavaObject) -> JavaObject:
        """Return the rows of the store that Spark is about to write."""
        try:
            return self._rows(java_frame)
        except Exception as error:
            _LOG.debug("could not give Spark the rows of a state store", exc_info=True)
            self.failure = error
            raise

    def counted(self) -> dict[int, int]:
        """Return the rows by operator, once Spark has written the frames."""
        found: dict[int, int] = {}
        for operator_id, frame in self._given:
            found[operator_id] = found.get(operator_id, 0) + private_api.observed(frame, _ROWS)
        return found

    def _rows(self, java_frame: JavaObject) -> JavaObject:
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F

        # The function gets only the frame, whose source names the store.
        options = private_api.source_options(java_frame)
        operator_id, store = int(options.get("operatorId")), options.get("storeName") or "default"
        original = DataFrame(java_frame, self._spark)
        require_raw_columns(self._spark, original.columns)
        # Spark never looks at partition_key.
        columns = {
            "partition_key": F.lit(None).cast(original.schema["partition_key"].dataType),
            "column_family_name": F.col("column_family"),
        }
        # Spark insists on its own schema, in which everything is nullable: NULLIF with NULL is the
        # value, and nullable.
        rows = self._savepoint_rows(operator_id, store).select(
            *(
                F.nullif(columns.get(name, F.col(name)), F.lit(None)).alias(name)
                for name in original.columns
            )
        )
        given = private_api.java_frame(rows.observe(_ROWS, F.count(F.lit(1)).alias(_ROWS)))
        self._given.append((operator_id, given))
        return given

    class Java:
        """Tells py4j which interface this object implements."""

        implements = ("scala.Function1",)
