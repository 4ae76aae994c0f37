"""Rows of periodic savepoints, written beside the query, with a quarter of the session's cores.

Spark's scheduler starts the tasks of the job that began first (`FIFOSchedulingAlgorithm`), so an
export with a task for each state partition would keep every batch waiting until it ends. With few
tasks, all of which run from the start, batches have the other cores at once.
"""

from __future__ import annotations

import logging
import threading
from typing import final

from savepoints.config.schedule import export_schedule
from savepoints.errors import LockedError, NativeOnlyError, SavepointNotFoundError
from savepoints.model import Savepoint
from savepoints.operations.savepoint import export
from savepoints.plan import Progress, silent
from savepoints.runtime.ticker import Background, Clock, Since, clock_of, first_due, never
from savepoints.spark import private_api
from savepoints.store.root import Store

_LOG = logging.getLogger(__name__)

# Of the session's cores, the query keeps the rest.
_ONE_CORE_IN = 4


@final
class BackgroundExport(Background):
    """Writes the rows of the savepoints it is given, one after another, in a thread of its own.

    A failure is logged and in the events; the savepoint keeps its native form. Leaving the context
    waits for the export that is under way, and with `each` for those that wait. The others stay
    native: `savepoints export` writes their rows, if they are wanted.
    """

    def __init__(
        self,
        store: Store,
        when: str,
        progress: Progress = silent,
        *,
        since: Since = never,
    ) -> None:
        """Keep where they are, and when to write.

        Args:
            when: `newest` passes over those that a newer one has overtaken; `each` leaves out none;
                at the times of a schedule it is the newest; `never` is never.
            since: Of when the newest rows are; see `last_with_rows`.
        """
        self._store = store
        self._when = when
        self._progress = progress
        self._schedule = export_schedule(when)
        self._clock = Clock() if self._schedule is None else clock_of(self._schedule)
        self._due = (
            None if self._schedule is None else first_due(self._schedule, self._clock.now(), since)
        )
        self._waiting: list[Savepoint] = []
        self._ending = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="export", daemon=True)

    def end(self) -> None:
        """Begin no other, unless each is written."""
        with self._changed:
            self._ending = True
            self._changed.notify()

    def add(self, savepoint: Savepoint) -> None:
        """Write the rows of this savepoint when its time comes; returns at once."""
        if self._when == "never":
            return
        with self._changed:
            overtaken = [] if self._when == "each" else self._waiting
            for one in overtaken:
                _LOG.info("%s is newer: not writing the state rows of %s", savepoint.id, one.id)
            self._waiting = [*(self._waiting if self._when == "each" else []), savepoint]
            self._changed.notify()

    def _run(self) -> None:
        while (savepoint := self._next()) is not None:
            self._export(savepoint)

    def _next(self) -> Savepoint | None:
        """Wait for a savepoint whose time has come; None at the end."""
        with self._changed:
            while not (self._waiting and self._is_due()):
                if self._ending:
                    return None
                self._changed.wait(self._seconds_left())
            if self._ending and self._when != "each":
                return None
            if self._schedule is not None:
                self._due = self._schedule.next_after(self._clock.now())
            return self._waiting.pop(0)

    def _is_due(self) -> bool:
        return self._due is None or self._due <= self._clock.now()

    def _seconds_left(self) -> float | None:
        """Return for how long there is nothing to do; None until something is added."""
        if self._due is None or not self._waiting:
            return None
        return max(0.0, (self._due - self._clock.now()).total_seconds())

    def _tasks(self) -> int:
        """Return how many tasks may write at the same time."""
        from savepoints.spark.session import session

        spark = session(self._store.settings, "savepoints export")
        return max(1, int(spark.sparkContext.defaultParallelism) // _ONE_CORE_IN)

    def _export(self, savepoint: Savepoint) -> None:
        if not private_api.has_session():
            # One of its own would be what the program gets when it asks for its next session.
            _LOG.warning(
                "the Spark session was stopped before the state rows of %s were written; add them "
                "with: savepoints export %s",
                savepoint.id,
                savepoint.id,
            )
            return
        try:
            export.execute(export.plan(self._store, savepoint.id), self._store, tasks=self._tasks())
        except SavepointNotFoundError:
            _LOG.info("%s expired before its state rows were written", savepoint.id)
        except NativeOnlyError as error:
            _LOG.info("%s has only the native form: %s", savepoint.id, error)
        except LockedError as error:
            _LOG.info("not writing the state rows of %s: %s", savepoint.id, error.message)
        except Exception:  # noqa: BLE001  (whatever it is, the query is more important)
            _LOG.exception(
                "could not write the state rows of %s, so it has only the native form; add the "
                "rows with: savepoints export %s",
                savepoint.id,
                savepoint.id,
            )
        else:
            self._progress(f"wrote the state rows of savepoint {savepoint.id}")
