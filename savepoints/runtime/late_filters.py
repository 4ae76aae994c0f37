"""Find where a program drops late rows, and the rows that reach these places.

Spark's own plan of the program says it, after its optimizer: which columns reach an operator, and
which filters were pushed below it, decides what the operator drops. A row is dropped if its event
time, or the end of its window, is not after the watermark of the batch before. Sources of the
rules: `WatermarkSupport.watermarkExpression` and `findEventTimeColumn` for all of them,
`StateStoreSaveExec` (not in complete mode), `SessionWindowStateStoreRestoreExec`,
`BaseStreamingDeduplicateExec`, `StreamingSymmetricHashJoinExec.storeAndJoinWithOtherSide` for each
side, `FlatMapGroupsWithStateExecBase` (only with event-time timeouts), `TransformWithStateExec` and
`TransformWithStateInPySparkExec`.

A second operator drops nothing of its own: Spark gives it a watermark that rows of the first one
are not behind (`PropagateWatermarkSimulator`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.errors import IncompatibleError
from savepoints.sources.events.events import POSITION
from savepoints.spark import private_api
from savepoints.spark.java_trees import JavaObject, class_name, items, nodes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The column of `LateFilter.rows` that is compared with the watermark.
COMPARED = "compared"
# `EventTimeWatermark.delayKey`: marks the columns that are event times, and windows of them.
_MARK = "spark.watermarkDelayMs"
_AGGREGATE, _JOIN = "Aggregate", "Join"
_GROUPED = frozenset({"FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState"})
_BY_ROW = frozenset(
    {
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "TransformWithState",
        "TransformWithStateInPySpark",
    }
)
_PASSING = frozenset(
    {"Filter", "EventTimeWatermark", "Generate", "SubqueryAlias", "BatchEvalPython"}
    | {"ArrowEvalPython", "Repartition", "RepartitionByExpression"}
)
_SESSION = "spark.sessionWindow"
_MERGED_SESSIONS = "spark.sql.streaming.sessionWindow.merge.sessions.in.local.partition"


@dataclass(frozen=True)
class LateFilter:
    """One place where late rows are dropped.

    Attributes:
        name: The operator, in words, with the side of a join.
        rows: What reaches it, a streaming frame: `topic`, `partition`, `offset` of the record that
            a row comes from, and `compared` timestamp.
    """

    name: str
    rows: DataFrame


def find(
    spark: SparkSession, result: DataFrame, event_times: Collection[int], mode: str
) -> list[LateFilter]:
    """Find where a program drops late rows.

    Args:
        spark: A session of its own, whose settings are changed.
        result: What the program makes of streams of records.
        event_times: Ids of the columns that are the event times of its inputs; see `column_id`.
        mode: The output mode.

    Raises:
        IncompatibleError: If what is dropped cannot be told from the plan.
    """
    # Otherwise Spark refuses to optimize a plan of streams outside of a running query.
    spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
    _require_event_time(private_api.analyzed_plan(result), event_times)
    plan = private_api.optimized_plan(result)
    found = []
    for number, one in enumerate(_stateful(plan)):
        for name, child, column in _filtered(spark, one, mode):
            where = f"operator {number} ({name})"
            if any(True for _ in _stateful(child)):
                if not all(_drops(spark, each, mode) for each in _stateful(child)):
                    raise _refused(
                        f"{where} follows another operator, which does not drop late rows itself"
                    )
                continue
            found.append(LateFilter(where, _rows(spark, child, column, where)))
    return found


def column_id(frame: DataFrame, name: str) -> int:
    """Return Spark's id of a column in the plan of a frame."""
    output = items(private_api.analyzed_plan(frame).output())
    return next(int(one.exprId().id()) for one in output if one.name() == name)


def _stateful(plan: JavaObject) -> Iterator[JavaObject]:
    """Yield the operators with state, in the order in which Spark numbers them."""
    for one in nodes(plan):
        kind = class_name(one)
        if kind == _JOIN:
            is_stateful = all(each.isStreaming() for each in items(one.children()))
        else:
            is_stateful = kind in {_AGGREGATE, "GlobalLimit", *_GROUPED, *_BY_ROW}
        if is_stateful and one.isStreaming():
            yield one


