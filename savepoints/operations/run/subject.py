"""What `attach` is attached to: a query of this driver, and whether it may go on."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from savepoints.errors import NotAlignedError, UnfinishedOperationError
from savepoints.io import Location
from savepoints.model import Form, Generation
from savepoints.observe.outage import Outage
from savepoints.observe.recorder import recording
from savepoints.operations.run import overtaken, periodic
from savepoints.operations.run.background_export import BackgroundExport
from savepoints.operations.run.periodic import Attempt
from savepoints.operations.savepoint import registration
from savepoints.operations.savepoint.create import Saved
from savepoints.spark import private_api
from savepoints.store.locks import journal, lease
from savepoints.store.locks.lease import Lease
from savepoints.store.root import Store
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOG = logging.getLogger(__name__)

OnEnded = Literal["stop", "detach"]

# Without a session no job of it can run any more.
_THREAD_SECONDS = 60.0


@dataclass(frozen=True)
class Subject:
    """A query that runs in this driver, and what is saved of it."""

    query: StreamingQuery
    store: Store
    name: str
    query_id: str
    checkpoint: Location
    forms: tuple[Form, ...]
    outputs: Mapping[str, str]
    output_topics: tuple[str, ...] | None
    on_ended: OnEnded
    outage: Outage

    @property
    def generation(self) -> Generation | None:
        """That of its checkpoint, None while nothing has been saved of it."""
        return self.store.generations.of_checkpoint(self.checkpoint)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, by itself, with its session or with its JVM."""
        try:
            return not self.query.isActive or private_api.is_stopped(self.query)
        except Exception:  # noqa: BLE001  (py4j's errors have no common root)
            return True  # Its JVM is gone.

    @property
    def lost_its_session(self) -> bool:
        """Whether this program has stopped its session, which ends it; the JVM goes on."""
        try:
            return not private_api.has_ended() and private_api.is_stopped(self.query)
        except Exception:  # noqa: BLE001  (py4j's errors have no common root)
            return False  # Its JVM ends at this moment.

    def stop(self) -> None:
        """Stop it, also if its session was stopped: then its thread may be about to begin a batch.

        Spark first tells the thread to end, and then fails to cancel the jobs of that session.
        """
        try:
            self.query.stop()
        except Exception:
            if not self.lost_its_session:
                raise
            # What it has begun to commit is committed before anybody saves or rewinds anything.
            private_api.await_thread(self.query, _THREAD_SECONDS)

    def lease(self) -> AbstractContextManager[Lease]:
        """Hold its lease."""
        return lease.hold(self.store.root, self.name, lease.ATTACH)

    def require_present(self) -> None:
        """Refuse a driver that must not write any more; the refusal is in the store's events.

        Raises:
            UnfinishedOperationError: If an operation on the query was interrupted.
            NotAlignedError: See `refuse_ended`, and what `overtaken` refuses.
        """
        try:
            self.refuse_ended()
            overtaken.refuse_elsewhere(self.store, self.generation, self.outputs)
            overtaken.refuse(
                self.store, self.generation, self.name, self.query_id, self.checkpoint, self.outputs
            )
        except (UnfinishedOperationError, NotAlignedError):
            with recording(self.store, lease.ATTACH, query=self.name):
                raise

    def refuse_ended(self) -> None:
        """Refuse a checkpoint that is no longer the query's present.

        Raises:
            UnfinishedOperationError: If one was interrupted.
        """
        journal.refuse_unfinished(self.store.root, self.name)
        mine = self.generation
        if mine is None or mine.status == "current":
            return
        now = self.store.generations.find_current(self.name)
        where = f"continues at {Uri.parse(now.checkpoint).for_spark}" if now else "has ended"
        raise NotAlignedError(
            f"{self.checkpoint} is no longer the checkpoint of {self.name}: its generation "
            f"{mine.generation} has ended ({mine.ended_why}); the query {where}",
            hint="set checkpointLocation to the checkpoint where the query continues, then start it"
            if now
            else f"show its history: savepoints lineage --query {self.name}",
            query=self.name,
        )

    def tell_replaced(self) -> None:
        """Warn if its first savepoint is going to end the generation that is current now.

        Raises:
            UsageError: If that one was begun by a verb: each savepoint would be refused.
        """
        if self.generation is not None:
            return
        before = registration.replaced(self.store, self.name, self.checkpoint)
        if before is not None:
            _LOG.warning(
                "%s was the checkpoint of %s until now; with the first savepoint %s begins its "
                "next generation (if that is another query, give it a name of its own: "
                "savepoints.attach(…, name='…'))",
                Uri.parse(before.checkpoint).for_spark,
                self.name,
                self.checkpoint,
            )

    def possible(self, forms: tuple[Form, ...]) -> tuple[Form, ...]:
        """Return the forms that can be had now; rows only while there is its session.

        Another session, made for them, would be what the program gets when it asks for its next.
        """
        if "canonical" not in forms or not self.lost_its_session:
            return forms
        _LOG.warning(
            "the Spark session of %s was stopped, so its savepoint has no state rows; add them "
            "with: savepoints export latest --query %s",
            self.name,
            self.name,
        )
        return ("native",)

    def take(self, exports: BackgroundExport | None = None) -> Attempt:
        """Take a periodic savepoint."""
        saved = self.saved(self.forms)
        return periodic.take(self.store, saved, outage=self.outage, exports=exports)

    def saved(self, forms: tuple[Form, ...]) -> Saved:
        """Return what is saved of it."""
        return Saved(
            query=self.name,
            checkpoint=str(self.checkpoint),
            forms=forms,
            outputs=dict(self.outputs),
            output_topics=self.output_topics,
        )
