"""Check that the records a savepoint continues with are still available.

Offsets in a savepoint are next-to-read positions. Kafka's retention may have removed the record at
such a position; then a restored query would lose what lies between, unless an archive has it: that
is refused, never clamped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from savepoints.checkpoint.logs.kafka_position import (
    KafkaOffsets,
    by_partition,
    is_added,
    kafka_offsets,
)
from savepoints.config.settings import KafkaSettings
from savepoints.errors import SourceDataGoneError
from savepoints.sources.archive import first_at_time
from savepoints.sources.combined import available_ranges
from savepoints.sources.kafka import live_ranges
from savepoints.sources.kafka import topics as kafka_topics
from savepoints.sources.kafka.offsets import Range

# What to do about a savepoint from before a topic was recreated.
_ANOTHER = (
    "choose a newer savepoint (savepoints list --check-sources), or start over with the new topic: "
    "savepoints reset QUERY --to-earliest --allow-data-loss"
)


def require_available(
    positions: Sequence[str | None],
    settings: KafkaSettings,
    *,
    topics: Mapping[str, str] | None = None,
    archives: Collection[str] = (),
    added: Collection[str] = (),
) -> list[Range]:
    """Check that Kafka, or an archive before it, has every record from the given positions on.

    Args:
        positions: A savepoint's source positions; those of other sources are ignored.
        topics: Kafka's id of each topic when the savepoint was taken, as far as it is known. A
            topic that was deleted and recreated has other records at the same offsets.
        added: Topics that the query reads from their first record, as it has come to read them
            after these positions.

    Returns:
        The available range of each partition; empty without Kafka sources.
    """
    wanted = [
        (topic, partition, offset)
        for position in positions
        for topic, partition, offset in by_partition(kafka_offsets(position) or {})
    ]
    if not wanted:
        return []
    names = {topic for topic, _, _ in wanted} | {*added}
    known_ids = topics or {}
    require_same({one: known_ids[one] for one in names & known_ids.keys()}, settings)
    found = available_ranges.ranges(names, settings, archives)
    known: dict[str, set[int]] = {}
    for topic, partition, _ in wanted:
        known.setdefault(topic, set()).add(partition)
    # A partition that was added since is read from its beginning.
    wanted += [
        (topic, partition, 0)
        for topic, parts in found.items()
        for partition in parts
        if is_added(known.get(topic, ()), partition)
    ]
    wanted += [(topic, 0, 0) for topic in added if not found.get(topic)]
    available = [found.get(topic, {}).get(partition) for topic, partition, _ in wanted]
    gone = [
        {
            "topic": topic,
            "partition": partition,
            "wanted": offset,
            "earliest": None if one is None else one.earliest,
            "end": None if one is None else one.end,
            **({"beyond": one.beyond} if one and one.beyond else {}),
        }
        for (topic, partition, offset), one in zip(wanted, available, strict=True)
        if one is None or not one.earliest <= offset <= one.end
    ]
    if gone:
        listed = "; ".join(
            f"{one['topic']} partition {one['partition']}: wanted offset {one['wanted']}, "
            "available "
            + (
                "nothing"
                if one["end"] is None
                else f"{one['earliest']} to {one['end']}{one.get('beyond', '')}"
            )
            for one in gone
        )
        raise SourceDataGoneError(
            f"Kafka no longer has the records that the query would read next: {listed}",
            hint="choose a savepoint whose records Kafka still has (savepoints list "
            "--check-sources), or set INPUT in [queries.NAME.archives] to an archive that has them",
            partitions=gone,
        )
    return [one for one in available if one is not None]


def require_same(
    known: Mapping[str, str], settings: KafkaSettings, *, hint: str = _ANOTHER
) -> None:
    """Check that topics still have the ids that they had when offsets of them were saved.

    Args:
        hint: What to do about it.

    Raises:
        SourceDataGoneError: If one was deleted and recreated.
    """
    now = kafka_topics.ids(known, settings)
    renewed = sorted(name for name, found in now.items() if found != known[name])
    if renewed:
        which = (
            f"topic {renewed[0]} has been"
            if len(renewed) == 1
            else f"topics {', '.join(renewed)} have been"
        )
        raise SourceDataGoneError(
            f"{which} deleted and recreated at {settings.bootstrap_servers} since the savepoint "
            "was taken, so the saved offsets now refer to other records",
            hint=hint,
            topics=[
                {"topic": name, "wanted_id": known[name], "found_id": now[name]} for name in renewed
            ],
        )


def ranges(
    topics: Sequence[str], settings: KafkaSettings, archives: Collection[str] = ()
) -> dict[str, dict[int, Range]]:
    """Return the available range of every partition, in Kafka and in archives before it."""
    found = available_ranges.ranges(topics, settings, archives)
    live_ranges.require_topics(topics, found, settings)
    return {topic: found[topic] for topic in topics}


def at_time(
    topics: Sequence[str], moment: datetime, settings: KafkaSettings, archives: Collection[str] = ()
) -> KafkaOffsets:
    """Return for each partition the offset of the first record that arrived at or after a time.

    Like `live_ranges.at_time`, including records that only an archive still has.
    """
    # The ends first: records that arrive after this line are never taken for earlier ones.
    ends = ranges(topics, settings, archives)
    found = live_ranges.at_time(ends, moment, settings)
    for archive in available_ranges.of_topics(archives, topics):
        for topic, part, offset in first_at_time.first_at(archive.uri, moment, ends):
            found[topic][part] = min(offset, found[topic][part])
    return found
