"""The side of `run` of a pause: it sees the request, hands the query over, waits, and goes on.

While it waits it does not hold the lease of the query, so that `rollback` and other verbs can work
on it; another one, the paused lease, shows that a run is there. A run takes one before it gives up
the other, so nobody sees the query without it; and a run that begins looks at both, so a query has
one run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import final

from savepoints.checkpoint.cut import committed_batches
from savepoints.config.schedule import Schedule
from savepoints.config.settings import HookEvent, HookSettings
from savepoints.errors import LockedError, QueryRunningError, UnfinishedOperationError
from savepoints.io import Location
from savepoints.model import Savepoint, rfc3339, utc_now
from savepoints.observe import hooks
from savepoints.observe.hooks import Notice
from savepoints.observe.recorder import recording, who
from savepoints.operations.run import wait_for_lease
from savepoints.plan import Progress, silent
from savepoints.runtime.ticker import Ticker
from savepoints.store.locks import journal, lease, pause_requests
from savepoints.store.locks.lease import Lease, LeaseRecord
from savepoints.store.locks.pause_requests import PauseAnswer, Request
from savepoints.store.root import Store

# How often a run looks for a request: one GET, 29,000 a day.
POLL_INTERVAL = timedelta(seconds=3)
# How often a run does that waits to go on, or for another verb to end.
_IDLE_SECONDS = 1.0


@dataclass(frozen=True)
class _Position:
    """Where a query stands: what of it, None before its first, and what a savepoint there is."""

    generation: int | None
    batch_id: int | None
    savepoint_id: str | None = None
    error: str = ""

    @property
    def batch(self) -> str:
        return "nothing" if self.batch_id is None else f"batch {self.batch_id}"


@final
class Pauses:
    """The pauses of one run; leaving the context releases its paused lease.

    A run consists of segments between pauses. Each begins with `wait_until_wanted` and `hold`,
    reports itself by `resumed`, and runs under `watching`. When it ended because of a pause (see
    `pause_requested`), `hand_over` is called while the lease is held, and `drained` when it no
    longer is.
    """

    def __init__(
        self,
        store: Store,
        query: str,
        *,
        tell: HookSettings | None = None,
        idles: bool = True,
        signals: Callable[[Callable[[], None]], AbstractContextManager[None]] | None = None,
        progress: Progress = silent,
    ) -> None:
        """Keep what is needed; nothing is read yet.

        Args:
            idles: Whether the run waits while it is paused; one with an end of its own ends
                instead, for cron would start another and another.
            signals: Gives a context in which a signal calls `stop`.
        """
        self._store = store
        self._query = query
        self._hooks = tell or HookSettings()
        self._idles = idles
        self._signals = signals or (lambda _stop: nullcontext())
        self._progress = progress
        self._stopped = threading.Event()
        self._pause_seen = threading.Event()
        self._paused_lease = ExitStack()
        self._holds_paused_lease = False
        self._reported = False
        self._position: _Position | None = None

    def __enter__(self) -> Pauses:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._release_paused_lease()

    def stop(self) -> None:
        """End the waiting: neither for `resume` nor for another verb from now on."""
        self._stopped.set()

    @property
    def pause_requested(self) -> bool:
        """Whether a pause was seen while this segment ran."""
        return self._pause_seen.is_set()

    @contextmanager
    def watching(self, stop: Callable[[], None]) -> Iterator[None]:
        """Call `stop` within when a pause is asked for; looked for every few seconds."""

        def look() -> None:
            if self._in_force() is not None:
                self._pause_seen.set()
                stop()

        every = Schedule(f"{POLL_INTERVAL.total_seconds():g}s", POLL_INTERVAL)
        with Ticker(every, look, f"requests on {self._query}"):
            yield

    def wait_until_wanted(self) -> bool:
        """Wait for as long as a pause is in force, for `resume` or a signal.

        Returns:
            Whether to run; False when a signal came, or the run is one that ends instead.

        Raises:
            QueryRunningError: If the query has a run already, paused or not.
        """
        with self._signals(self.stop):
            return self._wait_until_wanted()

    @contextmanager
    def hold(self, wait: timedelta | None = None) -> Iterator[Lease | None]:
        """Hold the lease of the query while a segment runs.

        After a pause another verb may hold it: then that is waited for, saying so.

        Args:
            wait: How long to wait for whoever has the query when the run begins.

        Yields:
            The lease; None, which the caller leaves at once, when a pause or a signal came while it
            was waited for.

        Raises:
            QueryRunningError: If the query has a run already, paused or not.
            LockedError: If another verb holds it, and the run was not paused before.
        """
        self._pause_seen.clear()
        with ExitStack() as stack:
            if self._holds_paused_lease:
                with self._signals(self.stop):
                    held = self._hold(stack)
            else:
                held = self._hold_first(stack, wait)
            yield held

    def resumed(self, generation: int) -> None:
        """Tell that the query goes on, if it was paused; called when the lease is held."""
        if self._reported:
            self._reported = False
            now = self._read_position()
            message = f"resumed: generation {generation} goes on after {now.batch}"
            self._report("resumed", now, message)

    def hand_over(self) -> None:
        """Show that the run stays although it gives up the lease; called before it does."""
        while True:
            try:
                self._take_paused_lease()
            except LockedError as error:
                # Another run begins, and will see that there is this one.
                self._progress(str(error))
                if self._stopped.wait(_IDLE_SECONDS):
                    return
            else:
                return

    def drained(self, taken: Savepoint | None, error: str = "") -> None:
        """Answer that the query is paused; called when the lease was given up.

        Args:
            error: Why there is none although one was to be taken.
        """
        now = self._read_position()
        self._position = _Position(now.generation, now.batch_id, taken.id if taken else None, error)
        request = self._in_force()
        if request is not None:
            self._answer(request)

    def _wait_until_wanted(self) -> bool:
        request = self._in_force()
        if request is not None and not self._holds_paused_lease:
            self._begin_paused()
        said = None
        while request is not None and self._idles:
            if request.id != said:
                self._answer(request)  # Maybe asked anew between two looks.
                reason = f": {request.reason}" if request.reason else ""
                self._progress(
                    f"paused at {rfc3339(request.asked_at)} by {request.asked_by}{reason}; "
                    f"waiting for: savepoints resume {self._query}"
                )
                said = request.id
            if self._stopped.wait(_IDLE_SECONDS):
                return False
            request = self._in_force()
        if request is not None and self._holds_paused_lease:
            self._answer(request)
        if request is not None:
            self._progress(f"{self._query} is paused: this run ends")
        return request is None and not self._stopped.is_set()

    def _in_force(self) -> Request | None:
        return pause_requests.pause_in_force(self._store.root, self._query)

    def _take_paused_lease(self) -> None:
        self._paused_lease.enter_context(lease.hold_paused(self._store.root, self._query))
        self._holds_paused_lease = True

    def _release_paused_lease(self) -> None:
        self._holds_paused_lease = False
        self._paused_lease.close()

    def _begin_paused(self) -> None:
        """Show that this run waits, which begins while a pause is in force."""
        try:
            self._take_paused_lease()
        except LockedError:
            if self._idles:
                raise self._waits_already(
                    lease.paused_holder(self._store.root, self._query)
                ) from None
            return
        running = lease.holder(self._store.root, self._query)
        if running is not None and running.runs:
            self._release_paused_lease()
            lease.refuse_held(self._store.root, self._query)

    def _hold_first(self, stack: ExitStack, wait: timedelta | None) -> Lease | None:
        held = stack.enter_context(
            wait_for_lease.hold(self._store, self._query, "run", wait, self._progress)
        )
        if self._in_force() is not None:
            return None  # Since this run began.
        paused = lease.paused_holder(self._store.root, self._query)
        if paused is not None:
            raise self._waits_already(paused)
        return held

    def _hold(self, stack: ExitStack) -> Lease | None:
        """Take the lease when it is free and no operation on the query is unfinished.

        What paused this run and was killed is finished by somebody, and then it goes on.
        """
        root, said = self._store.root, ""
        while True:
            with ExitStack() as attempt:
                try:
                    # Before, so that whoever finishes it does not find the query held for a moment.
                    journal.refuse_unfinished(root, self._query)
                    held = attempt.enter_context(lease.hold(root, self._query, "run"))
                    journal.refuse_unfinished(root, self._query)
                except (LockedError, QueryRunningError, UnfinishedOperationError) as error:
                    # A run that begins at this moment sees the paused lease and gives up.
                    if str(error) != said:
                        self._progress(f"waiting to resume: {error}")
                        said = str(error)
                else:
                    self._release_paused_lease()
                    stack.push(attempt.pop_all())
                    return held
            if self._stopped.wait(_IDLE_SECONDS) or self._in_force() is not None:
                return None

    def _waits_already(self, other: LeaseRecord | None) -> QueryRunningError:
        name = other.who if other else "another process"
        return QueryRunningError(
            f"the query {self._query} has a run that is paused: {name}",
            hint=f"resume it: savepoints resume {self._query}",
            query=self._query,
            holder=name,
        )

    def _read_position(self) -> _Position:
        current = self._store.generations.find_current(self._query)
        if current is None:
            return _Position(None, None)
        checkpoint = Location.of(current.checkpoint)
        batches = committed_batches([*checkpoint.list("offsets"), *checkpoint.list("commits")])
        return _Position(current.generation, batches[-1] if batches else None)

    def _answer(self, request: Request) -> None:
        """Answer a request unless it has an answer; the run has its paused lease and no other."""
        self._reported = True
        if pause_requests.answer_to(self._store.root, request) is not None:
            return
        now, last = self._read_position(), self._position
        if last is not None and (last.generation, last.batch_id) == (now.generation, now.batch_id):
            now = last  # Nothing has run, and nobody has taken it back.
        given = PauseAnswer(
            request.id,
            self._query,
            utc_now(),
            who(),
            now.generation,
            now.batch_id,
            now.savepoint_id,
            now.error,
        )
        if pause_requests.answer(self._store.root, given):
            saved = f"savepoint {now.savepoint_id}" if now.savepoint_id else "no savepoint"
            why = f": {now.error}" if now.error else ""
            self._report(
                "paused", now, f"paused: generation {now.generation}, {now.batch}, {saved}{why}"
            )

    def _report(self, what: HookEvent, now: _Position, message: str) -> None:
        """Tell an event to the log, the store's events and the hooks."""
        self._progress(message)
        with recording(self._store, what, query=self._query, savepoint=now.savepoint_id) as noted:
            noted.note(message=message)
        hooks.call(
            self._hooks,
            Notice(
                what,
                self._query,
                utc_now(),
                message,
                now.generation,
                now.savepoint_id,
                now.batch_id,
            ),
        )
