"""Every private class and member of Spark that is used here, and the versions it was seen in.

| name | for | seen in | without it |
| --- | --- | --- | --- |
| `StreamExecution.sink` | the table of a query that nobody named | 3.5 to 4.2 | name it |
| `StreamExecution.resolvedCheckpointRoot` | `attach` without `checkpoint=` | 3.5 to 4.2 | give it |
| `StreamExecution.queryExecutionThread` | the end of a query without session | 4.2 | no wait |
| `StreamExecution.lastExecution` | initial buffers of aggregates, keys of joins | 4.2 | not known |
| the same, `EventTimeWatermarkExec` | columns and watermarks of a new query | 4.2 | no `seed` |
| `eventTimeStats` of it | watermarks of planned batches | 3.5 to 4.2 | no end of a run |
| `LogicalPlan.toJSON` | if a program is the one that ran before | 3.5 to 4.2 | it is compared |
| `PythonUDF`, `PythonFunction.command` | the same, for Python functions | 3.5 to 4.2 | not seen |
| `LogicalRelation`, `TahoeLogFileIndex` | tables beside the inputs | 3.5 to 4.2 | not seen |
| `Filter.condition`, `TreePattern` | if a predicate is of the row alone | 3.5 to 4.2 | no `where` |
| `QueryExecution`, `Dataset.ofRows` | what is dropped | 3.5 to 4.2 | no `late` |
| `Project`, `Expand` | the same | 3.5 to 4.2 | no `late` |
| `Invoke`, `UnsafeRow`, `NormalizeFloatingNumbers` | bytes of given rows | 4.2 | no `seed` |
| `StaticInvoke`, `ByteArray` | the order in which given rows are written | 4.2 | no `seed` |
| `QueryExecution.toRdd`, `SQLExecutionRDD`, Janino | rows by columns | 4.0 to 4.2 | no rows |
| `BindReferences`, `UnsafeProjection`, `UTF8String` | the same | 4.0 to 4.2 | no rows |
| `BatchScanExec.inputRDD` | the same, of RocksDB | 4.2 | no rows |
| `StateRewriter` | writing RocksDB state from rows | 4.2 | the native form |
| `RocksDB`, `RocksDBConf`, `StateStoreConf`, `Utils` | loading sorted rows | 4.2 | Spark's writer |
| `_readAllColumnFamilies` of `statestore` | reading rows of RocksDB | 4.2 | the native form |
| `HadoopFsRelation`, `BucketSpec` | files read by the tasks they are for | 3.5 to 4.2 | a shuffle |
| `__globPaths__` of file sources | a store whose path has brackets | 3.5 to 4.2 | no such path |
| `proc` of the gateway | whether Python has started its JVM | 3.5 to 4.2 | signals end the JVM |

Nothing else of this package reaches through py4j; a test holds that. What depends on the version
without being private is in `savepoints.spark.versions`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from savepoints.spark.java_trees import JavaObject, class_name, items
from savepoints.spark.versions import SparkVersion

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

STATE_REWRITER = "org.apache.spark.sql.execution.streaming.state.StateRewriter"
STATE_REWRITER_ARGUMENTS = 8
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDB"
ROCKSDB_ARGUMENTS = 10
_UNSAFE_ROW = "org.apache.spark.sql.catalyst.expressions.UnsafeRow"
_BYTE_ARRAY = "org.apache.spark.unsafe.types.ByteArray"
# What Spark numbers anew in each process: expressions, and the nodes of watermarks.
_NUMBERS = re.compile(
    r'\{"product-class":"org\.apache\.spark\.sql\.catalyst\.expressions\.ExprId"[^}]*\}'
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
_PYTHON_CALLS = ("PythonUDF", "PythonUDAF")
_LOWEST = -(1 << 63)
# Null for null, nothing else null, and always the same.
_INVOKED = (True, False, True)
READ_ALL_COLUMN_FAMILIES = "_readAllColumnFamilies"
GLOB_PATHS = "__globPaths__"


def jvm(spark: SparkSession) -> JavaObject:
    """Return the JVM of a classic session, by whose attributes its classes are found."""
    return spark.sparkContext._jvm


def gateway(spark: SparkSession) -> JavaObject:
    """Return py4j's gateway, through which Java calls Python."""
    return spark.sparkContext._gateway


