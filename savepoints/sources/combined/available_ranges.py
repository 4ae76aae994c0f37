"""What can be read of topics: Kafka has it, or an archive has what comes before.

An archive counts where it goes on without a hole up to what Kafka still has: then a query can read
it up to any offset, and Kafka from exactly there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from savepoints.config.settings import KafkaSettings
from savepoints.model import KafkaOffsets
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
    """Return what there is of every partition; topics that Kafka does not have are left out.

    Args:
        timeout: Seconds that a broker may take for each answer.

    Raises:
        EnvironmentUnfitError: If no broker is configured or reachable.
        VerificationError: If an archive is damaged.
    """
    found = topics.ranges(names, settings, timeout)
    known = of_topics(archives, found)
    if not known:
        return found
    ids = topics.ids(list(found), settings, timeout)
    for one in known:
        one.require_same(ids)
    return extended(found, known)


def notes(position: KafkaOffsets, found: Collection[Range]) -> list[str]:
    """Describe how much of each source a query still has to read, if not all of Kafka."""
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
        f"of {total} records that come next Kafka no longer has {archived}: these are read from "
        "the archive"
    )


def of_topics(archives: Collection[str], names: Collection[str]) -> list[ArchiveProgress]:
    """Return what has arrived in archives, of those that know one of some topics."""
    known = [progress.load(uri) for uri in dict.fromkeys(archives)]
    return [one for one in known if one.end.keys() & set(names)]


def extended(ranges: Ranges, known: Sequence[ArchiveProgress]) -> dict[str, dict[int, Range]]:
    """Return what there is of partitions when there are archives.

    Args:
        known: What has arrived in the archives; where two have one topic, each is needed.
    """
    return {
        topic: {part: _extended(one, known) for part, one in parts.items()}
        for topic, parts in ranges.items()
    }


def _extended(kafka: Range, known: Sequence[ArchiveProgress]) -> Range:
    """Return a partition with what archives have before Kafka's first offset."""
    found: list[tuple[int, int]] = []
    beyond = ""
    for one in known:
        stretch = one.newest_stretch(kafka.topic, kafka.partition)
        if stretch is None:
            # Another one of the topic alone does not give this one's reader its records.
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
