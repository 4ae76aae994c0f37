"""Kafka's ids of the topics that a savepoint has offsets of, asked when it is taken.

An offset means something in one topic only: a topic that was deleted and recreated under its name
has other records at the same offsets, and only its id tells. The batch that is saved may be older
than the topic of today, so what savepoints before it were told counts, too. It is also what counts
where nobody can tell now: without an id, a rollback would go on at the saved offsets in any topic.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from savepoints.checkpoint.logs.kafka_position import lowest_offsets
from savepoints.config.settings import KafkaSettings
from savepoints.errors import message_of
from savepoints.model import Cut, Savepoint
from savepoints.plan import Progress
from savepoints.sources.kafka import topics
from savepoints.sources.kafka.topics import TopicEnds

_LOG = logging.getLogger(__name__)

# A savepoint does not wait for a broker: it is good without the ids.
_TIMEOUT_SECONDS = 3.0


def known_ids(
    cut: Cut, line: Iterable[Savepoint], settings: KafkaSettings, progress: Progress
) -> dict[str, str]:
    """Return the id of each topic that a cut has offsets of; without those that nobody has known.

    It never fails: what kept it from knowing is logged and shown as progress.

    Args:
        line: What savepoints know of the same checkpoint; see `lineage.of_topics`.
        settings: Where Kafka is; it is not asked when no broker is configured.
    """
    offsets = lowest_offsets(cut.offsets)
    if not offsets:
        return {}
    problem = "no broker is configured"
    known = sorted(line, key=lambda one: one.cut.batch_id)
    found: dict[str, str] = {}
    if settings.bootstrap_servers:
        try:
            problem = "Kafka has no such topic, or is older than 2.8"
            ids = topics.ids(offsets, settings, _TIMEOUT_SECONDS)
            others = [name for name, id_ in ids.items() if _others(name, id_, known)]
            if others:
                problem = "it was deleted and recreated, and the batch may have read either"
            ends = topics.ends(others, settings, _TIMEOUT_SECONDS)
            for name, id_ in ids.items():
                of = id_ if name not in ends else _read_by(cut, name, ends[name], known)
                if of is not None:
                    found[name] = of
        except Exception as error:  # noqa: BLE001  (whatever it is, the savepoint is more important)
            problem = message_of(error)
    unknown = sorted(offsets.keys() - found.keys())
    before = {topic: one for topic in unknown if (one := _before(cut, topic, known)) is not None}
    if unknown:
        counts = "".join(f"; {topic} counts as that of {one.id}" for topic, one in before.items())
        what = f"could not find out the ids of topics {', '.join(unknown)}: {problem}{counts}"
        _LOG.log(logging.WARNING if settings.bootstrap_servers else logging.INFO, what)
        if settings.bootstrap_servers:
            progress(what)
    return found | {topic: one.topics[topic] for topic, one in before.items()}


def _others(topic: str, now: str, line: Iterable[Savepoint]) -> bool:
    """Return True if a topic has had another id."""
    return any(one.topics.get(topic, now) != now for one in line)


def _read_by(cut: Cut, topic: str, now: TopicEnds, line: Sequence[Savepoint]) -> str | None:
    """Return the id of the topic that was read up to a cut, None if both may have been.

    Kafka was asked after the batch, maybe long after it, when the query stood still.

    Args:
        now: The topic of that name as it is now.
        line: The oldest batch first.
    """
    after = next(
        (one for one in line if topic in one.topics and one.cut.batch_id >= cut.batch_id), None
    )
    if after is not None and after.topics[topic] != now.id:
        return after.topics[topic]
    before = _before(cut, topic, line)
    if before is None or before.topics[topic] == now.id:
        return now.id
    ends = dict(enumerate(now.ends))
    read = lowest_offsets(cut.offsets)[topic]
    if read == lowest_offsets(before.cut.offsets)[topic] or any(
        offset > ends.get(part, -1) for part, offset in read.items()
    ):
        return before.topics[topic]
    return None


def _before(cut: Cut, topic: str, line: Sequence[Savepoint]) -> Savepoint | None:
    """Return the last savepoint up to a cut that knows its topic, None if that was another topic.

    It was if less of a partition is read than then.

    Args:
        line: The oldest batch first.
    """
    saved = [one for one in line if topic in one.topics and one.cut.batch_id <= cut.batch_id]
    if not saved:
        return None
    read = lowest_offsets(cut.offsets)[topic]
    was = lowest_offsets(saved[-1].cut.offsets).get(topic, {})
    if any(read.get(part, offset) < offset for part, offset in was.items()):
        return None
    return saved[-1]
