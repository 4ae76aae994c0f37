"""What Spark dropped as late, merged on a schedule beside the run of the query.

The merge is made in the driver of the run, which pauses for its last steps as for a merge from
elsewhere. Whatever fails is logged and recorded in the events, and the query continues. While a
merge has begun to change the query, the query cannot run: so a failure in these steps is retried
until they are finished, and a run that begins finishes what a killed driver has left.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar, cast

from savepoints.config.schedule import merge_schedule
from savepoints.errors import IncompatibleError, LockedError, QueryNotFoundError, SavepointsError
from savepoints.observe.recorder import recording
from savepoints.operations.cascade import readers
from savepoints.operations.merge import merge
from savepoints.operations.merge.plan import PAUSED_FOR, VERB, MergePlan
from savepoints.operations.merge.prepare import MergeRequest, let_go_on
from savepoints.operations.merge.result import Merged
from savepoints.operations.pipeline import periodic_groups
from savepoints.operations.run import pause
from savepoints.operations.run.alongside import alongside
from savepoints.plan import Progress, silent
from savepoints.runtime import app as apps
from savepoints.runtime.ticker import Clock, Ticker
from savepoints.store import bindings
from savepoints.store.locks import journal, lease
from savepoints.store.locks.journal import Operation
from savepoints.store.root import Store
from savepoints.store.tables.merge_ledger import DROPPED
from savepoints.texts import count_text

_LOG = logging.getLogger(__name__)
# Those that give a run an end.
_ENDS = ("until", "max_duration", "max_records")
# Between attempts to finish what keeps the query from running.
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 2.0, 300.0

P = ParamSpec("P")
R = TypeVar("R")


def merging(
    run: Callable[Concatenate[Store, str, P], R],
) -> Callable[Concatenate[Store, str, P], R]:
    """Let a run without an end merge on the schedule of the settings."""
    return alongside(run, _unless_it_ends)


def _unless_it_ends(
    store: Store, query: str, options: Mapping[str, object]
) -> AbstractContextManager[object]:
    if any(options.get(name) is not None for name in _ENDS):
        return nullcontext()
    return beside(store, query, progress=cast("Progress", options.get("progress", silent)))


run = merging(periodic_groups.run)


@contextmanager
def beside(
    store: Store, query: str, *, progress: Progress = silent, clock: Clock | None = None
) -> Iterator[None]:
    """Merge on the schedule of the settings for as long as the context is entered.

    Leaving the context waits for a merge that is under way, which then changes a query that stands
    still.

    Raises:
        SavepointsError: If a merge that was interrupted cannot be finished: the query cannot run.
    """
    schedule = merge_schedule(store.settings.merge.dropped)
    if schedule is None or (inputs := _inputs(store, query, progress)) is None:
        yield
        return
    _finish_before_run(store, query, inputs, progress)
    ended = threading.Event()

    def call() -> None:
        for name in inputs:
            if merge_dropped(store, query, name, progress=progress) is None:
                _finish_beside_run(store, query, inputs, ended, progress)

    name = f"merge of what {query} dropped"
    with Ticker(schedule, call, name, clock, partial(_last_merged, store, query)):
        try:
            yield
        finally:
            ended.set()


def _last_merged(store: Store, query: str) -> datetime | None:
    """Return when what a query dropped was last merged, also if it was nothing; None for never.

    From then an interval counts: a run that never lives as long would merge nothing.
    """
    mine = (one for one in store.events.all() if one.query == query)
    return next((one.at for one in mine if one.merged_dropped), None)


def merge_dropped(
    store: Store, query: str, input_name: str | None = None, *, progress: Progress = silent
) -> Merged | None:
    """Merge what was dropped and is not merged yet; a failure is logged and recorded, never raised.

    Args:
        input_name: Needed where the query has several inputs.

    Returns:
        What was merged; None for a failure, for a merge that somebody else makes at this moment,
        and for a query that has run no batch yet.
    """
    try:
        store.generations.current(query)
    except QueryNotFoundError:
        return None
    try:
        done = _merge(store, MergeRequest(query, None, input_name), progress)
    except LockedError as error:
        _LOG.warning("skipping the merge of what %s dropped: %s", query, error)
        return None
    except Exception as error:  # noqa: BLE001  (whatever it is, the query is more important)
        _log(f"events that {query} dropped as late were not merged; the query continues", error)
        return None
    progress(f"merged {count_text(done.rows, 'event')} that {query} had dropped as late")
    return done


def _merge(store: Store, asked: MergeRequest, progress: Progress) -> Merged:
    with _failure_recorded(store, asked.query):
        _refuse_readers(store, asked)
        prepared = merge.prepare(store, asked, progress=progress)
        if isinstance(prepared, MergePlan):
            return merge.execute(prepared, store, progress=progress)
    # From here on the merge records itself.
    return merge.execute(prepared, store, progress=progress)


def _refuse_readers(store: Store, asked: MergeRequest) -> None:
    """Refuse a query whose tables others read: nobody would see the warning of the plan."""
    if names := readers.names(store, asked.query):
        raise IncompatibleError(
            f"the scheduled merge of the events that Spark dropped from {asked.query} was "
            f"refused, because {', '.join(names)} would not receive the corrections",
            hint="merge by hand, which pauses and corrects these queries, too: "
            f"{asked.command.removesuffix(' --yes')} --downstream merge; or stop the schedule: "
            'set [merge] dropped = "never"',
            query=asked.query,
            readers=list(names),
        )


@contextmanager
def _failure_recorded(store: Store, query: str) -> Iterator[None]:
    try:
        yield
    except Exception:
        with recording(store, VERB, query=query, parameters={"batch": DROPPED}):
            raise


def _inputs(store: Store, query: str, progress: Progress) -> tuple[str | None, ...] | None:
    """Return the inputs to merge; None for a query without archives, which runs without merges."""
    bound = bindings.complete(store).bound(query, "it cannot be run")
    names = tuple(apps.load_for(query, bound).inputs)
    lacking = [name for name in names if name not in bound.archives]
    if lacking:
        progress(
            f"not merging events that {query} dropped as late: its input {lacking[0]} has no "
            "archive"
        )
        return None
    return names if len(names) > 1 else (None,)


def _finish_before_run(
    store: Store, query: str, inputs: tuple[str | None, ...], progress: Progress
) -> None:
    """Finish what a killed driver has left; its lease may have to run out first."""
    said = ""
    while True:
        try:
            _finish(store, query, inputs, progress)
        except LockedError as error:
            if error.message != said:
                progress(f"waiting to merge events that {query} dropped as late: {error.message}")
                said = error.message
            time.sleep(_FIRST_WAIT_SECONDS)
        else:
            return


def _finish_beside_run(
    store: Store,
    query: str,
    inputs: tuple[str | None, ...],
    ended: threading.Event,
    progress: Progress,
) -> None:
    """Finish what keeps the query from running, however often that fails, until the run ends."""
    seconds = _FIRST_WAIT_SECONDS
    while True:
        try:
            _finish(store, query, inputs, progress)
        except Exception as error:  # noqa: BLE001  (the query waits for it, so it is tried again)
            _log(f"{query} cannot continue; trying again in {seconds:g} s", error)
        else:
            return
        if ended.wait(seconds):
            return
        seconds = min(2 * seconds, _LONGEST_WAIT_SECONDS)


def _finish(store: Store, query: str, inputs: tuple[str | None, ...], progress: Progress) -> None:
    """Finish a merge that has begun to change the query, or resume a query paused for a merge.

    What keeps the query from running otherwise is left to whoever began it.

    Raises:
        LockedError: If the merge is still under way, or the lease of a dead one has not run out.
    """
    unfinished = journal.unfinished(store.root, query)
    if unfinished is None:
        now = pause.state(store, query)
        if now.wanted == "paused" and now.reason.startswith(PAUSED_FOR):
            with lease.hold_merging(store.root, query):
                let_go_on(store, query, progress)
        return
    for name in inputs:
        asked = MergeRequest(query, None, name)
        if unfinished.command == asked.command:
            _finish_operation(store, asked, unfinished, progress)


def _finish_operation(
    store: Store, asked: MergeRequest, unfinished: Operation, progress: Progress
) -> None:
    progress(f"finishing the interrupted merge {unfinished.id}")
    with recording(
        store, VERB, query=asked.query, operation=unfinished.id, parameters={"batch": DROPPED}
    ):
        prepared = merge.prepare(store, asked, progress=progress)
        # Anything else has been finished by somebody meanwhile.
        if isinstance(prepared, MergePlan):
            merge.execute(prepared, store, progress=progress)
        else:
            merge.drop(prepared, store)


def _log(what: str, error: Exception) -> None:
    """Log a failure; what is known needs no traceback."""
    _LOG.error("%s: %s", what, error, exc_info=not isinstance(error, SavepointsError))
