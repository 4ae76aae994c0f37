"""One segment of a run: from the lease of the query to the savepoint of its end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial

from savepoints.checkpoint import position
from savepoints.config.schedule import Schedule, parse_schedule
from savepoints.errors import SavepointsError, UsageError
from savepoints.io import Location
from savepoints.model import Form, Generation, Savepoint
from savepoints.observe.outage import Outage
from savepoints.observe.recorder import recording
from savepoints.operations.rollback.query_context import checkpoint_of
from savepoints.operations.run import final_savepoint, periodic
from savepoints.operations.run import recover as recovery
from savepoints.operations.run.background_export import BackgroundExport
from savepoints.operations.run.program import Order, Program, resolve
from savepoints.operations.run.supervisor import Segment, Supervisor
from savepoints.operations.savepoint.create import Saved
from savepoints.runtime import archive_first, compatibility
from savepoints.runtime.archive_of import runner_of
from savepoints.runtime.bounded import run_ends
from savepoints.runtime.bounded.bounded_run import KafkaEnd, Limits
from savepoints.runtime.bounded.bounded_tables import TableEnd
from savepoints.runtime.compatibility import ProgramLayout
from savepoints.runtime.runner import Ended, Ran, Runner
from savepoints.runtime.ticker import Ticker
from savepoints.store.batch_log import Recorder
from savepoints.store.locks import journal
from savepoints.store.locks.lease import Lease
from savepoints.texts import count_text


def run_segment(
    order: Order, layouts: ProgramLayout, supervisor: Supervisor, held: Lease
) -> Segment:
    """Run a query once under its lease.

    While the lease was waited for the query may have got another program and another generation,
    which belong together: so what is run is found out under it.
    """
    program = resolve(order)
    periodically = _periodic_savepoints(program)
    parameters = {
        "app": program.bound.app,
        "every": program.every,
        "until": order.until,
        "max_duration": order.max_duration,
        "max_records": order.max_records,
    }
    with recording(order.store, "run", query=order.query, parameters=parameters) as noted:
        begun = time.monotonic()
        generation = _begin(program, supervisor)
        ran = _run(program, generation, layouts, supervisor, held, periodically, begun)
        if supervisor.pause_requested and ran.ended == "drained":
            ran = replace(ran, ended="paused")
        counted = f"{count_text(ran.batches, 'batch')}, {count_text(ran.input_rows, 'row')}"
        order.progress(f"the run {'paused' if ran.ended == 'paused' else 'ended'}: {counted}")
        noted.note(message=f"{ran.ended}: {counted}", rows=ran.input_rows, seconds=ran.seconds)
        try:
            forms = forms_at_the_end(order, is_paused=supervisor.pause_requested)
            return Segment(ran, _savepoint(program, generation, ran, forms))
        except SavepointsError as error:
            if not supervisor.pause_requested:
                raise
            order.progress(f"could not take a savepoint for the pause: {error.message}")
            return Segment(ran, None, error.message)


def forms_at_the_end(order: Order, *, is_paused: bool) -> tuple[Form, ...]:
    """Return the forms of a segment's last savepoint.

    Who asked for a pause waits for it, so it is taken without rows. A run that ends instead of
    waiting takes the savepoint that it was asked for.
    """
    if is_paused and order.is_endless and "native" in order.forms:
        return ("native",)
    return order.forms


def nothing(order: Order, ended: Ended, generation: int, seconds: float = 0.0) -> Ran:
    """Return what was run where there was nothing to run."""
    return Ran(order.query, generation, None, None, 0, 0, seconds, ended)


def _begin(program: Program, supervisor: Supervisor) -> Generation:
    """Return the current generation; a query that never ran begins its first."""
    order = program.order
    generations = order.store.generations
    journal.refuse_unfinished(order.store.root, order.query)
    generation = generations.find_current(order.query)
    if generation is None:
        number = generations.next_number(order.query)
        checkpoint = checkpoint_of(program.bound.checkpoints, order.query, number)
        generation = generations.begin(order.query, number, checkpoint, by="run")
    supervisor.answers.resumed(generation.generation)
    recovery.require_present(order.store, generation, program.bound)
    return generation


def _run(
    program: Program,
    generation: Generation,
    layouts: ProgramLayout,
    supervisor: Supervisor,
    held: Lease,
    periodically: AbstractContextManager[object],
    begun: float,
) -> Ran:
    """Run a generation to its end, or until it is stopped; held since `begun` (monotonic)."""
    order, checkpoint = program.order, Location.of(generation.checkpoint)
    target = _target(program)
    _require_same_topics(program, generation, is_bounded=target is not None)
    if target is not None and target.is_reached(position.read(checkpoint)):
        ran = nothing(order, "caught_up", generation.generation, time.monotonic() - begun)
        offsets = target.ends if isinstance(target, KafkaEnd) else {}
        return replace(ran, caught_up=True, remaining_records=0, offsets=offsets)
    runner = _runner(program, generation, layouts)
    recorder = Recorder(
        order.store.root,
        order.query,
        generation.generation,
        checkpoint,
        retained=program.settings.spark.retained_batches,
    )

    def check() -> None:
        held.check()
        recorder.committed(runner.last_batch)

    with supervisor.may_stop(runner.stop), periodically, recorder:
        order.progress(f"running {program.bound.app}, generation {generation.generation}")
        if target is None and order.until is None and not program.every:
            order.progress("no periodic savepoints: to take them, add --every 10m")
        to_its_end = (
            partial(target.run, runner)
            if target is not None
            else partial(archive_first.run_on, runner, until_caught_up=order.until is not None)
        )
        deadline = begun + order.max_duration.total_seconds() if order.max_duration else None
        with order.store.scratch() as scratch:
            return to_its_end(
                scratch=scratch,
                limits=Limits(order.max_records, deadline),
                check=check,
                progress=order.progress,
            )


def _target(program: Program) -> KafkaEnd | TableEnd | None:
    """Return where to end, and what there is up to there; None for a run without an end.

    Spark itself ends at the newest version of tables, with the trigger `availableNow`.
    """
    order, inputs = program.order, program.inputs
    if order.until is None and order.max_records is None:
        return None
    if not inputs.app.table_inputs:
        return run_ends.of_topics(order.store, inputs, order.until or "latest")
    if order.max_records is not None or order.until is None:
        raise UsageError(
            f"--max-records works only for Kafka topics, but {order.query} reads a table",
            hint="use --until instead, with version:N, a time or latest: savepoints run "
            f"{order.query} --until latest",
            query=order.query,
        )
    return None if order.until == "latest" else run_ends.of_tables(order.store, inputs, order.until)


def _require_same_topics(program: Program, generation: Generation, *, is_bounded: bool) -> None:
    """Compare the topics; also what they have after a restore, and where an end is to be reached.

    Spark itself sees only a new topic that does not reach as far as the query had read.
    """
    order, inputs = program.order, program.inputs
    origin = compatibility.origin(order.store, generation)
    compatibility.require_same_topics(
        order.store, generation, inputs.kafka, order.progress, inputs.archives,
        has_all=origin is not None
        and (is_bounded or compatibility.is_restored(generation, origin)),
    )  # fmt: skip


def _runner(program: Program, generation: Generation, layouts: ProgramLayout) -> Runner:
    """Start Spark, and compare the program with the state that it goes on with."""
    from savepoints.spark.session import session

    order, checkpoint = program.order, Location.of(generation.checkpoint)
    order.progress("starting Spark")
    runner = runner_of(
        session(program.settings, f"savepoints run {order.query}", names_lines=True),
        order.store,
        program.inputs,
        generation=generation.generation,
        checkpoint=checkpoint,
        position=position.read(checkpoint).offsets,
        progress=order.progress,
    )
    layouts.keep(runner)
    layouts.require_once(
        runner,
        program.bound.app,
        generation.begun_from,
        accept_names=order.accept_state_names,
    )
    return runner


def _periodic_savepoints(program: Program) -> AbstractContextManager[None]:
    """Return a context in which savepoints are taken on the schedule, if there is one."""
    if not program.every:
        return nullcontext()
    return _periodically(program, parse_schedule(program.every))


@contextmanager
def _periodically(program: Program, schedule: Schedule) -> Iterator[None]:
    order, when = program.order, program.settings.periodic.export
    since = partial(periodic.last_with_rows, order.store, order.query)
    with BackgroundExport(order.store, when, order.progress, since=since) as exports:
        take = partial(
            periodic.take,
            order.store,
            Saved(query=order.query, forms=order.forms, app=program.bound.app),
            outage=Outage(order.query),
            exports=exports,
            progress=order.progress,
        )
        last = partial(periodic.last_taken, order.store, order.query)
        with Ticker(schedule, take, f"savepoints of {order.query}", since=last):
            yield


def _savepoint(
    program: Program, generation: Generation, ran: Ran, forms: Sequence[Form]
) -> Savepoint | None:
    """Return a savepoint of the end, if there is to be one."""
    order = program.order
    if not order.final_savepoint:
        return None
    return final_savepoint.savepoint(
        order.store,
        generation,
        Saved(forms=forms, app=program.bound.app),
        moved=ran.batches > 0,
        progress=order.progress,
    )