def has_session() -> bool:
    """Return True if this process has a session, whatever has become of its JVM."""
    pyspark = sys.modules.get("pyspark")
    return bool(pyspark and pyspark.SparkContext._active_spark_context)


def has_ended() -> bool:
    """Return True if this process has a session whose JVM has ended or is shutting down."""
    pyspark = sys.modules.get("pyspark")
    context = pyspark and pyspark.SparkContext._active_spark_context
    if context is None:
        return False
    try:
        # `SparkContext.stop` of Python forgets the context, so this one was stopped from below.
        return bool(context._jsc.sc().isStopped())
    except Exception:  # noqa: BLE001  (py4j's errors have no common root)
        return True


def end_after_python(spark: SparkSession) -> None:
    """Let SIGTERM and SIGHUP end Python alone, which needs its JVM to save what it has.

    systemd, `timeout` and terminals send them to all processes of a service. A JVM that PySpark has
    started ends when Python does; one that has started Python itself (`spark-submit`) stays as is.
    """
    if getattr(gateway(spark), "proc", None) is None:
        return
    java = jvm(spark).sun.misc
    for name in ("TERM", "HUP"):
        with suppress(Exception):  # With `-Xrs` the user keeps the JVM from handling signals.
            java.Signal.handle(java.Signal(name), java.SignalHandler.SIG_IGN)


def session_of(query: StreamingQuery, spark: SparkSession) -> SparkSession:
    """Return the session that a query was started in, given any of the same Spark."""
    from pyspark.sql import SparkSession

    return SparkSession(spark.sparkContext, query._jsq.sparkSession())


def is_stopped(query: StreamingQuery) -> bool:
    """Return True if the session of a query was stopped; fails without its JVM.

    The query has ended then, but may say for ever that it is active: its thread cannot tell.
    """
    return bool(query._jsq.sparkSession().sparkContext().isStopped())


def await_thread(query: StreamingQuery, seconds: float) -> None:
    """Wait for the end of a query's thread, which Spark itself does not await without a session."""
    with suppress(Exception):  # Another version of Spark has no such member.
        execution(query).queryExecutionThread().join(int(seconds * 1000))


def java_session(spark: SparkSession) -> JavaObject:
    """Return the `SparkSession` in the JVM."""
    return spark._jsparkSession


def java_frame(frame: DataFrame) -> JavaObject:
    """Return the `Dataset` in the JVM."""
    return frame._jdf


def execution(query: StreamingQuery) -> JavaObject:
    """Return the `StreamExecution` of a query, which is below the public `StreamingQuery`."""
    return query._jsq.streamingQuery()


def executed_plan(query: StreamingQuery) -> JavaObject:
    """Return the physical plan of a query's last batch."""
    return execution(query).lastExecution().executedPlan()


def result_schema(query: StreamingQuery) -> str:
    """Return the columns that a query writes, as JSON of their type, by its last batch."""
    plan = execution(query).lastExecution().analyzed()
    while not plan.output().size():  # What writes has no columns of its own.
        plan = plan.children().head()
    return str(plan.schema().json())


def analyzed_plan(frame: DataFrame) -> JavaObject:
    """Return the logical plan of a frame, as it was written."""
    return frame._jdf.queryExecution().analyzed()


def plan_text(frame: DataFrame) -> str:
    """Return the logical plan of a frame as text, the same in each process.

    As JSON, for as a tree Spark leaves out what is long.
    """
    return _NUMBERS.sub("", str(analyzed_plan(frame).toJSON()))


@dataclass(frozen=True)
class PythonFunction:
    """A Python function in a plan.

    Attributes:
        pickled: The function; of one that takes more than a megabyte, a broadcast variable of it.
    """

    pickled: bytes
    _function: JavaObject

    def broadcast(self, number: int) -> str:
        """Return the file of this machine with the value of one of its broadcast variables."""
        found = (one for one in self._function.broadcastVars() if one.id() == number)
        return str(next(found).value().path())


