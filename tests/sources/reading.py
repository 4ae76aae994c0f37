"""A checkpoint of a query that reads from Kafka, made of one that Spark wrote; no JVM needed."""

from __future__ import annotations

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, kafka_position
from savepoints.io import Location
from tests.samples import files_of, write

_SAMPLE = "hdfs"
# Its newest committed batch.
BATCH = 3


def checkpoint_at(offsets: KafkaOffsets, place: Location) -> Location:
    """Write a checkpoint whose batches all end at some offsets, and return it."""
    files = {
        path: data.replace(b'{"logOffset":%d}' % BATCH, kafka_position(offsets).encode())
        if path == f"offsets/{BATCH}"
        else data
        for path, data in files_of(_SAMPLE).items()
        if not path.startswith("sources/")
    }
    write(place, files)
    return place
