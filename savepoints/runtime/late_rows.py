"""Which events Spark dropped as late, by the program's own plan.

The events that arrived behind the watermark are read again by the part of the program in front of
each operator that drops late rows, so that filters and columns of the program count, and windows
are those of the program. Nothing of the operators themselves is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from savepoints.errors import SavepointsError
from savepoints.io import Location
from savepoints.runtime import late_filters
from savepoints.runtime.app import App
from savepoints.runtime.failure import cause, report
from savepoints.runtime.late_filters import COMPARED, LateFilter
from savepoints.runtime.replay import PARTITIONS
from savepoints.runtime.runner import output_mode, run_once
from savepoints.runtime.scratch_query import REPLAY_BATCH, ScratchQuery
from savepoints.sources.events.events import POSITION
from savepoints.sources.late.dropped_late import LATE_MS, is_late

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPERATOR = "operator"
_SCHEMA = (
    "topic string, partition int, offset bigint, late_ms bigint, compared timestamp_ltz, "
    "operator string"
)


def dropped(
    spark: SparkSession, app: App, behind: Mapping[str, DataFrame], place: Location
) -> DataFrame:
    """Find the rows that operators dropped as late.

    Args:
        behind: By input, events of `dropped_late.behind`, with all columns of
            `savepoints.sources.events.events`.
        place: An empty directory.

    Returns:
        A row for each that was dropped: `topic` string, `partition` int, `offset` bigint of its
        event; `late_ms` bigint, the watermark; `compared` timestamp, the time or the end of the
        window that was not after it; `operator` string, in words.

    Raises:
        IncompatibleError: If it cannot be told from the plan.
    """
    from pyspark.sql import functions as F

    scratch = ScratchQuery(spark, app, place, PARTITIONS)
    times = {
        late_filters.column_id(frame, app.inputs[name].event_time)
        for name, frame in scratch.decoded.items()
    }
    filters = late_filters.find(scratch.session, scratch.result, times, output_mode(app))
    found = nothing(spark)
    if not filters:
        return found
    watermarks = None
    for name, frame in behind.items():
        scratch.write_events(name, frame.withColumn(REPLAY_BATCH, F.lit(1)))
        each = frame.select(*POSITION, LATE_MS)
        watermarks = each if watermarks is None else watermarks.unionByName(each)
    assert watermarks is not None
    for number, one in enumerate(filters):
        rows = _run(spark, app, one, place / f"filter-{number}").join(watermarks, list(POSITION))
        late = rows.where(is_late(COMPARED)).withColumn(OPERATOR, F.lit(one.name))
        found = found.unionByName(late.select(*found.columns))
    return found


def nothing(spark: SparkSession) -> DataFrame:
    """Return no rows; see `dropped`."""
    return spark.createDataFrame([], _SCHEMA)


def _run(spark: SparkSession, app: App, one: LateFilter, place: Location) -> DataFrame:
    """Return the rows that reach a filter."""
    target = (place / "rows").uri.hadoop

    def write(batch: DataFrame, _batch_id: int) -> None:
        batch.write.mode("overwrite").parquet(target)

    writer = one.rows.writeStream.outputMode("append").foreachBatch(write)
    failure = run_once(writer, place / "checkpoint").exception()
    if failure is not None:
        raise SavepointsError(
            f"reading the late events of {app.name} failed, and nothing was changed: "
            f"{cause(report(failure))}",
            hint="fix the cause and run the command again",
            query=app.name,
        )
    if not (place / "rows").list():  # No event of its input was late.
        return spark.createDataFrame([], one.rows.schema)
    return spark.read.schema(one.rows.schema).parquet(target)