def python_functions(frame: DataFrame) -> list[PythonFunction]:
    """Return the Python functions of a frame's plan, in the order of the plan."""
    java = jvm(frame.sparkSession)
    kind = java.org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF()
    plans = _having(kind, [analyzed_plan(frame)])
    calls = _having(kind, (one for plan in plans for one in items(plan.expressions())))
    as_bytes = java.scala.reflect.ClassTag.Byte()
    return [
        PythonFunction(bytes(one.func().command().toArray(as_bytes)), one.func())
        for one in calls
        if class_name(one) in _PYTHON_CALLS
    ]


def _having(kind: JavaObject, nodes: Iterable[JavaObject]) -> Iterator[JavaObject]:
    """Yield the nodes of trees that have one of a kind in or below them."""
    for node in nodes:
        if node.containsPattern(kind):
            yield node
            yield from _having(kind, items(node.children()))


def tables_beside(frame: DataFrame) -> list[str]:
    """Return what a streaming query reads besides its streams, whose content may have changed.

    Tables by their names, others by their paths; none of which it reads one version.
    """
    plan = analyzed_plan(frame)
    plans = (plan, *items(plan.subqueriesAll()))
    leaves = (leaf for one in plans for leaf in items(one.collectLeaves()))
    names = (_relation(one) for one in leaves if not one.isStreaming())
    return sorted({name for name in names if name is not None})


def _relation(leaf: JavaObject) -> str | None:
    kind = class_name(leaf)
    if kind == "HiveTableRelation":
        return str(leaf.tableMeta().qualifiedName())
    if kind == "DataSourceV2Relation":
        return str(leaf.name())
    if kind != "LogicalRelation":
        return None  # Rows that the program has itself.
    table = leaf.catalogTable()
    named = str(table.get().qualifiedName()) if table.isDefined() else None
    try:
        files = leaf.relation().location()
    except Exception:  # noqa: BLE001  (py4j's errors have no common root)
        return named or str(leaf.relation())  # Such as a table of a database.
    with suppress(Exception):  # Only Delta's files have versions.
        if files.isTimeTravelQuery():
            return None
    return named or str(files.rootPaths().mkString(", "))


def beside_the_row(frame: DataFrame, where: str) -> str | None:
    """Return what a predicate depends on besides the row, in words; None if on nothing."""
    condition = analyzed_plan(frame.where(where)).condition()
    if not condition.deterministic():
        return "chance"
    pattern = jvm(frame.sparkSession).org.apache.spark.sql.catalyst.trees.TreePattern
    if condition.containsPattern(pattern.CURRENT_LIKE()):
        return "the clock or the user"
    if condition.containsPattern(pattern.PLAN_EXPRESSION()):
        return "other rows"
    return None


def optimized_plan(frame: DataFrame) -> JavaObject:
    """Return the logical plan of a frame, as Spark's optimizer leaves it."""
    return frame._jdf.queryExecution().optimizedPlan()


def frame(spark: SparkSession, plan: JavaObject) -> DataFrame:
    """Return the frame of a logical plan."""
    from pyspark.sql import DataFrame

    dataset = reduce(getattr, SparkVersion.of(spark.version).dataset.split("."), jvm(spark))
    return DataFrame(dataset.ofRows(spark._jsparkSession, plan), spark)


def canonical_floats(frame: DataFrame, column: str) -> Column:
    """Return a column with 0.0 for -0.0, and one NaN, anywhere in it, as Spark has them in keys."""
    from pyspark.sql.classic.column import Column

    sql = jvm(frame.sparkSession).org.apache.spark.sql
    found = analyzed_plan(frame.select(column)).output().head()
    rule = getattr(getattr(sql.catalyst.optimizer, "NormalizeFloatingNumbers$"), "MODULE$")
    return Column(sql.classic.ExpressionUtils.column(rule.normalize(found)))


def row_bytes(frame: DataFrame, column: str) -> Column:
    """Return the bytes of a column of structs as Spark writes them: as those of an `UnsafeRow`.

    Args:
        frame: The frame whose column it is. Its plan must end with an operator that has no code of
            its own in whole-stage code generation, such as `coalesce`: in the rows that such a one
            passes on, a struct is an `UnsafeRow`.
    """
    from pyspark.sql.classic.column import Column

    sql = jvm(frame.sparkSession).org.apache.spark.sql
    found = analyzed_plan(frame.select(column)).output().head()
    row = jvm(frame.sparkSession).java.lang.Class.forName(_UNSAFE_ROW)
    none = sequence(frame.sparkSession, ())

    def call(target: JavaObject, method: str, kind: JavaObject) -> JavaObject:
        invoke = sql.catalyst.expressions.objects.Invoke
        return invoke(target, method, kind, none, none, *_INVOKED)

    copied = call(found, "copy", sql.types.ObjectType(row))
    binary = sql.types.DataType.fromDDL("binary")
    return Column(sql.classic.ExpressionUtils.column(call(copied, "getBytes", binary)))


