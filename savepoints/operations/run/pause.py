"""`pause` and `resume`: ask the run of a query to stop between two batches, and to go on.

The request stands in the store, so the two may be on different machines. The run looks for it every
second (`operations.run.supervisor`). What is told of a query follows from the request, the run's
answer, and who holds the leases: a run that has died is never told to be running or pausing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from savepoints.config.duration import duration_text
from savepoints.errors import PartlyDoneError, QueryNotFoundError
from savepoints.observe.recorder import recording, who
from savepoints.plan import Progress, silent
from savepoints.result import Result
from savepoints.store.locks import journal, lease, pause_requests
from savepoints.store.locks.pause_requests import Wanted
from savepoints.store.root import Store

# How often `--wait` looks, and how often it says that it still waits.
_POLL_SECONDS = 0.2
_REPEAT_SECONDS = 10.0


@dataclass(frozen=True)
class PauseState(Result):
    """Whether a query runs or is paused, and what was requested.

    Attributes:
        query: Name of the query.
        state: `running`; `pausing`: requested, but its run has not finished the batch or the
            savepoint; `paused`: no batch runs, and the lease is free; `resuming`: its run has not
            started again; `stopped`: there is no run.
        wanted: What is in force: `paused` or `running`.
        changed: Whether this call requested it; false when it was in force already.
        request_id: Id of the request, as in the events; None when nothing was ever requested.
        asked_at: When.
        asked_by: User and host, and the process.
        reason: Why.
        run: The present run, as process and host; None without one.
        paused_at: When the query was paused, None when it is not; so are the next four.
        generation: The generation that ran.
        batch_id: Its newest committed batch.
        savepoint_id: The savepoint taken there, None without one.
        error: Why there is none although one was requested; empty otherwise.
    """

    query: str
    state: Literal["running", "pausing", "paused", "resuming", "stopped"]
    wanted: Wanted
    changed: bool = False
    request_id: str | None = None
    asked_at: datetime | None = None
    asked_by: str | None = None
    reason: str = ""
    run: str | None = None
    paused_at: datetime | None = None
    generation: int | None = None
    batch_id: int | None = None
    savepoint_id: str | None = None
    error: str = ""


def state(store: Store, query: str) -> PauseState:
    """Say whether a query runs or is paused."""
    found = _read_state(store, query)
    # A run that changes from one lease to the other can be missed in both, but not twice.
    return _read_state(store, query) if found.state == "stopped" else found


def pause(
    store: Store,
    query: str,
    *,
    reason: str = "",
    wait: timedelta | None = None,
    progress: Progress = silent,
) -> PauseState:
    """Pause a query: its run finishes the batch, takes a savepoint, and waits.

    Args:
        query: Name of the query.
        reason: Why, for whoever finds it paused.
        wait: How long to wait until it is paused; None returns at once. Without a run there is
            nothing to wait for.
        progress: Called with one line for each thing it waits for.

    Returns:
        Its present state. `stopped`: there is no run; one that starts stays paused.

    Raises:
        QueryNotFoundError: If the store has no query of that name.
        QueryRunningError: If it runs in a driver of its own, which only that can stop.
        PartlyDoneError: If it is not paused within the time, its run ended before it was, somebody
            resumed it, or no savepoint could be taken; the request stays in force.
        VerificationError: If a request, an answer or a lease is damaged.
    """
    _require_known(store, query)
    held = lease.holder(store.root, query)
    if held is not None and held.verb == lease.ATTACH:
        # Nobody there looks for the request, and to say "stopped" or "pausing" would not be true.
        lease.refuse_held(store.root, query)
    now = _ask(store, query, "paused", reason)
    if wait is not None:
        now = _wait(store, now, "paused", wait, progress)
        if now.error:
            raise PartlyDoneError(
                f"{query} is paused at batch {now.batch_id}, but no savepoint was taken: "
                f"{now.error}",
                hint=f"fix the cause, then take a savepoint: savepoints create {query}",
                query=query,
            )
    return now


def resume(
    store: Store, query: str, *, wait: timedelta | None = None, progress: Progress = silent
) -> PauseState:
    """Resume a paused query, in the generation that is current by then.

    Args:
        query: Name of the query.
        wait: How long to wait until it runs; None returns at once. Without a run there is nothing
            to wait for.
        progress: Called with one line for each thing it waits for.

    Returns:
        Its present state. `stopped`: there is no run; the next one that starts will run.

    Raises:
        QueryNotFoundError: If the store has no query of that name.
        UnfinishedOperationError: If an operation on it was interrupted: its run could not continue.
        PartlyDoneError: If it does not run within the time, its run ended before it did, or
            somebody paused it again; the request stays in force.
        VerificationError: If a request, an answer or a lease is damaged.
    """
    _require_known(store, query)
    if lease.holder(store.root, query) is None:
        journal.refuse_unfinished(store.root, query)
    now = _ask(store, query, "running", "")
    return now if wait is None else _wait(store, now, "running", wait, progress)


def _require_known(store: Store, query: str) -> None:
    # The very first run begins its generation only when Spark has started.
    if lease.holder(store.root, query) is None:
        try:
            store.generations.current(query)
        except QueryNotFoundError as error:
            raise QueryNotFoundError(
                f"{error.message}; only a query started by `savepoints run` can be paused or "
                "resumed",
                hint=error.hint,
                **error.details,
            ) from None


def _ask(store: Store, query: str, wanted: Wanted, reason: str) -> PauseState:
    request = pause_requests.ask(store.root, query, wanted, by=who(), reason=reason)
    verb = "pause" if wanted == "paused" else "resume"
    if request is not None:
        with recording(
            store, verb, query=query, operation=request.id, parameters={"reason": reason}
        ) as noted:
            noted.note(message=f"requested{f': {reason}' if reason else ''}")
    return replace(state(store, query), changed=request is not None)


def _wait(
    store: Store, begun: PauseState, target: Wanted, wait: timedelta, progress: Progress
) -> PauseState:
    query, now = begun.query, begun
    end = time.monotonic() + wait.total_seconds()
    say = _ThrottledProgress(progress)
    while now.state != target:
        if now.wanted != target:
            raise PartlyDoneError(
                f"{query} is not {target}: {now.asked_by} has since requested that it be "
                f"{now.wanted}",
                hint=f"ask again: {_command(query, target)}",
                query=query,
            )
        if now.state == "stopped":
            if begun.state == "stopped":
                return now
            raise PartlyDoneError(
                f"{query} is not {target}, because the run ({begun.run}) ended first",
                hint=f"see why it ended: savepoints events --query {query}; the request applies "
                "to the next run",
                query=query,
            )
        if time.monotonic() > end:
            raise PartlyDoneError(
                f"{query} is not {target} after {duration_text(wait)}; it is still {now.state}"
                + (f" ({now.run})" if now.run else ""),
                hint=f"wait longer: {_command(query, target)} --wait 30m; the request remains in "
                "effect",
                query=query,
                state=now.state,
            )
        say(f"waiting for {query}, which is {now.state} ({now.run})")
        time.sleep(_POLL_SECONDS)
        now = replace(state(store, query), changed=begun.changed)
    return now


def _command(query: str, target: Wanted) -> str:
    return f"savepoints {'pause' if target == 'paused' else 'resume'} {query}"


class _ThrottledProgress:
    """Tells a line when it is another one, or every now and then."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self._progress = progress
        self._line = ""
        self._said = 0.0

    def __call__(self, line: str) -> None:
        now = time.monotonic()
        if line != self._line or now > self._said + _REPEAT_SECONDS:
            self._progress(line)
            self._line, self._said = line, now


def _read_state(store: Store, query: str) -> PauseState:
    root = store.root
    request = pause_requests.current(root, query)
    # In this order: a run takes the lease of a paused one, gives up the query's, then answers.
    waiting = lease.paused_holder(root, query)
    holder = lease.holder(root, query)
    running = holder if holder is not None and holder.runs else None
    there = running or waiting
    found = PauseState(query, "stopped", "running", run=there.who if there else None)
    if request is not None:
        found = replace(
            found,
            wanted=request.wanted,
            request_id=request.id,
            asked_at=request.asked_at,
            asked_by=request.asked_by,
            reason=request.reason,
        )
    if request is None or request.wanted == "running":
        if there is None:
            return found
        return replace(found, state="running" if running else "resuming")
    if running:
        return replace(found, state="pausing")
    answer = pause_requests.answer_to(root, request)
    if answer is None:
        return replace(found, state="pausing") if waiting else found
    return replace(
        found,
        state="paused",
        paused_at=answer.paused_at,
        generation=answer.generation,
        batch_id=answer.batch_id,
        savepoint_id=answer.savepoint_id,
        error=answer.error,
    )
