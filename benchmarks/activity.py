"""Clients of a site, as many as wanted: a topic of their page views and orders, and a broken feed.

An event happens `_STEP_MS` after the one before. 50 clients at a time have a session of 50 events,
then the next 50, and after all clients the first ones again. What late batches bring is missing
from the topic: half an hour of the first session of some clients, which was taken for two sessions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from savepoints.config.settings import QuerySettings, Settings
from spark_jobs import json_records
from spark_jobs.order_sessions import FIELDS, ORDER, VIEW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

QUERY, INPUT, OUTPUT = "order_sessions", "activity", "sessions"
APP = "spark_jobs.order_sessions:app"
# By late batch: one client in so many is touched by it.
LATE = {"1 %": 100, "0.1 %": 1_000, "10 %": 10, "1 % while it runs": 100}
TOPIC_PARTITIONS = 2

_AT_A_TIME, _OF_A_SESSION, _SESSIONS = 50, 50, 2
_ROUND = _AT_A_TIME * _OF_A_SESSION
EVENTS_OF_A_CLIENT = _OF_A_SESSION * _SESSIONS
_STEP_MS = 1_200
_BEGIN_MS = 1_735_689_600_000
# Coprime to the number of clients, so that neighbours in time are no neighbours by name.
_SPREAD = 7_919


@dataclass(frozen=True)
class Site:
    """A site with its topic.

    Attributes:
        settings: Where its topic is, and its query.
        events: How many events its clients have until now, `EVENTS_OF_A_CLIENT` each; a multiple
            of 100,000.
    """

    settings: Settings
    events: int

    @property
    def clients(self) -> int:
        """How many clients it has."""
        return self.events // EVENTS_OF_A_CLIENT

    @property
    def topic(self) -> str:
        """The topic."""
        return self.settings.queries[QUERY].topics[INPUT]

    def make_topic(self) -> None:
        """Make the topic."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.settings.kafka.bootstrap_servers})
        admin.create_topics([NewTopic(self.topic, TOPIC_PARTITIONS, 1)])[self.topic].result()

    def happened(self, spark: SparkSession, first: int, count: int) -> DataFrame:
        """Return events, the late ones included.

        Args:
            spark: A session.
            first: Number of the first one.
            count: How many.

        Returns:
            Columns of `FIELDS`, `at` timestamp, and `late` string: the batch that it comes with,
            null for what comes in time.
        """
        return self._events(spark.range(first, first + count))

    def produce(self, spark: SparkSession, first: int, count: int) -> None:
        """Send to the topic what comes in time of some events, in the order of their time."""
        from pyspark.sql import functions as F

        halves = [
            json_records.encode(
                self._events(spark.range(first + part, first + count, TOPIC_PARTITIONS, 1)).where(
                    "late is null"
                ),
                FIELDS,
                key="client_id",
            ).withColumn("partition", F.lit(part))
            for part in range(TOPIC_PARTITIONS)
        ]
        reduce(lambda one, more: one.unionByName(more), halves).write.format("kafka").option(
            "kafka.bootstrap.servers", self.settings.kafka.bootstrap_servers
        ).option("topic", self.topic).save()

    def _events(self, numbers: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        session = F.expr(f"id div {_ROUND} * {_AT_A_TIME} + id % {_AT_A_TIME}")
        nth = F.expr(f"id % {_ROUND} div {_AT_A_TIME}")
        client = (session * _SPREAD) % self.clients
        is_order = nth % 10 == 9  # noqa: PLR2004
        is_missing = (session < self.clients) & nth.between(8, 41)
        return numbers.select(
            F.format_string("e%d", "id").alias("event_id"),
            F.format_string("c%07d", client).alias("client_id"),
            F.when(is_order, F.lit(ORDER)).otherwise(F.lit(VIEW)).alias("kind"),
            F.when(~is_order, F.format_string("/page/%d", F.col("id") % 97)).alias("page"),
            F.when(is_order, F.col("id") % 10_000).alias("amount_cents"),
            F.timestamp_millis(F.lit(_BEGIN_MS) + F.col("id") * _STEP_MS).alias(json_records.AT),
            F.when(is_missing, _late(client)).alias("late"),
        )


def _late(client: Column) -> Column:
    from pyspark.sql import functions as F

    found = F.lit(None).cast("string")
    for rest, (name, share) in enumerate(LATE.items()):
        found = F.when(client % share == rest, F.lit(name)).otherwise(found)
    return found


def settings(known: Settings, directory: str, bootstrap_servers: str) -> Settings:
    """Return settings of a site in a directory of the local disk.

    Args:
        known: How a session is made.
        directory: An empty one.
        bootstrap_servers: Of its broker.
    """
    query = QuerySettings(
        app=APP,
        checkpoints=f"{directory}/live",
        outputs={OUTPUT: f"{directory}/sessions"},
        topics={INPUT: INPUT},
        archives={INPUT: f"{directory}/archive"},
    )
    return known.model_copy(
        update={
            "store": f"{directory}/store",
            "kafka": known.kafka.model_copy(update={"bootstrap_servers": bootstrap_servers}),
            "queries": {QUERY: query},
        }
    )
