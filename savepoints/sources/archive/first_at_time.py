"""Find the first record at a time among those that only an archive still has."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from savepoints.delta_reader import AS_SPARK_WROTE
from savepoints.io import Location
from savepoints.moments import first_ms_from
from savepoints.sources.archive import table

if TYPE_CHECKING:
    from savepoints.sources.kafka.offsets import Ranges

_FIRST = """
select topic, "partition", min("offset") as first from events
where merge_id is null and "timestamp" >= to_timestamp_millis({moment}) and ({wanted})
group by topic, "partition"
"""


def first_at(uri: str, moment: datetime, ranges: Ranges) -> Iterator[tuple[str, int, int]]:
    """Find the first record at or after a time among those that Kafka no longer has.

    Args:
        moment: The time, by the timestamps of the records, to a millisecond as Kafka has it.
        ranges: Available ranges of the topics, in Kafka and in archives.

    Yields:
        Topic, partition and offset; none where the archive has no such record.
    """
    import pyarrow as pa
    from deltalake import QueryBuilder

    wanted = [
        f"(topic = '{one.topic}' and \"partition\" = {one.partition} and "
        f'"offset" >= {one.earliest} and "offset" < {one.kafka_earliest})'
        for parts in ranges.values()
        for one in parts.values()
        if one.earliest < one.kafka_earliest
    ]
    if not wanted:
        return
    query = _FIRST.format(moment=first_ms_from(moment), wanted=" or ".join(wanted))
    events = table.require(Location.of(uri))
    found = pa.table(QueryBuilder(AS_SPARK_WROTE).register("events", events).execute(query))
    for row in found.to_pylist():
        yield str(row["topic"]), int(row["partition"]), int(row["first"])
