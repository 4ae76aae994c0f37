"""How fast records arrive in topics, over the last hour and the last minutes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from savepoints.checkpoint.logs.kafka_position import by_partition
from savepoints.config.duration import duration_text
from savepoints.config.settings import KafkaSettings
from savepoints.moments import rfc3339
from savepoints.sources.kafka import live_ranges, probe_records
from savepoints.sources.kafka.offsets import Range
from savepoints.sources.kafka.topics import Topic

WINDOWS = (timedelta(hours=1), timedelta(minutes=10))
# A shorter history gives no rate.
_SHORTEST = timedelta(seconds=1)
# Records of a partition that are read to measure their size.
SAMPLE = 20


@dataclass(frozen=True)
class ArrivalCounts:
    """Records that arrived in a time window."""

    window: timedelta
    counts: Mapping[tuple[str, int], int]
    basis: str

    @property
    def per_second(self) -> float:
        """Records per second, of all partitions."""
        return sum(self.counts.values()) / self.window.total_seconds()

    def partition_per_second(self, topic: str, partition: int) -> float:
        """Records per second, of one partition."""
        return self.counts.get((topic, partition), 0) / self.window.total_seconds()


def arrivals(
    topics: Mapping[str, Topic], settings: KafkaSettings, now: datetime
) -> list[ArrivalCounts]:
    """Count the records of the last hour and the last 10 minutes, or all of a younger topic.

    Returns:
        The counts, longest window first; empty when the topics have no records.
    """
    all_ranges = {
        (name, part): one for name, topic in topics.items() for part, one in topic.ranges.items()
    }
    filled = {place: one for place, one in all_ranges.items() if one.earliest < one.end}
    if not filled:
        return []
    found = []
    for window in WINDOWS:
        ends = live_ranges.ranges(list(topics), settings)
        begin = live_ranges.at_time(ends, now - window, settings)
        starts = {(topic, part): at for topic, part, at in by_partition(begin)}
        # Where nothing older is left, records of the window may be gone.
        older = {place for place, one in filled.items() if starts.get(place, 0) > one.earliest}
        whole = {place for place, one in filled.items() if one.earliest == 0} | older
        if older and whole == filled.keys():
            counts = {
                place: max(0, one.end - starts.get(place, one.end)) for place, one in filled.items()
            }
            found.append(
                ArrivalCounts(window, counts, f"records in the last {duration_text(window)}")
            )
    return found or _since_the_first(filled, settings, now)


def _since_the_first(
    filled: Mapping[tuple[str, int], Range], settings: KafkaSettings, now: datetime
) -> list[ArrivalCounts]:
    counts = {place: one.end - one.earliest for place, one in filled.items()}
    read = probe_records.first({place: one.earliest for place, one in filled.items()}, settings)
    times = [one.timestamp for some in read.values() for one in some if one.timestamp is not None]
    if not times or now - min(times) < _SHORTEST:
        return []
    basis = f"all available records, since {rfc3339(min(times))}"
    return [ArrivalCounts(now - min(times), counts, basis)]


def record_bytes(
    places: Mapping[tuple[str, int], int], settings: KafkaSettings
) -> tuple[float, int] | None:
    """Measure a few records at some offsets.

    Args:
        places: An offset for each topic and partition that has records from there on.

    Returns:
        Average bytes of a record (key, value and headers, uncompressed) and how many were read;
        None when there were none.
    """
    read = probe_records.first(places, settings, most=SAMPLE)
    sizes = [one.size for some in read.values() for one in some]
    return (sum(sizes) / len(sizes), len(sizes)) if sizes else None
