"""Listen to Spark queries that this library did not start.

Spark calls listeners in a thread of their own, one after another, so nothing slow is done there,
and no exception ever reaches Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from savepoints.errors import UsageError, message_of
from savepoints.spark import private_api

# Names of Delta's sink and Spark's file sink.
_SINK = re.compile(r"(?:DeltaSink|FileSink)\[(.+)\]")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def on_end(
    spark: SparkSession, query: StreamingQuery, call: Callable[[], None]
) -> Callable[[], None]:
    """Call a function, which must be quick, when the query ends, however it ends.

    Its listener is removed then: each in Python takes some hundred calls for each batch of every
    query of the session, one listener after another.

    Returns:
        What removes the listener before; removed already, or without its JVM, nothing happens.
    """
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryListener,
    )

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
            del event

        def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
            del event

        def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
            del event

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
            if str(event.runId) == run_id:
                ended()

    def ended() -> None:
        call()
        remove()

    def remove() -> None:
        # py4j's errors have no common root; the listeners of a JVM end with it.
        with suppress(Exception):
            streams.removeListener(listener)

    run_id, listener = str(query.runId), Listener()
    # Spark tells each session of its own queries only.
    streams = private_api.session_of(query, spark).streams
    streams.addListener(listener)
    if not query.isActive:  # It ended before the listener was added.
        ended()
    return remove


def table_of(query: StreamingQuery) -> str | None:
    """Return the table of a running query's Delta sink, or the directory of its file sink.

    None for every other sink, such as `foreachBatch` or Kafka, whose target Spark does not show.
    Asks `StreamExecution.sink`, as `checkpoint_of` does.
    """
    try:
        described = str(private_api.execution(query).sink().toString())
    except Exception:  # noqa: BLE001  (py4j's errors have no common root; then nothing is known)
        return None
    found = _SINK.fullmatch(described)
    return None if found is None else found[1]


def checkpoint_of(query: StreamingQuery) -> str:
    """Return the checkpoint directory of a running query.

    Read from `StreamExecution.resolvedCheckpointRoot`, a public member of a private class.
    """
    try:
        return str(private_api.execution(query).resolvedCheckpointRoot())
    except Exception as error:  # noqa: BLE001  (py4j's errors have no common root)
        raise UsageError(
            f"the checkpoint of the query {query.name or query.id} cannot be found: "
            f"{message_of(error)}",
            hint="pass the checkpoint: savepoints.attach(spark, query, every=…, "
            "checkpoint='s3a://…')",
        ) from None
