"""The offsets of a savepoint, committed for a consumer group after it was taken.

Spark commits to no group, so what watches the lag of groups sees nothing of a query. Nothing reads
these offsets: a savepoint is good without them, so a failure is told and never raised.
"""

from __future__ import annotations

import logging

from savepoints.checkpoint.logs.kafka_position import lowest_offsets
from savepoints.config.settings import KafkaSettings
from savepoints.errors import UsageError, message_of
from savepoints.model import Savepoint, SavepointKind
from savepoints.observe.recorder import recording
from savepoints.plan import Progress
from savepoints.sources.kafka import group_offsets
from savepoints.store.root import Store

_LOG = logging.getLogger(__name__)

VERB = "commit-group"
# A savepoint does not wait long for a broker.
_TIMEOUT_SECONDS = 3.0
# Those that say how far the query is; the others are steps of verbs, or of what is no live query.
_KINDS: tuple[SavepointKind, ...] = ("manual", "periodic", "final")


def group_of(
    given: str | None, configured: str | None, kind: SavepointKind, batch_id: int | None
) -> str | None:
    """Return the group that a savepoint's offsets are committed for, if any.

    That in the settings means where the query is now: a chosen batch is not that.
    """
    if given is not None:
        return given
    return configured if kind in _KINDS and batch_id is None else None


def require_possible(group: str, offsets: tuple[str | None, ...], settings: KafkaSettings) -> None:
    """Check before a savepoint that its offsets can be committed.

    Raises:
        UsageError: If the query does not read from Kafka, or the group has active members.
        EnvironmentUnfitError: If no broker is configured or reachable.
    """
    if not lowest_offsets(offsets):
        raise UsageError(
            "the query does not read from Kafka, so there are no offsets to commit for the "
            f"consumer group {group}",
            hint="omit --commit-group",
            group=group,
        )
    group_offsets.require_unused(group, settings)


def commit(group: str, savepoint: Savepoint, store: Store, progress: Progress) -> None:
    """Commit the offsets of a savepoint; a failure is an event, a warning and a line of progress.

    Where two sources read one topic, the one that is behind counts.
    """
    offsets = lowest_offsets(savepoint.cut.offsets)
    if not offsets:
        return
    kafka, parameters = store.settings.kafka, {"group": group}
    try:
        with recording(
            store, VERB, query=savepoint.query, savepoint=savepoint.id, parameters=parameters
        ):
            # For the names of the members: that it has some, the broker sees for itself.
            group_offsets.require_unused(group, kafka, _TIMEOUT_SECONDS)
            group_offsets.commit(group, offsets, kafka, _TIMEOUT_SECONDS)
    except Exception as error:  # noqa: BLE001  (whatever it is, the savepoint is more important)
        _LOG.warning("offsets of %s were not committed: %s", savepoint.id, error)
        progress(
            f"could not commit the offsets for the consumer group {group}: {message_of(error)}"
        )
    else:
        progress(f"committed the offsets for the consumer group {group}")
