"""Periodic savepoints: one after another by the clock, never in the way of the query.

The same function takes them in `run`, in a driver of the user's (`attach`) and in a job of its own
for cron (`savepoints.jobs.savepoint`): whatever goes wrong is told, in the log, the events and
the metrics, and never raised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from savepoints.errors import (
    LockedError,
    NoCommittedBatchError,
    SavepointsError,
    UnreachableError,
    message_of,
)
from savepoints.model import FORMS, Savepoint
from savepoints.observe import metrics
from savepoints.observe.outage import Outage
from savepoints.observe.recorder import recording
from savepoints.operations.maintain import expire
from savepoints.operations.run.background_export import BackgroundExport
from savepoints.operations.savepoint import create, history
from savepoints.operations.savepoint.create import CreatePlan, Saved
from savepoints.plan import Progress, silent
from savepoints.result import Result
from savepoints.spark import causes
from savepoints.store.root import Store
from savepoints.store.tables import catalog
from savepoints.texts import count_text

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class Attempt(Result):
    """What came of a periodic savepoint.

    Attributes:
        result: `skipped` when another process takes one at this moment, there is nothing yet, or
            the newest batch is saved already.
        savepoint: What was taken.
        error: Why it was not, if that is an error.
        reason: Why it was not, if that is none: the batch is saved already, or there is none.
    """

    result: Literal["done", "skipped", "failed"]
    savepoint: Savepoint | None = None
    error: SavepointsError | None = None
    reason: str = ""

    def __repr__(self) -> str:
        """Return one line: a savepoint has a page of fields."""
        what = self.savepoint.id if self.savepoint else self.error or self.reason
        return f"<{self.result}: {what}>"


def take(
    store: Store,
    saved: Saved,
    *,
    outage: Outage | None = None,
    exports: BackgroundExport | None = None,
    progress: Progress = silent,
) -> Attempt:
    """Take a savepoint, then expire old ones and write metrics if the settings say so.

    Args:
        exports: What writes the rows of savepoints in both forms; by default the savepoint is only
            over when it has them.
    """
    is_exported_later = exports is not None and set(saved.forms) == set(FORMS)
    named = saved.query or saved.checkpoint
    outage = outage or Outage(named or "the query")
    try:
        now = replace(saved, forms=("native",)) if is_exported_later else saved
        attempt = _take(store, now, progress)
    except UnreachableError as error:
        outage.noticed(error)
        return Attempt("failed", error=error)  # Metrics would ask the store, too.
    except SavepointsError as error:
        # What is known needs no traceback.
        _LOG.error("the savepoint of %s failed; the query continues: %s", named, error)
        attempt = Attempt("failed", error=error)
    except Exception as error:  # noqa: BLE001  (whatever it is, the query is more important)
        _LOG.exception("the savepoint of %s failed; the query continues", named)
        attempt = Attempt("failed", error=causes.of(error) or SavepointsError(message_of(error)))
    outage.over()
    if attempt.savepoint is not None:
        if exports is not None and is_exported_later:
            exports.add(attempt.savepoint)
        _expire(store, attempt.savepoint.query, progress)
    _write_metrics(store)
    return attempt


def last_taken(
    store: Store, query: str, counts: Callable[[Savepoint], bool] = lambda _: True
) -> datetime | None:
    """Return when the newest savepoint of a query that counts was taken, None without one.

    From then an interval counts: a driver that never lives as long would take none.
    """
    known = catalog.select(store.catalog.all(), query=query)
    return next((one.created_at for one in known if counts(one)), None)


def last_with_rows(store: Store, query: str) -> datetime | None:
    """Return when the newest savepoint of a query that has its state rows was taken, None without.

    From then an interval of exports counts, for the same reason.
    """
    return last_taken(store, query, lambda one: "canonical" in one.forms)


def _take(store: Store, saved: Saved, progress: Progress) -> Attempt:
    try:
        plan = create.plan(store, **vars(saved), kind="periodic")
    except NoCommittedBatchError as error:
        _LOG.info("no savepoint of %s yet: %s", saved.query or saved.checkpoint, error)
        return Attempt("skipped", error=error)
    except Exception:
        # `execute` records what it does; what fails before it is recorded here.
        parameters = {"checkpoint": saved.checkpoint}
        with recording(store, "create", query=saved.query, parameters=parameters):
            raise
    there = history.saved(store, plan.query, plan.generation, plan.newest_batch, plan.forms)
    if there is not None and _has_outputs(there, plan):
        _LOG.debug("batch %s of %s is already saved: %s", plan.newest_batch, plan.query, there.id)
        with recording(store, "create", query=plan.query, savepoint=there.id) as noted:
            reason = f"batch {plan.newest_batch} is already saved"
            noted.note(result="skipped", message=reason)
        return Attempt("skipped", reason=reason)
    try:
        taken = create.execute(plan, store, progress=progress)
    except LockedError as error:
        _LOG.warning("skipping the savepoint of %s: %s", plan.query, error)
        progress(f"savepoint skipped: {error.message}")
        return Attempt("skipped", error=error)
    progress(f"took the savepoint {taken.id} of batch {taken.cut.batch_id}")
    return Attempt("done", taken)


def _has_outputs(savepoint: Savepoint, plan: CreatePlan) -> bool:
    """Return True if a savepoint has all outputs that a new one would have."""
    topics = {one.topic for one in savepoint.output_topics}
    return plan.outputs.keys() <= {one.name for one in savepoint.outputs} and topics >= {
        *plan.output_topics
    }


def _expire(store: Store, query: str, progress: Progress) -> None:
    try:
        removed = expire.after_savepoint(store, query)
    except Exception:  # noqa: BLE001  (the savepoint was taken)
        _LOG.exception("could not expire old savepoints of %s; the new savepoint is safe", query)
        return
    if removed is not None:
        progress(f"deleted {count_text(len(removed.removed), 'expired savepoint')}")


def _write_metrics(store: Store) -> None:
    if store.settings.metrics_file is None:
        return
    try:
        metrics.write(store, store.settings.metrics_file)
    except Exception:  # noqa: BLE001  (the savepoint was taken)
        _LOG.exception("writing metrics to %s failed", store.settings.metrics_file)