def _filtered(
    spark: SparkSession, one: JavaObject, mode: str
) -> Iterator[tuple[str, JavaObject, JavaObject]]:
    """Yield what an operator drops late rows of: its name, the plan of the rows, the column."""
    kind = class_name(one)
    if kind == _JOIN:
        sides = zip(("left", "right"), items(one.children()), strict=True)
        parts = [(f"{side} side of a join", child, items(child.output())) for side, child in sides]
    elif kind == _AGGREGATE:
        keys = [each for each in items(one.groupingExpressions()) if _is_marked(each)]
        sessions = any(each.metadata().contains(_SESSION) for each in keys)
        if sessions and spark.conf.get(_MERGED_SESSIONS) == "true":
            raise _refused(f"sessions are merged before late rows are dropped ({_MERGED_SESSIONS})")
        name = "session window" if sessions else "aggregation"
        parts = [(name, one.child(), keys if mode != "complete" else [])]
    elif kind in _GROUPED:
        is_timed = "EventTime" in str(one.timeout().toString())
        parts = [
            ("applyInPandasWithState", one.child(), items(one.child().output()) if is_timed else [])
        ]
    elif kind in _BY_ROW:
        parts = [(_words(kind), one.child(), items(one.child().output()))]
    else:
        parts = []
    for name, child, columns in parts:
        if marked := next((each for each in columns if _is_marked(each)), None):
            yield name, child, marked


def _drops(spark: SparkSession, one: JavaObject, mode: str) -> bool:
    return any(True for _ in _filtered(spark, one, mode))


def _words(kind: str) -> str:
    return {
        "Deduplicate": "dropDuplicates",
        "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    }.get(kind, "transformWithState")


def _is_marked(column: JavaObject) -> bool:
    return "metadata" in dir(column) and bool(column.metadata().contains(_MARK))


def _rows(spark: SparkSession, child: JavaObject, column: JavaObject, where: str) -> DataFrame:
    """Return the rows of a plan with the positions of the records that they come from."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    carried, position = _carried(spark, child, where)
    kept = private_api.frame(spark, _project(spark, carried, [*position, column]))
    rows = kept.toDF(*POSITION, COMPARED)
    if isinstance(rows.schema[COMPARED].dataType, StructType):
        return rows.withColumn(COMPARED, F.col(f"{COMPARED}.end"))
    return rows


def _carried(
    spark: SparkSession, plan: JavaObject, where: str
) -> tuple[JavaObject, list[JavaObject]]:
    """Return a plan that keeps the positions of records to its end, and these columns."""
    kind = class_name(plan)
    children = items(plan.children())
    by_name = {str(one.name()): one for one in items(plan.output())}
    if kind not in {"Project", "Expand", *_PASSING} and all(name in by_name for name in POSITION):
        return plan, [by_name[name] for name in POSITION]
    if len(children) != 1 or kind not in {"Project", "Expand", *_PASSING}:
        raise _refused(
            f"{where} reads through {plan.nodeName()}, after which it is unknown which "
            "record a row comes from"
        )
    below, position = _carried(spark, children[0], where)
    known = {int(one.exprId().id()) for one in items(plan.output())}
    lost = [one for one in position if int(one.exprId().id()) not in known]
    if kind == "Project":
        return _project(spark, below, [*items(plan.projectList()), *lost]), position
    if kind == "Expand":
        return _expand(spark, plan, below, lost), position
    return plan.withNewChildren(private_api.sequence(spark, [below])), position


def _project(spark: SparkSession, child: JavaObject, columns: Sequence[JavaObject]) -> JavaObject:
    logical = private_api.jvm(spark).org.apache.spark.sql.catalyst.plans.logical
    return logical.Project(private_api.sequence(spark, columns), child)


def _expand(
    spark: SparkSession, plan: JavaObject, child: JavaObject, lost: Sequence[JavaObject]
) -> JavaObject:
    def longer(one: JavaObject) -> JavaObject:
        return private_api.sequence(spark, [*items(one), *lost])

    logical = private_api.jvm(spark).org.apache.spark.sql.catalyst.plans.logical
    rows = private_api.sequence(spark, [longer(one) for one in items(plan.projections())])
    return logical.Expand(rows, longer(plan.output()), child)


def _require_event_time(plan: JavaObject, event_times: Collection[int]) -> None:
    """Refuse a watermark that is not by the event time of an input."""
    aliases: dict[int, JavaObject] = {}
    marked = []
    for one in nodes(plan):
        if class_name(one) == "EventTimeWatermark":
            marked.append(one.eventTime())
        if class_name(one) == "Project":
            for each in items(one.projectList()):
                if class_name(each) == "Alias":
                    aliases[int(each.exprId().id())] = each.child()
    for column in marked:
        at = column
        while class_name(at) == "Cast" or (
            class_name(at) == "AttributeReference"
            and int(at.exprId().id()) not in event_times
            and int(at.exprId().id()) in aliases
        ):
            at = at.child() if class_name(at) == "Cast" else aliases[int(at.exprId().id())]
        if class_name(at) != "AttributeReference" or int(at.exprId().id()) not in event_times:
            raise _refused(
                f"the watermark is defined on {column.name()}, which is not the event time "
                "of an input"
            )


def _refused(why: str) -> IncompatibleError:
    return IncompatibleError(
        f"cannot determine which rows were dropped as late: {why}",
        hint="compare with a fork that waits longer for late rows: savepoints fork SAVEPOINT NAME",
    )
