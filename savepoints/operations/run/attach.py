"""`attach`: savepoints of a query that the user starts, in the user's own driver.

It holds the query's lease for as long as the query runs, as `savepoints run` does: whoever wants to
roll it back, reset or promote it is told who runs it. It finds the tables that the query writes,
and it sees when the query was taken elsewhere meanwhile.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from savepoints.checkpoint import position
from savepoints.config import settings as config_settings
from savepoints.config.duration import duration_text
from savepoints.config.schedule import Schedule, parse_schedule
from savepoints.config.settings import Settings
from savepoints.errors import (
    LockedError,
    NotAlignedError,
    PartlyDoneError,
    SavepointsError,
    UnfinishedOperationError,
    UnreachableError,
    UsageError,
)
from savepoints.io import Location
from savepoints.model import FORMS, Form, Savepoint, several
from savepoints.observe.outage import Outage
from savepoints.operations.run import final_savepoint, no_final_savepoint, periodic
from savepoints.operations.run.background_export import BackgroundExport
from savepoints.operations.run.periodic import Attempt
from savepoints.operations.run.subject import OnEnded, Subject
from savepoints.operations.savepoint import create, history
from savepoints.plan import silent
from savepoints.runtime.ticker import Ticker
from savepoints.spark import classic, listener, private_api, table_names
from savepoints.store.locks.lease import Lease
from savepoints.store.root import Store
from savepoints.uri import written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOG = logging.getLogger(__name__)

_POLL_SECONDS = 0.02
# Of a driver that runs for years; the error of one refers to all that was known then.
_ATTEMPTS_KEPT = 100
# Those of this process that have not given their lease up.
_ATTACHED: set[Attached] = set()
_UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")


class Attached:
    """The savepoints and the lease of one query, until it ends or `detach` or `stop` is called."""

    def __init__(
        self, subject: Subject, schedule: Schedule, held: Lease, leases: ExitStack
    ) -> None:
        """Begin."""
        self._query = subject.query
        self._subject = subject
        self._held = held
        self._leases = leases
        self._attempts: deque[Attempt] = deque(maxlen=_ATTEMPTS_KEPT)
        self._ending = threading.Lock()
        self._stopping = False
        self._stop_listening: Callable[[], None] = lambda: None
        last = partial(periodic.last_taken, subject.store, subject.name)
        self._ticker = Ticker(schedule, self._tick, f"savepoints of {subject.name}", since=last)
        since = partial(periodic.last_with_rows, subject.store, subject.name)
        when = subject.store.settings.periodic.export
        self._exports = BackgroundExport(subject.store, when, since=since)
        self._exports.start()
        self._ticker.start()
        _ATTACHED.add(self)

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The outcome of each savepoint so far, at most of the newest hundred."""
        return tuple(self._attempts)

    @property
    def active(self) -> bool:
        """Whether more savepoints will be taken."""
        return self._ticker.active

    def create(
        self,
        *,
        tags: Sequence[str] = (),
        description: str = "",
        forms: Sequence[Form] | None = None,
    ) -> Savepoint:
        """Take a savepoint of the newest committed batch now, with the tables that were attached.

        ```python
        before = attached.create(tags=["before-release"])
        ```

        Args:
            tags: Names for it; retention leaves it alone while it has one.
            description: Why it was taken.
            forms: `native`, `canonical` or both; by default those of `attach`.

        Raises:
            NoCommittedBatchError: If nothing has been committed yet.
            LockedError: If another process takes one at this moment.
        """
        subject = self._subject
        wanted = subject.forms if forms is None else several(forms, "forms")
        plan = create.plan(
            subject.store,
            **vars(subject.saved(subject.possible(wanted))),
            tags=several(tags, "tags"),
            description=description,
        )
        return create.execute(plan, subject.store)

    def detach(self) -> None:
        """Take no more savepoints; waits for one that is in progress. The query continues.

        Others no longer see that it runs, so detach only from a query that is about to end.
        """
        self._ticker.join()
        self._release()

    def stop(self, *, wait: timedelta = timedelta(minutes=10)) -> Savepoint | None:
        """Stop the query after the running batch, and take a savepoint of its end.

        Args:
            wait: How long to wait for the batch; the query continues when it does not end.

        Returns:
            The savepoint; None when nothing has been committed yet.

        Raises:
            PartlyDoneError: If the batch did not end within the time, the JVM has ended, or Spark
                has removed the checkpoint, because the query has no `checkpointLocation`.
            NotAlignedError: If a rollback has replaced the checkpoint meanwhile.
            SavepointsError: If no savepoint could be taken; the query is stopped all the same.
        """
        subject = self._subject
        with self._refusing_without_jvm():
            self._wait_for_batch(wait)
        self._stopping = True
        self._ticker.join()
        try:
            with self._refusing_without_jvm():
                subject.stop()
            no_final_savepoint.refuse_removed(subject.store, subject.name, subject.checkpoint)
            # What is newest of the query is then in another checkpoint, which is not this one's.
            subject.refuse_ended()
            generation = subject.generation
            saved = subject.saved(subject.possible(subject.forms))
            if generation is None:
                return final_savepoint.take(subject.store, saved)
            return final_savepoint.savepoint(
                subject.store, generation, saved, moved=False, progress=silent
            )
        finally:
            self._release()

    def _tick(self) -> None:
        if self._subject.has_ended:
            self._query_ended()  # Spark's event of it can be lost.
            return
        try:
            self._keep_lease()
            self._subject.require_present()
        except (UnfinishedOperationError, NotAlignedError) as error:
            # Somebody has it: what this query writes from now on would spoil what they do.
            self._attempts.append(Attempt("failed", error=error))
            self._ticker.end()
            if self._subject.on_ended == "stop":
                _LOG.error("the query %s is stopped: %s", self._subject.name, error)
                self._query.stop()
            else:
                _LOG.error("no more savepoints of %s: %s", self._subject.name, error)
            return
        except UnreachableError as error:
            self._subject.outage.noticed(error)
            self._attempts.append(Attempt("failed", error=error))
            return
        except SavepointsError as error:
            _LOG.warning(
                "cannot tell whether this process still holds the lease of %s: %s",
                self._subject.name,
                error,
            )
        if position.newest_in(self._subject.checkpoint, "commits") < 0:
            _LOG.debug("%s has committed nothing yet: no savepoint", self._subject.name)
            self._attempts.append(Attempt("skipped", reason="nothing has been committed yet"))
            return
        self._attempts.append(self._subject.take(self._exports))

    def _keep_lease(self) -> None:
        """Take the lease anew if it was lost: a store that does not answer stops no query."""
        try:
            self._held.check()
        except LockedError as lost:
            _LOG.info("%s", lost)
            self._leases.close()
            try:
                self._held = self._leases.enter_context(self._subject.lease())
            except UnreachableError:
                raise
            except SavepointsError as error:
                _LOG.warning(
                    "other processes may assume that %s is free: %s", self._subject.name, error
                )

    def _make_way(self, name: str, store: Store) -> None:
        """Give the lease up to the next run of the query, if Spark has not told that it ended."""
        mine = self._subject
        if (mine.name, mine.store.root) == (name, store.root) and self._subject.has_ended:
            self._ticker.end()
            self._release()

    def _query_ended(self) -> None:
        """Give the lease up; called in a thread of Spark's, in which nothing long is done."""
        self._ticker.end()
        if self._stopping:
            return  # Whoever stops it takes a savepoint first.
        threading.Thread(target=self._release, name="detach").start()

    def _end_with_program(self) -> None:
        """End the query, as the end of its JVM will in a moment, and give the lease up."""
        if self.active:
            _LOG.warning(
                "the program ends without attached.stop(), so no final savepoint of %s is taken",
                self._subject.name,
            )
        self._stopping = True
        self._ticker.join()
        try:
            if not self._subject.has_ended:
                self._subject.stop()
        finally:
            self._release()

    def _release(self) -> None:
        with self._ending:
            # Whoever rolls it back next need not watch whether it goes on, if that can be told.
            with suppress(SavepointsError):
                if self._subject.has_ended:
                    self._held.stopped(position.newest_in(self._subject.checkpoint, "commits"))
            self._leases.close()
        self._stop_listening()
        # Whoever waits for the query need not wait for rows.
        self._exports.join()
        _ATTACHED.discard(self)

    @contextmanager
    def _refusing_without_jvm(self) -> Iterator[None]:
        """Say where the query was left when its JVM does not answer, and give the lease up."""
        try:
            yield
        except Exception as error:
            if isinstance(error, SavepointsError) or not private_api.has_ended():
                raise
            self._ticker.join()
            self._release()
            subject = self._subject
            raise no_final_savepoint.of_ended_jvm(
                subject.store, subject.name, subject.checkpoint, subject.outputs
            ) from error

    def _wait_for_batch(self, wait: timedelta) -> None:
        end = time.monotonic() + wait.total_seconds()
        begun = position.newest_in(self._subject.checkpoint, "offsets")
        while not self._subject.lost_its_session and self._query.isActive:
            if not self._query.status["isTriggerActive"]:
                return
            if position.newest_in(self._subject.checkpoint, "commits") >= begun >= 0:
                return
            if time.monotonic() > end:
                raise PartlyDoneError(
                    f"{self._subject.name} did not finish its current batch within "
                    f"{duration_text(wait)} and is still running",
                    hint="wait longer, for example attached.stop(wait=timedelta(hours=1))",
                    query=self._subject.name,
                )
            time.sleep(_POLL_SECONDS)


