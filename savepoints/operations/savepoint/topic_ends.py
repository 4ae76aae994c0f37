"""How much of the topics that a query writes belongs to a batch.

Spark writes a batch into its offset log before the batch runs, and into its commit log after all
its records are in Kafka (`MicroBatchExecution.runBatch`). So when Kafka is asked for the end of a
topic that only this query writes,

- all records before the end are from batches that are in the offset log afterwards;
- if the same batch is the newest in the commit log before and in the offset log afterwards, no
  other ran meanwhile, and the end is exactly that of this batch.

Nothing has to be added to the records or to the query. See ADR 38.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from savepoints.checkpoint import position
from savepoints.config.settings import KafkaSettings
from savepoints.errors import message_of
from savepoints.io import Location
from savepoints.model import OutputTopic
from savepoints.plan import Progress
from savepoints.sources.kafka import topics
from savepoints.sources.kafka.topics import TopicEnds

_LOG = logging.getLogger(__name__)

# A savepoint does not wait for a broker: it is good without this.
_TIMEOUT_SECONDS = 3.0


@dataclass(frozen=True)
class TopicObservation:
    """Where topics ended at a moment, and which batches their query had then.

    Attributes:
        committed: Newest batch in the commit log before Kafka was asked; None for none.
        begun: Newest batch in the offset log after Kafka had answered; None for none.
        ends: By topic; those that do not exist are left out.
    """

    committed: int | None
    begun: int | None
    ends: Mapping[str, TopicEnds]

    def holds(self, batch_id: int) -> bool:
        """Return True if all records before the ends are from batches up to this one."""
        return self.begun is None or self.begun <= batch_id

    def is_exact(self, batch_id: int) -> bool:
        """Return True if these are also all records of batches up to this one."""
        return self.committed == self.begun == batch_id


def observe(
    checkpoint: Location, names: Collection[str], settings: KafkaSettings, progress: Progress
) -> TopicObservation | None:
    """Ask Kafka where the topics of a query end, between two looks at its checkpoint.

    It never fails: what kept it from knowing is logged and shown as progress.

    Returns:
        None without topics, and if it could not be found out.
    """
    if not names:
        return None
    problem = "no broker is configured"
    if settings.bootstrap_servers:
        try:
            # The order decides what may be concluded.
            before = position.read(checkpoint)
            found = topics.ends(names, settings, _TIMEOUT_SECONDS)
            after = position.read(checkpoint)
            begun = after.committed if after.begun is None else after.begun
            return TopicObservation(before.committed, begun, found)
        except Exception as error:  # noqa: BLE001  (whatever it is, the savepoint is more important)
            problem = message_of(error)
    listed = ", ".join(sorted(names))
    _LOG.warning("the end offsets of topics %s were not recorded: %s", listed, problem)
    progress(f"could not record the end offsets of topics {listed}: {problem}")
    return None


def of_batch(
    names: Sequence[str], observed: Sequence[TopicObservation], batch_id: int
) -> tuple[OutputTopic, ...]:
    """Return what of each topic belongs to a committed batch, by what was seen before it was saved.

    Args:
        observed: In the order in which they were made; exact ones count, then the latest.
    """
    return tuple(_of_topic(name, observed, batch_id) for name in names)


def _of_topic(name: str, observed: Sequence[TopicObservation], batch_id: int) -> OutputTopic:
    seen = [one for one in observed if name in one.ends]
    topic_id = seen[-1].ends[name].id if seen else None
    best = sorted(
        (one for one in seen if one.holds(batch_id)), key=lambda one: one.is_exact(batch_id)
    )
    if not best:
        return OutputTopic(name, topic_id)
    found = best[-1]
    return OutputTopic(name, found.ends[name].id, found.ends[name].ends, found.is_exact(batch_id))
