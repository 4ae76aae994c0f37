"""Groups of savepoints on a schedule, taken in the driver of one query of the pipeline.

The others need not know: their savepoints are taken from outside, as by `pipeline create`. Whatever
fails is logged and recorded in the events, and the query continues.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Concatenate, ParamSpec, TypeVar, cast

from savepoints.config.schedule import parse_schedule
from savepoints.errors import LockedError, NoCommittedBatchError, SavepointsError
from savepoints.model import GROUP_TAG, Savepoint
from savepoints.moments import utc_now
from savepoints.observe.recorder import recording
from savepoints.operations.pipeline import group_savepoint, groups
from savepoints.operations.pipeline.group_savepoint import Group
from savepoints.operations.run import periodic
from savepoints.operations.run import run as run_
from savepoints.operations.run.alongside import alongside
from savepoints.plan import Progress, silent
from savepoints.runtime.ticker import Ticker
from savepoints.store import bindings
from savepoints.store.root import Store

_LOG = logging.getLogger(__name__)
_VERB = "pipeline create"

P = ParamSpec("P")
R = TypeVar("R")


def take(store: Store, query: str, *, progress: Progress = silent) -> Group | None:
    """Take a native group of a query's pipeline, tagged with the time; never raises.

    Returns:
        None if it failed, or a query has not committed anything yet. An incomplete group may be
        left, which `pipeline list` reports and `expire` removes.
    """
    tag = groups.tag_of(utc_now())
    try:
        with recording(store, _VERB, query=query, parameters={"tag": tag}):
            # A first batch is not waited for: the query may be stopping, and would wait for this.
            plan = group_savepoint.plan(store, query, name=tag, wait=timedelta(0))
            made = group_savepoint.execute(plan, store, progress=progress)
    except (LockedError, NoCommittedBatchError) as error:
        _LOG.warning("skipping the group %s of %s: %s", tag, query, error)
    except SavepointsError as error:
        # What is known needs no traceback.
        _LOG.error("the group %s of %s failed; the query continues: %s", tag, query, error)
    except Exception:  # noqa: BLE001  (whatever it is, the query is more important)
        _LOG.exception("the group %s of %s failed; the query continues", tag, query)
    else:
        progress(f"took the group {tag}: {', '.join(one.query for one in made.savepoints)}")
        return made
    return None


def periodic_groups(store: Store, query: str, *, every: str, progress: Progress = silent) -> Ticker:
    """Take native groups of a query's pipeline on a schedule, in a thread of this process.

    ```python
    with store.query("gold").periodic_groups(every="1h"):
        streaming_query.awaitTermination()
    ```

    Args:
        every: An interval (`1h`), which counts from the newest group that the query has part in, or
            a cron expression in UTC (`0 * * * *`).

    Returns:
        A context manager; leaving it waits for a group that is being taken.

    Raises:
        UsageError: If the schedule is not one.
    """
    call = functools.partial(take, store, query, progress=progress)
    last = functools.partial(periodic.last_taken, store, query, _is_of_group)
    return Ticker(parse_schedule(every), call, f"groups of {query}", since=last)


def _is_of_group(savepoint: Savepoint) -> bool:
    """Return True for one that was taken in a group by the clock."""
    return any(tag.startswith(GROUP_TAG) for tag in savepoint.tags)


def _of_settings(
    store: Store, query: str, options: Mapping[str, object]
) -> AbstractContextManager[object]:
    bound = bindings.complete(store).queries.get(query)
    if bound is None or bound.groups is None:
        return nullcontext()
    progress = cast("Progress", options.get("progress", silent))
    return periodic_groups(store, query, every=bound.groups, progress=progress)


def grouping(
    run: Callable[Concatenate[Store, str, P], R],
) -> Callable[Concatenate[Store, str, P], R]:
    """Let a run take groups on the schedule of the query's settings."""
    return alongside(run, _of_settings)


run = grouping(run_.run)