def _require_names(outputs: object) -> None:
    """Refuse tables without names: a program without types may give only where the table is."""
    if outputs is not None and not isinstance(outputs, Mapping):
        raise UsageError(
            f"outputs is {outputs!r}, but must give each table a name",
            hint="write, for example, outputs={'totals': 's3://bucket/totals'}",
        )


def attach(
    spark: SparkSession,
    query: StreamingQuery,
    *,
    every: str,
    store: str | os.PathLike[str] | Store | None = None,
    name: str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    outputs: Mapping[str, str | os.PathLike[str]] | None = None,
    output_topics: Sequence[str] | None = None,
    forms: Sequence[Form] = FORMS,
    on_ended: OnEnded = "stop",
    settings: Settings | None = None,
) -> Attached:
    """Take savepoints of a running query on a schedule, in a thread of this driver.

    The store is created if it does not exist; the bucket must exist. A savepoint that fails
    never stops or slows the query: it is in the log and in the store's events. Savepoints stop when
    the query ends.

    ```python
    query = orders.writeStream...start()
    attached = savepoints.attach(spark, query, every="10m", store="s3://bucket/savepoints")
    ...
    attached.stop()
    ```

    Args:
        spark: The session in which the query runs.
        query: What `start()` returned.
        every: An interval (`90s`, `10m`), which counts from the query's newest savepoint, or a cron
            expression in UTC (`*/10 * * * *`).
        store: The store or its URI; the one in the settings by default.
        name: Name of the query in the store; by default the name of its checkpoint there, its
            `queryName`, or else Spark's id.
        checkpoint: Its checkpoint directory; found by default.
        outputs: The Delta tables that it writes, by name: a URI or `catalog.schema.table`, which
            the session resolves to its location; found by default if the query has
            Delta's sink, a file sink, or a savepoint that names them. `{}` for none.
            A `foreachBatch` writes with Delta's options `txnVersion` (the batch id) and `txnAppId`,
            which is `str(query.id)` or `<name>/<output>/1` with the number of the generation. It
            reads the whole batch even if Delta has it already, or Spark finds state unwritten.
        output_topics: Kafka topics that it writes, and nobody else; the queries that read them then
            belong to its pipeline. By default those in the settings or its newest savepoint.
        forms: `native`, `canonical` or both.
        on_ended: What to do when the query was taken elsewhere, for example by a rollback or a
            driver with an old checkpoint, so that this one must not continue: `stop` it, or
            `detach`, which takes no more savepoints.
        settings: By default those of the store that is given; for a URI, read from
            `savepoints.toml` and the environment.

    Raises:
        UsageError: If no store is given, the schedule is invalid, the checkpoint is not found or
            already has another name, or the query of this name has another one since a rollback.
        StoreNotFoundError: If the bucket does not exist.
        QueryRunningError: If it runs elsewhere already.
        LockedError: If another verb has it at this moment; with `on_ended="stop"` the query is
            stopped, as in the next two cases.
        UnfinishedOperationError: If an operation on it was interrupted.
        NotAlignedError: If a rollback has replaced its checkpoint, an output already has batches
            that this checkpoint has yet to begin, which Delta would silently drop, or the query was
            promoted to other tables (`promote --outputs point`).
        IncompatibleError: If the session is Spark Connect's, or its Spark is not supported.
    """
    classic.require(spark)
    schedule = parse_schedule(every)
    _require_names(outputs)
    uri = str(store.root) if isinstance(store, Store) else written(store)
    if settings is None:
        known = store.settings if isinstance(store, Store) else None
        settings = known or config_settings.load(flags={"store": uri})
    opened = Store.at(uri or settings.store, settings=settings).make(_LOG.info)
    directory = Location.of(written(checkpoint) or listener.checkpoint_of(query))
    called = opened.generations.name_of(directory, name) or query.name or str(query.id)
    subject = Subject(
        query,
        opened,
        called,
        str(query.id),
        directory,
        several(forms, "forms"),
        table_names.located(
            spark, _outputs(query, called, opened) if outputs is None else written(outputs)
        ),
        None if output_topics is None else several(output_topics, "output_topics"),
        on_ended,
        Outage(called),
    )
    for earlier in list(_ATTACHED):
        earlier._make_way(called, opened)
    with ExitStack() as unless_attached:
        leases = unless_attached.enter_context(ExitStack())
        try:
            held = leases.enter_context(subject.lease())
            subject.require_present()
        except (LockedError, NotAlignedError):
            if on_ended == "stop":
                query.stop()
            raise
        subject.tell_replaced()
        if outputs is None and not (subject.outputs or subject.output_topics):
            _LOG.warning(
                "the output tables of %s are unknown, so its savepoints do not include them and a "
                "rollback does not rewind them: pass savepoints.attach(…, outputs={'name': "
                "'s3://bucket/table'}), or {} if there are none",
                called,
            )
        if no_final_savepoint.is_temporary(directory):
            _LOG.warning(
                "no final savepoint of %s can be taken, because Spark removes its checkpoint %s "
                "when it stops: %s", called, directory, no_final_savepoint.HINT,
            )  # fmt: skip
        attached = Attached(subject, schedule, held, leases)
        unless_attached.callback(attached.detach)
        attached._stop_listening = listener.on_end(spark, query, attached._query_ended)
        private_api.end_after_python(spark)
        unless_attached.pop_all()
    return attached


def _outputs(query: StreamingQuery, name: str, store: Store) -> dict[str, str]:
    """Return the tables that a query writes: by the settings, its sink, or its last savepoint."""
    bound = store.settings.queries.get(name)
    if bound is not None and bound.outputs:
        return dict(bound.outputs)
    table = listener.table_of(query)
    if table is None:
        return history.pinned_uris(store, name)
    place = Location.of(table)
    return {_UNFIT.sub("_", place.uri.path.rpartition("/")[2]) or "table": str(place)}


def _end_all() -> None:
    """End what nobody has stopped when the program ends, after what is under way.

    Python ends a thread wherever it is: within the native code that reads and writes stores that
    kills the process (exit code 139), and its lease would keep other machines from the query.
    """
    for one in list(_ATTACHED):
        try:
            one._end_with_program()
        except Exception:  # noqa: BLE001  (the program has ended, and so must the others)
            _LOG.exception("could not end %s in order", one._subject.name)


# `atexit` is too late: by then `concurrent.futures`, with which savepoints are copied, has ended.
threading._register_atexit(_end_all)  # type: ignore[attr-defined]
# A process that is forked from this one ends while its parent's queries go on.
os.register_at_fork(after_in_child=_ATTACHED.clear)
