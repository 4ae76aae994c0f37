"""The ranges of topics that can be read, from Kafka or from an archive before it.

An archive counts if it reaches without a gap to what Kafka still has: then a query can read it up
to any offset, and Kafka from exactly there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.config.settings import KafkaSettings
from savepoints.sources.archive import progress
from savepoints.sources.archive.progress import ArchiveProgress
from savepoints.sources.kafka import topics
from savepoints.sources.kafka.offsets import Range, Ranges


def ranges(
    names: Collection[str],
    settings: KafkaSettings,
    archives: Collection[str] = (),
    timeout: float | None = None,
) -> dict[str, dict[int, Range]]:
    """Return the range of every partition, without missing topics; `timeout` seconds an answer."""
    found = topics.ranges(names, settings, timeout)
    known = of_topics(archives, found)
    if not known:
        return found
    ids = topics.ids(list(found), settings, timeout)
    for one in known:
        one.require_same(ids)
    return extended(found, known)


def notes(position: KafkaOffsets, found: Collection[Range]) -> list[str]:
    """Describe how many of the next records come from an archive, if any."""
    counts = [
        (one.from_archive(offset), one.end - offset)
        for one in found
        if (offset := position.get(one.topic, {}).get(one.partition)) is not None
    ]
    archived, total = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
    return [read_from_archive(archived, total)] if archived else []


def read_from_archive(archived: int, total: int) -> str:
    """Describe how many of the next records are read from an archive."""
    return (
        f"Kafka no longer has {archived} of the next {total} records: they are read from the "
        "archive"
    )


def of_topics(archives: Collection[str], names: Collection[str]) -> list[ArchiveProgress]:
    """Return the progress of the archives that have any of some topics."""
    known = [progress.load(uri) for uri in dict.fromkeys(archives)]
    return [one for one in known if one.end.keys() & set(names)]


def extended(ranges: Ranges, known: Sequence[ArchiveProgress]) -> dict[str, dict[int, Range]]:
    """Extend Kafka's ranges by what archives have before them.

    Args:
        known: Progress of the archives; where two have one topic, each is needed.
    """
    return {
        topic: {part: _extended(one, known) for part, one in parts.items()}
        for topic, parts in ranges.items()
    }


def _extended(kafka: Range, known: Sequence[ArchiveProgress]) -> Range:
    """Extend a partition by what archives have before Kafka's first offset."""
    found: list[tuple[int, int]] = []
    beyond = ""
    # That of another input has nothing of its topic, and need not.
    for one in (each for each in known if kafka.topic in each.end):
        stretch = one.newest_stretch(kafka.topic, kafka.partition)
        if stretch is None:
            # Another archive of the topic does not help this one's reader.
            found.append((kafka.earliest, kafka.earliest))
            continue
        begin, end = stretch
        if end < kafka.earliest:
            beyond = (
                f", and {begin} to {end} in the archive {one.uri}: {end} to {kafka.earliest} are "
                "in neither"
            )
            begin = kafka.earliest
        found.append((begin, min(end, kafka.end)))
    first = max((begin for begin, _ in found), default=kafka.earliest)
    if first >= kafka.earliest:
        return replace(kafka, beyond=beyond)
    return Range(
        kafka.topic,
        kafka.partition,
        first,
        kafka.end,
        kafka_from=kafka.earliest,
        archived_to=min(end for _, end in found),
    )