def first_word(frame: DataFrame, column: str) -> Column:
    """Return the first eight bytes of a binary column as a number, in the order of the bytes.

    Spark sorts numbers by radix, and bytes by comparing them, which takes three times as long.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.classic.column import Column

    spark = frame.sparkSession
    sql = jvm(spark).org.apache.spark.sql
    found = analyzed_plan(frame.select(column)).output().head()
    bytes_class = jvm(spark).java.lang.Class.forName(_BYTE_ARRAY)
    word = sql.catalyst.expressions.objects.StaticInvoke(
        bytes_class,
        sql.types.DataType.fromDDL("bigint"),
        "getPrefix",
        sequence(spark, (found,)),
        sequence(spark, ()),
        *_INVOKED,
        jvm(spark).scala.Option.empty(),
    )
    # Bytes are compared without a sign, and numbers with one.
    return Column(sql.classic.ExpressionUtils.column(word)).bitwiseXOR(F.lit(_LOWEST))


def sequence(spark: SparkSession, elements: Sequence[JavaObject]) -> JavaObject:
    """Return a Scala `Seq`."""
    found = java_list(spark, elements)
    return jvm(spark).org.apache.spark.api.python.PythonUtils.toSeq(found)


def java_list(spark: SparkSession, elements: Iterable[object]) -> JavaObject:
    """Return a Java `List`."""
    found = jvm(spark).java.util.ArrayList()
    for one in elements:
        found.add(one)
    return found


def source_options(frame: JavaObject) -> JavaObject:
    """Return the options that the source of a Java frame was made with."""
    return frame.queryExecution().analyzed().collectLeaves().head().options()


def escaped(spark: SparkSession, path: str) -> str:
    """Return a path of Hadoop's as it is written in a URI."""
    return str(jvm(spark).org.apache.hadoop.fs.Path(path).toUri().toString())


def observed(frame: JavaObject, name: str) -> int:
    """Return the only metric of `observe` of a Java frame whose own execution has run."""
    return int(frame.queryExecution().observedMetrics().apply(name).getLong(0))


def compiled(spark: SparkSession, sources: Sequence[str]) -> dict[str, bytes]:
    """Compile Java by Janino, as Spark does with its generated code; returns bytes by class.

    Args:
        sources: Each of which may use the ones before it.
    """
    found: dict[str, bytes] = {}
    loader = _class_loader(spark)
    for source in sources:
        compiler = jvm(spark).org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.setDebuggingInformation(True, True, False)  # noqa: FBT003 (lines in stack traces)
        compiler.cook(source)
        classes = compiler.getBytecodes()
        found |= {str(name): bytes(classes[name]) for name in classes}
        loader = compiler.getClassLoader()
    return found


def java_class(spark: SparkSession, jar: str, name: str) -> JavaObject:
    """Send a jar to the executors and return one of its classes for the driver."""
    context = spark.sparkContext
    context._jsc.addJar(jar)
    urls = gateway(spark).new_array(jvm(spark).java.net.URL, 1)
    urls[0] = jvm(spark).java.io.File(jar).toURI().toURL()
    return jvm(spark).java.net.URLClassLoader(urls, _class_loader(spark)).loadClass(name)


def made(spark: SparkSession, java: JavaObject, *arguments: object) -> JavaObject:
    """Call the only constructor of a class."""
    given = gateway(spark).new_array(jvm(spark).java.lang.Object, len(arguments))
    for position, one in enumerate(arguments):
        given[position] = one
    return java.getConstructors()[0].newInstance(given)


def constructors(spark: SparkSession, name: str) -> list[int]:
    """Return how many arguments each constructor of a class takes; none if there is no class."""
    try:
        found = _class_loader(spark).loadClass(name).getConstructors()
        return sorted(one.getParameterCount() for one in found)
    except Exception:  # noqa: BLE001  (whatever py4j raises: it is not there)
        return []


