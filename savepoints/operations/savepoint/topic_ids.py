"""Kafka's ids of the topics that a savepoint has offsets of, asked when it is taken.

An offset means something in one topic only: a topic that was deleted and recreated under its name
has other records at the same offsets, and only its id tells.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from savepoints.checkpoint.logs.kafka_position import kafka_offsets
from savepoints.config.settings import KafkaSettings
from savepoints.errors import message_of
from savepoints.plan import Progress
from savepoints.sources.kafka import topics

_LOG = logging.getLogger(__name__)

# A savepoint does not wait for a broker: it is good without the ids.
_TIMEOUT_SECONDS = 3.0


def known_ids(
    positions: Sequence[str | None], settings: KafkaSettings, progress: Progress
) -> dict[str, str]:
    """Return the id of each topic among source positions; without those that are not known.

    It never fails: what kept it from knowing is logged and shown as progress.

    Args:
        settings: Where Kafka is; it is not asked when no broker is configured.
    """
    names = {name for position in positions for name in kafka_offsets(position) or ()}
    if not names:
        return {}
    problem = "no broker is configured"
    found: dict[str, str] = {}
    if settings.bootstrap_servers:
        try:
            found = topics.ids(names, settings, _TIMEOUT_SECONDS)
            problem = "Kafka has no such topic, or is older than 2.8"
        except Exception as error:  # noqa: BLE001  (whatever it is, the savepoint is more important)
            problem = message_of(error)
    unknown = sorted(names - found.keys())
    if unknown:
        level = logging.WARNING if settings.bootstrap_servers else logging.INFO
        _LOG.log(level, "the ids of topics %s were not recorded: %s", ", ".join(unknown), problem)
        if settings.bootstrap_servers:
            progress(f"could not record the ids of topics {', '.join(unknown)}: {problem}")
    return found
