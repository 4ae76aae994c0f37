"""Options of Spark's Kafka source, for every reader of this project."""

from __future__ import annotations

from savepoints.config.settings import KafkaSettings
from savepoints.sources.kafka import security

# After each fetch Spark's reader asks where the partition begins and ends (`InternalKafkaConsumer.
# getAvailableOffsetRange`), and the broker answers one request of a connection after the other: the
# question waits until the fetch that the client has sent ahead has found a record or waited for so
# long. A batch ends where its offsets say, so waiting for more never pays; Kafka's default is 500.
_FETCH_WAIT_MS = "10"


def reader_options(settings: KafkaSettings) -> dict[str, str]:
    """Return the options of a reader, streaming or not, without topics and offsets.

    Returns:
        Options by Spark's names. Missing records are an error, never skipped.
    """
    return {
        "kafka.bootstrap.servers": settings.bootstrap_servers,
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "kafka.fetch.max.wait.ms": _FETCH_WAIT_MS,
        **{f"kafka.{name}": value for name, value in security.for_spark(settings.options).items()},
    }
