"""The life of a run: segments under the lease of the query, and pauses between them.

While it is paused a run does not hold the lease of the query, so that `rollback` and other verbs
can work on it; another one, the paused lease, shows that a run is there. A run takes one before it
gives up the other, so nobody sees the query without it; and a run that begins looks at both, so a
query has one run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TypeAlias, final

from savepoints.config.schedule import Schedule
from savepoints.config.settings import HookSettings
from savepoints.errors import (
    CheckpointDamagedError,
    LockedError,
    QueryRunningError,
    SavepointsError,
    UnfinishedOperationError,
)
from savepoints.model import Savepoint
from savepoints.moments import rfc3339
from savepoints.operations.run import wait_for_lease
from savepoints.operations.run.pause_answers import PauseAnswers
from savepoints.plan import Progress, silent
from savepoints.runtime.runner import Ran
from savepoints.runtime.ticker import Ticker
from savepoints.store.locks import journal, lease, pause_requests
from savepoints.store.locks.lease import Lease, LeaseRecord
from savepoints.store.locks.pause_requests import Request
from savepoints.store.root import Store

# How often a run looks for a request: one GET, 86,400 a day. A pause takes half of it longer.
POLL_INTERVAL = timedelta(seconds=1)
# How often a run does that waits to resume, or for another verb to end.
_IDLE_SECONDS = 0.25


@dataclass(frozen=True)
class Segment:
    """What came of one time under the lease."""

    ran: Ran
    savepoint: Savepoint | None
    error: str = ""


class Paused:
    """A run that waits for as long as a pause is in force; every run begins so."""


class Waiting:
    """A run that waits for whoever has the query."""


@dataclass(frozen=True)
class Running:
    """A run that holds the lease, from its first batch to the savepoint of its last."""

    lease: Lease


@dataclass(frozen=True)
class Draining:
    """A run that gives up the lease for the paused one, and answers who asked for the pause."""

    segment: Segment


# None for a run that has ended.
State: TypeAlias = "Paused | Waiting | Running | Draining | None"


@final
@dataclass(eq=False)
class Supervisor:
    """One run of a query: what it waits for, and who may stop it.

    Attributes:
        idles: Whether the run waits while it is paused; one with an end of its own ends instead,
            for cron would start another and another.
        signals: Gives a context in which a signal calls what it is given.
    """

    store: Store
    query: str
    tell: HookSettings = field(default_factory=HookSettings)
    idles: bool = True
    wait: timedelta | None = None
    signals: Callable[[Callable[[], None]], AbstractContextManager[object]] = nullcontext
    progress: Progress = silent
    _stopped: threading.Event = field(init=False, default_factory=threading.Event)
    _pause_seen: threading.Event = field(init=False, default_factory=threading.Event)
    _paused_lease: ExitStack | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Begin a run that has told of no pause yet; nothing is read."""
        self.answers = PauseAnswers(self.store, self.query, self.tell, self.progress)

    def supervise(
        self,
        segment: Callable[[Supervisor, Lease], Segment],
        *,
        before: Callable[[], None] | None = None,
        drained: Callable[[], None] = lambda: None,
        damaged: Callable[[CheckpointDamagedError], None] | None = None,
    ) -> Segment | None:
        """Run segments, from one pause to the next, until one ends by itself or by a signal.

        Args:
            drained: Called when a pause was answered that the run waits in; it may take seconds.
            damaged: Called without the lease when a segment finds the checkpoint damaged; if it
                returns, the query can run.

        Returns:
            The last segment; None if a signal or a pause came before the first.

        Raises:
            QueryRunningError: If the query has a run already, paused or not.
            LockedError: If another verb holds it, and the run was not paused before.
        """
        state: State = Paused()
        last, pauses = None, 0
        with ExitStack() as leases:
            leases.callback(self._release_paused_lease)
            held = leases.enter_context(ExitStack())
            while state is not None:
                match state:
                    case Paused():
                        state = Waiting() if self._wait_until_wanted() else None
                    case Waiting():
                        if before is not None:
                            before()
                        self._pause_seen.clear()
                        is_first = self._paused_lease is None
                        mine = self._take_first(held) if is_first else self._take_again(held)
                        state = Paused() if mine is None else Running(mine)
                    case Running(mine):
                        try:
                            last = segment(self, mine)
                            last = replace(last, ran=replace(last.ran, pauses=pauses))
                            state = Draining(last) if self.pause_requested else None
                        except CheckpointDamagedError as error:
                            if damaged is None:
                                raise
                            held.close()
                            damaged(error)
                            state = Paused()
                    case Draining(ended):
                        self._drain(held, ended)
                        pauses += 1
                        state = Paused() if self.idles else None
                        if self.idles:
                            with self.signals(self.stop):
                                drained()
        return last

    @property
    def pause_requested(self) -> bool:
        """Whether a pause was seen while this segment ran."""
        return self._pause_seen.is_set()

    def stop(self) -> None:
        """End the waiting: neither for `resume` nor for another verb from now on."""
        self._stopped.set()

    @contextmanager
    def may_stop(self, stop: Callable[[], None]) -> Iterator[None]:
        """Call `stop` within on a signal or a pause, which is looked for every second."""

        def end() -> None:
            self.stop()
            stop()

        def look() -> None:
            if self._in_force() is not None:
                self._pause_seen.set()
                stop()

        every = Schedule(f"{POLL_INTERVAL.total_seconds():g}s", POLL_INTERVAL)
        with self.signals(end), Ticker(every, look, f"looking for pauses of {self.query}"):
            yield

    def _wait_until_wanted(self) -> bool:
        """Wait for `resume`; false when a signal came, or the run is one that ends instead."""
        with self.signals(self.stop):
            request = self._in_force()
            if request is not None and self._paused_lease is None:
                self._begin_paused()
            said = None
            while request is not None and self.idles:
                if request.id != said:
                    self.answers.answer(request)  # Maybe asked again between two looks.
                    reason = f": {request.reason}" if request.reason else ""
                    self.progress(
                        f"paused at {rfc3339(request.asked_at)} by {request.asked_by}{reason}; to "
                        f"resume it yourself: savepoints resume {self.query}"
                    )
                    said = request.id
                if self._stopped.wait(_IDLE_SECONDS):
                    return False
                request = self._in_force()
            if request is not None:
                if self._paused_lease is not None:
                    self.answers.answer(request)
                self.progress(f"{self.query} is paused, so this run ends")
            return request is None and not self._stopped.is_set()

    def _begin_paused(self) -> None:
        """Show that this run waits, which begins while a pause is in force."""
        try:
            self._take_paused_lease()
        except LockedError:
            if self.idles:
                raise self._waits_already(
                    lease.paused_holder(self.store.root, self.query)
                ) from None
            return
        running = lease.holder(self.store.root, self.query)
        if running is not None and running.runs:
            self._release_paused_lease()
            lease.refuse_held(self.store.root, self.query)

    def _take_first(self, held: ExitStack) -> Lease | None:
        """Take the lease of the query; None when a pause came meanwhile."""
        with ExitStack() as attempt:
            mine = attempt.enter_context(
                wait_for_lease.hold(self.store, self.query, self.wait, self.progress)
            )
            if self._in_force() is not None:
                return None  # Since this run began.
            paused = lease.paused_holder(self.store.root, self.query)
            if paused is not None:
                raise self._waits_already(paused)
            held.push(attempt.pop_all())
        return mine

    def _take_again(self, held: ExitStack) -> Lease | None:
        """Take the lease when it is free and no operation on the query is unfinished.

        What paused this run and was killed is finished by somebody, and then it goes on.
        """
        root, said = self.store.root, ""
        with self.signals(self.stop):
            while True:
                with ExitStack() as attempt:
                    try:
                        # First, so that whoever finishes it never finds the query held.
                        journal.refuse_unfinished(root, self.query)
                        mine = attempt.enter_context(lease.hold(root, self.query, "run"))
                        journal.refuse_unfinished(root, self.query)
                    except (LockedError, QueryRunningError, UnfinishedOperationError) as error:
                        # A run that begins at this moment sees the paused lease and gives up.
                        waits_for = self._waited_for(error)
                        if waits_for not in ("", said):
                            self.progress(f"waiting to resume: {waits_for}")
                            said = waits_for
                    else:
                        self._release_paused_lease()
                        held.push(attempt.pop_all())
                        return mine
                if self._stopped.wait(_IDLE_SECONDS) or self._in_force() is not None:
                    return None

    def _drain(self, held: ExitStack, segment: Segment) -> None:
        """Show that the run stays, give up the lease, then answer that the query is paused."""
        while self._paused_lease is None:
            try:
                self._take_paused_lease()
            except LockedError as error:
                # Another run begins, and will see that there is this one.
                self.progress(error.message)
                if self._stopped.wait(_IDLE_SECONDS):
                    break
        held.close()
        self.answers.drained(segment.savepoint, segment.error)
        request = self._in_force()
        if request is not None:
            self.answers.answer(request)

    def _waits_already(self, other: LeaseRecord | None) -> QueryRunningError:
        name = other.who if other else "another process"
        return QueryRunningError(
            f"the query {self.query} already has a run, which is paused ({name})",
            hint=f"resume that run instead: savepoints resume {self.query}",
            query=self.query,
            holder=name,
        )

    def _waited_for(self, error: SavepointsError) -> str:
        """Say what keeps this run from going on; nothing if that has ended at this moment.

        Mostly its verb is still at work; only without one is it for a person to finish.
        """
        if not isinstance(error, UnfinishedOperationError):
            return error.message
        try:
            lease.refuse_held(self.store.root, self.query)
        except (LockedError, QueryRunningError) as held:
            return held.message
        if journal.unfinished(self.store.root, self.query) is None:
            return ""
        return f"{error.message}; {error.hint}"

    def _in_force(self) -> Request | None:
        return pause_requests.pause_in_force(self.store.root, self.query)

    def _take_paused_lease(self) -> None:
        taken = ExitStack()
        taken.enter_context(lease.hold_paused(self.store.root, self.query))
        self._paused_lease = taken

    def _release_paused_lease(self) -> None:
        taken, self._paused_lease = self._paused_lease, None
        if taken is not None:
            taken.close()
