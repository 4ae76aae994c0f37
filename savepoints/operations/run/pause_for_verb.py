"""Keeping the run of a live query still while a verb does what has to be done between two batches.

The query is paused for as long as that takes, and goes on afterwards; if the verb fails it goes on
as if nothing had happened, unless it has begun what has to be finished first.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from savepoints.model import SavepointKind
from savepoints.operations.rollback import taking_back
from savepoints.operations.rollback.generation_change import TransitionPlan
from savepoints.operations.run import pause
from savepoints.operations.savepoint import create
from savepoints.outputs.correct.correct import Correction
from savepoints.outputs.fork.replace_content import Takeover
from savepoints.outputs.rewind import rewind
from savepoints.outputs.rewind.planned_rewind import Rewind
from savepoints.plan import Progress
from savepoints.runtime import stop_signals
from savepoints.store.locks import journal
from savepoints.store.root import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T", Correction, Takeover)


@contextmanager
def kept(
    store: Store, query: str, *, reason: str, wait: timedelta, progress: Progress
) -> Iterator[datetime | None]:
    """Keep a query's run from running within; it goes on afterwards.

    Args:
        reason: Why; by it a pause that was killed is recognised as one's own.

    Yields:
        When it was asked to pause; None when no run of it is there, or somebody else wants it
        paused, so that it stays so.
    """
    reason = f"{reason}, which will resume it"
    before = pause.state(store, query)
    ours = before.wanted == "paused" and before.reason == reason
    if not ours and (before.wanted == "paused" or before.state == "stopped"):
        yield None
        return
    progress(f"pausing {query}")
    try:
        now = pause.pause(store, query, reason=reason, wait=wait, progress=progress)
        yield now.asked_at
    except BaseException:
        # With a journal begun its run could not go on, and the operation is to be finished.
        if journal.unfinished(store.root, query) is None:
            pause.resume(store, query, progress=progress)
        raise
    pause.resume(store, query, wait=wait, progress=progress)


def settle(
    store: Store,
    query: str,
    *,
    kind: SavepointKind,
    description: str,
    savepoint_id: str,
    paused: bool,
) -> None:
    """Save where the generation begins that a verb has made, and resume the run paused for it.

    Without that savepoint the query could not go back to there, nor be recovered. The run waits
    for the lease, which is held until the operation is finished.
    """
    create.save(store, query, kind=kind, description=description, savepoint_id=savepoint_id)
    if paused:
        pause.resume(store, query)


def undo(
    plan: TransitionPlan,
    store: Store,
    tables: Sequence[_T],
    undo_one: Callable[[_T, str, SparkSession | None], None],
    is_done: Callable[[_T], bool],
    *,
    paused: bool,
    progress: Progress,
) -> None:
    """Undo an interrupted operation, and resume the run paused for it, which waits for the end.

    Args:
        tables: What the verb does to tables besides its `outputs`.
    """
    spark = rewind.session_for([one.live for one in tables], store.settings)

    def give_back() -> None:
        for one in tables:
            progress(f"restoring the table {one.live.output.uri} to version {one.live.newest}")
            undo_one(one, plan.operation_id, spark)
        if paused:
            pause.resume(store, plan.query)

    def changed() -> list[Rewind]:
        return [one.live for one in tables if is_done(one)]

    taking_back.undo(plan, store, also=give_back, changed=changed, progress=progress)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let a signal to end it end a verb as Ctrl-C does, so that the live query is let go on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {one: signal.signal(one, signal.default_int_handler) for one in stop_signals.ending()}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
