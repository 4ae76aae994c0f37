"""Writing state stores from canonical rows: the only module that touches Spark's private API.

`StateRewriter` reads the state of a checkpoint as DataFrames, hands each to a function, and writes
what comes back through Spark's own state store writer. The function here ignores what was read (the
frame is lazy, so nothing is) and returns the savepoint's rows instead.
Source: `org.apache.spark.sql.execution.streaming.state.StateRewriter` of Spark 4.2 and 4.3.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeAlias

from savepoints.errors import IncompatibleError, SavepointsError
from savepoints.io import Uri
from savepoints.state import raw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# py4j's stand-ins for Java objects have no types.
JavaObject: TypeAlias = Any

_LOG = logging.getLogger(__name__)

_REWRITER = "org.apache.spark.sql.execution.streaming.state.StateRewriter"
_REWRITER_ARGUMENTS = 8
_RAW_COLUMNS = {"partition_key", "key_bytes", "value_bytes", "column_family_name"}


def write_state(
    spark: SparkSession, checkpoint: Uri, batch_id: int, table: Uri, partitions: int
) -> None:
    """Write the state of batch N into a checkpoint that has everything but its state.

    Args:
        spark: A classic session (no Spark Connect).
        checkpoint: The directory with logs, metadata and schemas.
        batch_id: N; the state gets version N + 1.
        table: The canonical table.
        partitions: Number of state partitions; must be what `offsets/N` says, or the query would
            silently look for rows in the wrong place.

    Raises:
        IncompatibleError: If this Spark's private API has another shape.
        SavepointsError: If Spark fails to write.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.java_gateway import ensure_callback_server_started

    own = raw.state_session(spark)
    # Otherwise each put does a get to count rows: twice as slow. The query counts again on load.
    own.conf.set("spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows", "false")
    own.conf.set("spark.sql.shuffle.partitions", str(partitions))
    context = own.sparkContext
    jvm: JavaObject = context._jvm
    _probe(own, jvm)
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
    function = _Replacement(own, own.read.format("delta").load(table.hadoop), partitions)
    java_session = own._jsparkSession
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
        rewriter.run()
    except Py4JJavaError as error:
        # A Python exception inside the function reaches us only as a generic Java one.
        cause = function.failure or _root_cause(error.java_exception)
        raise SavepointsError(
            f"Spark could not write the state of {checkpoint}: {cause}",
            hint="run the command again, or restore the native form with --format native",
        ) from error


def _probe(spark: SparkSession, jvm: JavaObject) -> None:
    """Check that the private API has the shape this module was written for."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        constructors = loader.loadClass(_REWRITER).getConstructors()
        arities = sorted(one.getParameterCount() for one in constructors)
    except Exception as error:  # noqa: BLE001  (whatever py4j raises: it is not there)
        arities = [str(error)[:80]]
    if _REWRITER_ARGUMENTS not in arities:
        raise IncompatibleError(
            f"Spark {spark.version} has no StateRewriter with {_REWRITER_ARGUMENTS} arguments "
            f"(it has {arities})",
            hint="restore the native form instead: --format native",
            spark_version=spark.version,
        )


def _root_cause(exception: JavaObject) -> str:
    """Return what is at the bottom of a Java exception, which is what went wrong."""
    while exception.getCause() is not None:
        exception = exception.getCause()
    return str(exception.toString())


class _Replacement:
    """The Scala function that returns a store's rows from the savepoint."""

    def __init__(self, spark: SparkSession, table: DataFrame, partitions: int) -> None:
        self._spark = spark
        self._table = table
        self._partitions = partitions
        self.failure: Exception | None = None

    def apply(self, java_frame: JavaObject) -> JavaObject:
        """Return the rows of the store that Spark wants to write now."""
        try:
            return self._rows(java_frame)._jdf
        except Exception as error:
            _LOG.exception("could not give Spark the rows of a state store")
            self.failure = error
            raise

    def _rows(self, java_frame: JavaObject) -> DataFrame:
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F

        # The frame's own source says which store it is; the function gets nothing else.
        options = java_frame.queryExecution().analyzed().collectLeaves().head().options()
        operator_id, store = int(options.get("operatorId")), options.get("storeName") or "default"
        original = DataFrame(java_frame, self._spark)
        if set(original.columns) != _RAW_COLUMNS:
            raise IncompatibleError(
                f"Spark {self._spark.version} reads state as {original.columns}",
                hint="restore the native form instead: --format native",
            )
        # Spark insists on its own schema, nullability included, and never looks at partition_key.
        key_type = original.schema["partition_key"].dataType
        rows = self._table.where(
            (F.col("operator_id") == operator_id) & (F.col("store_name") == store)
        )
        no_key = not key_type.fieldNames()  # type: ignore[attr-defined]
        placed = (
            rows.coalesce(1)
            if no_key
            else rows.repartitionById(
                self._partitions, F.pmod(F.col("key_hash"), F.lit(self._partitions)).cast("int")
            )
        )
        columns = {
            "partition_key": F.lit(None).cast(key_type),
            "column_family_name": F.col("column_family"),
        }
        # List state keeps its order only if its rows are written in the order they were read.
        return placed.sortWithinPartitions("ord").select(
            *(columns.get(name, F.col(name)).alias(name) for name in original.columns)
        )

    class Java:
        """Tells py4j which interface this object implements."""

        implements = ("scala.Function1",)
