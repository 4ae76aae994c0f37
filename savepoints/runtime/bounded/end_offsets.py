"""Where a bounded run ends: what `--until` means, as offsets.

- `latest`: what Kafka has when the run begins.
- a time: every record whose timestamp in Kafka lies before it (`offsetsForTimes`: up to the first
  one at or after it), as far as it has arrived when the run begins.
- a JSON file in Spark's form: `{"topic": {"0": 12}}`, next-to-read offsets; or this text itself.
- a savepoint: where its cut was, matched by topic.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, by_partition, kafka_offsets
from savepoints.config.settings import KafkaSettings
from savepoints.errors import UsageError
from savepoints.moments import parse_rfc3339, refuse_future
from savepoints.sources.combined import availability
from savepoints.sources.kafka import offsets
from savepoints.sources.kafka.offsets import merge, parse_offsets
from savepoints.store.root import Store

if TYPE_CHECKING:
    from savepoints.sources.kafka.offsets import Ranges

_DATE = re.compile(r"\d{4}-\d\d-\d\d([Tt ].*)?", re.ASCII)


def resolve(
    store: Store,
    until: str,
    *,
    query: str,
    ranges: Ranges,
    settings: KafkaSettings,
    archives: Collection[str] = (),
) -> KafkaOffsets:
    """Return where a run ends.

    Args:
        until: `latest`, a time, the path of a file, JSON, or the name of a savepoint.

    Returns:
        For every topic the next-to-read offset of its partitions. Whether they can be reached is
        not looked at.

    Raises:
        SavepointNotFoundError: If it is none of these.
    """
    if until == "latest":
        return offsets.ends(ranges)
    if _DATE.fullmatch(until):
        return _at(until, list(ranges), settings, archives)
    if until.lstrip().startswith("{"):
        return _complete(parse_offsets(until), "the JSON of the offsets", ranges)
    if until.endswith(".json") or Path(until).is_file():
        return _of_file(Path(until), ranges)
    savepoint = store.catalog.find(until, query=query)
    return _of_positions(savepoint.cut.offsets, savepoint.id, ranges)


def _at(
    text: str, topics: Sequence[str], settings: KafkaSettings, archives: Collection[str]
) -> KafkaOffsets:
    moment = parse_rfc3339(text)
    refuse_future(
        moment,
        ", and records may still arrive before it",
        hint="choose a time in the past, or use --until latest",
    )
    return availability.at_time(topics, moment, settings, archives)


def _of_file(path: Path, ranges: Ranges) -> KafkaOffsets:
    return _complete(parse_offsets(offsets.read_text(path)), str(path), ranges)


def _complete(found: KafkaOffsets, where: str, ranges: Ranges) -> KafkaOffsets:
    """Refuse offsets that leave out a partition, or name topics that are not read."""
    missing = [
        f"{topic} partition {part} (Kafka has {one.earliest} to {one.end})"
        for topic, part, one in by_partition(ranges)
        if part not in found.get(topic, {})
    ]
    if missing:
        raise UsageError(
            f"{where} has no offset for {', '.join(missing)}",
            hint="add an offset for every partition; to read nothing from a partition, repeat "
            "the query's current offset",
        )
    if unknown := sorted(found.keys() - ranges.keys()):
        raise UsageError(
            f"{where} names {', '.join(unknown)}, which the query does not read",
            hint=f"name only topics that the query reads ({', '.join(ranges)}), or correct "
            "[queries.NAME.topics] in the settings",
        )
    return found


def _of_positions(positions: Sequence[str | None], name: str, ranges: Ranges) -> KafkaOffsets:
    found = merge(kafka_offsets(one) or {} for one in positions)
    if found.keys() != ranges.keys():
        raise UsageError(
            f"savepoint {name} has offsets for {', '.join(sorted(found)) or 'no topic'}, but the "
            f"query reads {', '.join(sorted(ranges))}",
            hint="choose a savepoint with the topics that the query reads: savepoints list",
            savepoint=name,
        )
    return found