def state_store_conf(spark: SparkSession) -> JavaObject:
    """Return a session's settings of state stores, as a task can be given them."""
    scala = jvm(spark).scala.collection.immutable
    none = getattr(getattr(scala, "Map$"), "MODULE$").empty()
    settings = java_session(spark).sessionState().conf()
    state = jvm(spark).org.apache.spark.sql.execution.streaming.state
    return state.StateStoreConf(settings, none)


def root_cause(error: Py4JJavaError) -> str:
    """Return what went wrong at first, in Java's words."""
    exception = error.java_exception
    while exception.getCause() is not None:
        exception = exception.getCause()
    return str(exception.toString())


def hadoop_conf(spark: SparkSession) -> JavaObject:
    """Return a session's settings of Hadoop, as a task can be given them."""
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    return jvm(spark).org.apache.spark.util.SerializableConfiguration(conf)


def bound(frame: DataFrame, column: Column) -> JavaObject:
    """Return a column over a frame's rows as a `Seq` of one expression, which tasks can compute."""
    expressions = jvm(frame.sparkSession).org.apache.spark.sql.catalyst.expressions
    plan = analyzed_plan(frame.select(column))
    package = getattr(getattr(expressions, "package$"), "MODULE$")
    known = package.AttributeSeq(plan.children().head().output())
    return expressions.BindReferences.bindReferences(plan.expressions(), known)


def called_on_rows(rows: DataFrame, function: JavaObject) -> JavaObject:
    """Return a `JavaRDD` of what a Java function makes of rows, in tasks.

    Rows that are just as a source gives them are taken from there: Spark would copy each one first.

    Args:
        function: A `Function2` of a partition's number and its rows.
    """
    execution = rows._jdf.queryExecution()
    scan = execution.executedPlan().collectLeaves().head()
    is_source = not optimized_plan(rows).children().size()
    if is_source and scan.nodeName().startswith("BatchScan"):
        sql = jvm(rows.sparkSession).org.apache.spark.sql.execution
        settings = java_session(rows.sparkSession).sessionState().conf()
        internal = sql.SQLExecutionRDD(scan.inputRDD(), settings)
    else:
        internal = execution.toRdd()
    rdd = internal.toJavaRDD()
    return rdd.mapPartitionsWithIndex(function, False)  # noqa: FBT003 (its partitioner goes)


def collected(found: Sequence[JavaObject], tasks: int | None) -> list[str]:
    """Collect several `JavaRDD` of texts in one job, in a task for each partition by default."""
    every = reduce(lambda one, other: one.union(other), found)
    return [str(one) for one in (every if tasks is None else every.coalesce(tasks)).collect()]


def in_buckets(rows: DataFrame, buckets: int, column: str) -> DataFrame:
    """Return what is read from files with tasks by the number that a file has in its name.

    A task for each bucket, from 0, reads `…_00000.…` and so on; without any it reads nothing. Spark
    takes the rows for placed by the hash of `column`, so they must not be joined or grouped by it.
    Source: `FileSourceScanExec.createBucketedReadRDD`, `BucketingUtils`.

    Args:
        rows: As `DataFrameReader` returns them; its session keeps what is set here.
        column: One that is read, or Spark would take no notice of buckets.
    """
    from pyspark.sql import DataFrame

    spark = rows.sparkSession
    spark.conf.set("spark.sql.sources.bucketing.enabled", "true")
    # Spark would see that nothing needs the rows in buckets.
    spark.conf.set("spark.sql.sources.bucketing.autoBucketedScan.enabled", "false")
    spec = jvm(spark).org.apache.spark.sql.catalyst.catalog.BucketSpec(
        buckets, sequence(spark, (column,)), sequence(spark, ())
    )
    files = analyzed_plan(rows).relation()
    bucketed = files.copy(
        files.location(),
        files.partitionSchema(),
        files.dataSchema(),
        jvm(spark).scala.Some(spec),
        files.fileFormat(),
        files.options(),
        java_session(spark),
    )
    return DataFrame(java_session(spark).baseRelationToDataFrame(bucketed), spark)


def _class_loader(spark: SparkSession) -> JavaObject:
    return jvm(spark).java.lang.Thread.currentThread().getContextClassLoader()
