"""`run`: run the current generation of a query, with periodic savepoints, maybe up to an end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from savepoints.errors import CheckpointDamagedError, UsageError
from savepoints.model import FORMS, Form, Savepoint
from savepoints.operations.run import recover as recover_
from savepoints.operations.run import wait_for_lease
from savepoints.operations.run.program import Order, Program, resolve
from savepoints.operations.run.segment import nothing, run_segment
from savepoints.operations.run.supervisor import Segment, Supervisor
from savepoints.plan import Progress, silent
from savepoints.runtime.compatibility import ProgramLayout
from savepoints.runtime.runner import Ran
from savepoints.runtime.stop_signals import stopped_by_signals
from savepoints.store.root import Store


def run(
    store: Store,
    query: str,
    *,
    app: str | None = None,
    every: str | None = None,
    until: str | None = None,
    max_duration: timedelta | None = None,
    max_records: int | None = None,
    wait: timedelta | None = None,
    recover: bool = False,
    forms: Sequence[Form] = FORMS,
    final_savepoint: bool = True,
    accept_state_names: bool = False,
    progress: Progress = silent,
) -> tuple[Ran, Savepoint | None]:
    """Run the query until a signal stops it or it reaches its end; then take a savepoint.

    While the query is paused (`savepoints pause`) the run waits, holding only its paused lease, and
    continues in whatever generation is current by then. A run with an end ends instead.

    With an end, the query runs in planned batches of at most `max_offsets_per_trigger` records of
    each source, and stops exactly there. If nothing is left to do, Spark is not even started.

    Args:
        query: Its name in the settings, or that of a fork, which needs no settings of its own.
        app: An application to run instead of the one in the settings, such as a fixed version.
        every: Interval or cron expression of periodic savepoints, instead of the one in the
            settings.
        until: Where to end: `latest`, an RFC 3339 time, the path of a JSON file of offsets,
            `version:N` of the table that the query reads, or the name of a savepoint. See
            `runtime.bounded.end_offsets` and, for tables, `runtime.bounded.table_ends`.
        max_duration: Start no new batch after this time. A running batch is not interrupted;
            `max_offsets_per_trigger` bounds its length.
        max_records: End after exactly this many more records, counted by their offsets, or at
            `until` if that is nearer; without `until`, at what Kafka has when the run begins.
        wait: How long to wait for another run, or another verb, that has the query.
        recover: Rebuild a lost or damaged checkpoint from the newest good savepoint, outputs
            included. See `savepoints.operations.run.recover`.
        forms: Forms of the savepoints.
        final_savepoint: Whether to take a savepoint at the end; if nothing was run and there
            already is one, that is returned.
        accept_state_names: Continue with state whose fields have other names in the
            program; swapped aggregates of one type then go unnoticed.
        progress: Called with one line for each step.

    Returns:
        What was run since the last pause, and the final savepoint; None when nothing has been
        committed yet.

    Raises:
        UsageError: If a query that is no fork is not in the settings, the application has another
            name, or the end cannot be reached.
        QueryRunningError: If it runs already.
        LockedError: If another verb has the query.
        UnfinishedOperationError: If an operation on it was interrupted.
        CheckpointDamagedError: If its checkpoint is lost or damaged.
        SourceDataGoneError: If Kafka no longer has the records that come next.
        LayoutChangedError: If fields of the restored state have other names in the program.
        SavepointsError: If the query fails.
    """
    if max_records is not None and max_records < 1:
        raise UsageError(
            f"--max-records is {max_records}, but must be at least 1",
            hint="pass 1 or more, or omit the option",
        )

    order = Order(
        store=store,
        query=query,
        app=app,
        every=every,
        until=until,
        max_duration=max_duration,
        max_records=max_records,
        wait=wait,
        forms=tuple(forms),
        final_savepoint=final_savepoint,
        accept_state_names=accept_state_names,
        progress=progress,
        begun_in=store.generations.find_current(query),
    )
    recovery = _Recovery(resolve(order))
    layouts = ProgramLayout(store, progress)
    last = Supervisor(
        store,
        query,
        tell=store.settings.hooks,
        idles=order.is_endless,
        wait=wait,
        signals=stopped_by_signals,
        progress=progress,
    ).supervise(
        partial(run_segment, order, layouts),
        drained=layouts.find_ahead,
        before=recovery.at_first if recover else None,
        damaged=recovery.of if recover else None,
    )
    if last is None:
        current = store.generations.find_current(query)
        last = Segment(nothing(order, "paused", current.generation if current else 0), None)
    return replace(last.ran, recovered_from=recovery.savepoint_id), last.savepoint


@dataclass
class _Recovery:
    """What `--recover` does, at most once in a run."""

    program: Program
    savepoint_id: str | None = None
    has_looked: bool = False

    def at_first(self) -> None:
        """Recover a query that is damaged before its first segment."""
        if self.has_looked:
            return
        self.has_looked = True
        order = self.program.order
        with wait_for_lease.hold(order.store, order.query, order.wait, order.progress):
            pass  # A rollback takes the lease itself.
        self.savepoint_id = recover_.if_damaged(
            order.store, order.query, self.program.bound, progress=order.progress
        )

    def of(self, error: CheckpointDamagedError) -> None:
        """Recover a query that Spark finds damaged, unless it was recovered already."""
        if self.savepoint_id is not None:
            raise error
        order = self.program.order
        self.savepoint_id = recover_.recover(
            order.store, order.query, error.message, progress=order.progress
        )
