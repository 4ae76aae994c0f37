"""What one run tells of its pauses: to whoever asked, the log, the store's events and the hooks."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import final

from savepoints.checkpoint.cut import committed_in
from savepoints.config.settings import HookSettings
from savepoints.config.values import HookEvent
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.moments import utc_now
from savepoints.observe import hooks
from savepoints.observe.hooks import Notice
from savepoints.observe.recorder import recording, who
from savepoints.plan import Progress
from savepoints.store.locks import pause_requests
from savepoints.store.locks.pause_requests import PauseAnswer, Request
from savepoints.store.root import Store


@dataclass(frozen=True)
class _Position:
    """Where a query stands: its newest batch, None before its first, and the savepoint of it."""

    generation: int | None
    batch_id: int | None
    savepoint_id: str | None = None
    error: str = ""

    @property
    def batch(self) -> str:
        return "no batch yet" if self.batch_id is None else f"batch {self.batch_id}"


@final
class PauseAnswers:
    """Answers requests to pause, once each, and tells when the query resumes."""

    def __init__(self, store: Store, query: str, tell: HookSettings, progress: Progress) -> None:
        """Begin a run that has told of no pause yet."""
        self._store = store
        self._query = query
        self._hooks = tell
        self._progress = progress
        self._is_told = False  # That it is paused, and not yet that it resumed.
        self._drained_at: _Position | None = None

    def drained(self, taken: Savepoint | None, error: str) -> None:
        """Keep what savepoint there is of where the query stands, or why there is none."""
        now = self._read_position()
        self._drained_at = _Position(
            now.generation, now.batch_id, taken.id if taken else None, error
        )

    def answer(self, request: Request) -> None:
        """Answer a request unless it has an answer; the run has its paused lease and no other."""
        self._is_told = True
        if pause_requests.answer_to(self._store.root, request) is not None:
            return
        now, last = self._read_position(), self._drained_at
        if last is not None and (last.generation, last.batch_id) == (now.generation, now.batch_id):
            now = last  # Nothing has run, and nobody has taken it back.
        given = PauseAnswer(request.id, self._query, utc_now(), who(), *astuple(now))
        if pause_requests.answer(self._store.root, given):
            saved = f"savepoint {now.savepoint_id}" if now.savepoint_id else "no savepoint"
            why = f": {now.error}" if now.error else ""
            self._tell(
                "paused", now, f"paused: generation {now.generation}, {now.batch}, {saved}{why}"
            )

    def resumed(self, generation: int) -> None:
        """Tell that the query goes on, if it was paused; called when the lease is held."""
        if self._is_told:
            self._is_told = False
            now = self._read_position()
            where = "has no batch yet" if now.batch_id is None else f"continues after {now.batch}"
            self._tell("resumed", now, f"resumed: generation {generation} {where}")

    def _read_position(self) -> _Position:
        current = self._store.generations.find_current(self._query)
        if current is None:
            return _Position(None, None)
        checkpoint = Location.of(current.checkpoint)
        batches = committed_in(checkpoint)
        return _Position(current.generation, batches[-1] if batches else None)

    def _tell(self, what: HookEvent, now: _Position, message: str) -> None:
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
