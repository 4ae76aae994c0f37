"""`run`: run the current generation of a query, with periodic savepoints, maybe up to an end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from savepoints.checkpoint import position
from savepoints.config.schedule import parse_schedule
from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import (
    CheckpointDamagedError,
    QueryNotFoundError,
    SavepointsError,
    UsageError,
)
from savepoints.io import Location
from savepoints.model import FORMS, Form, Generation, KafkaOffsets, Savepoint
from savepoints.observe.outage import Outage
from savepoints.observe.recorder import recording
from savepoints.operations.rollback.next_checkpoint import checkpoint_of
from savepoints.operations.run import final_savepoint as run_final_savepoint
from savepoints.operations.run import periodic, wait_for_lease
from savepoints.operations.run import recover as recovery
from savepoints.operations.run.pause_watcher import Pauses
from savepoints.plan import Progress, silent
from savepoints.runtime import app as apps
from savepoints.runtime import (
    archive_first,
    bounded,
    compatibility,
    end_offsets,
)
from savepoints.runtime.app import App
from savepoints.runtime.archive_of import runner_of
from savepoints.runtime.bounded import Limits
from savepoints.runtime.runner import Ran, Runner
from savepoints.runtime.stop_signals import stopped_by_signals
from savepoints.runtime.ticker import Ticker
from savepoints.sources.combined import availability
from savepoints.store import bindings
from savepoints.store.batch_log import Recorder
from savepoints.store.locks import journal
from savepoints.store.locks.lease import Lease
from savepoints.store.root import Store

if TYPE_CHECKING:
    from savepoints.sources.kafka.offsets import Ranges


def run(
    store: Store,
    query: str,
    *,
    settings: Settings,
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
    """Run the query until it is stopped by a signal, or has reached its end; then take a savepoint.

    While the query is paused (`savepoints pause`) the run waits, holding only its paused lease, and
    goes on in whatever generation is the current one then. A run that has an end ends instead.

    With an end the query runs by planned batches of at most `max_offsets_per_trigger` records of a
    source each, and stops exactly there. Where nothing is left to do Spark is not even started.

    Args:
        store: Where the query's generations and savepoints are.
        query: Its name in the settings.
        settings: What the application is bound to.
        app: An application to run instead of the one in the settings, such as a fixed version.
        every: Interval or cron expression of periodic savepoints, instead of the one in the
            settings.
        until: Where to end: `latest`, an RFC 3339 time, the path of a JSON file of offsets, or the
            name of a savepoint. See `savepoints.runtime.end_offsets`.
        max_duration: No batch is begun when the query has been held for so long. A batch that runs
            is not interrupted: `max_offsets_per_trigger` is what bounds its length.
        max_records: End after exactly so many more records, counted by their offsets, or at the end
            of `until` if that is nearer; without `until`, at what Kafka has when the run begins.
        wait: How long to wait for another run, or another verb, that has the query.
        recover: Make a checkpoint that is gone or damaged anew from the newest good savepoint,
            outputs included. See `savepoints.operations.run.recover`.
        forms: Forms of the savepoints.
        final_savepoint: Whether there is to be one of the end; where nothing was run and there is
            one already, it is that.
        accept_state_names: Go on with restored state whose fields the program calls otherwise;
            gives up that aggregates of one type that changed places are found.
        progress: Told what happens.

    Returns:
        What was run since the last pause, and the savepoint of the end; None when nothing has been
        committed yet.

    Raises:
        UsageError: If the query is not in the settings, the application has another name, or the
            end cannot be reached.
        QueryRunningError: If it runs already.
        LockedError: If another verb has the query.
        UnfinishedOperationError: If an operation on it was interrupted.
        CheckpointDamagedError: If its checkpoint is gone or damaged.
        SourceDataGoneError: If Kafka no longer has what comes next.
        LayoutChangedError: If fields of the restored state have other names in the program.
        SavepointsError: If the query fails.
    """
    if max_records is not None and max_records < 1:
        raise UsageError(f"{max_records} is not a number of records", hint="give 1 or more")

    begun_in = store.generations.find_current(query)

    def resolve() -> _RunRequest:
        _refuse_ended(store, query)
        if app is not None:
            _refuse_promoted(store, query, app, since=begun_in)
        now = bindings.complete(store, settings)
        bound = _bound(now, query, app)
        return _RunRequest(
            store=store,
            query=query,
            settings=now,
            bound=bound,
            application=apps.load_for(query, bound),
            every=every or bound.every,
            until=until,
            max_duration=max_duration,
            max_records=max_records,
            wait=wait,
            forms=tuple(forms),
            final_savepoint=final_savepoint,
            accept_state_names=accept_state_names,
            progress=progress,
        )

    request = resolve()
    recovered = last_segment = None
    recovers = recover
    pauses = Pauses(
        store,
        query,
        tell=settings.hooks,
        idles=request.is_endless,
        signals=stopped_by_signals,
        progress=progress,
    )
    with pauses:
        while pauses.wait_until_wanted():
            if recovers:
                recovered, recovers = request.recover_if_damaged(), False
            try:
                segment = request.run_segment(pauses, resolve)
            except CheckpointDamagedError as error:
                if not recover or recovered is not None:
                    raise
                recovered = recovery.recover(
                    store, query, error.message, settings=settings, progress=progress
                )
                continue
            if segment is not None:
                last_segment = segment
                if not (pauses.pause_requested and request.is_endless):
                    break
    ran, last = last_segment or (request.nothing_as_paused(), None)
    return replace(ran, recovered_from=recovered), last


@dataclass(frozen=True)
class _RunRequest:
    """What was asked for; see `run`."""

    store: Store
    query: str
    settings: Settings
    bound: QuerySettings
    application: App
    every: str | None
    until: str | None
    max_duration: timedelta | None
    max_records: int | None
    wait: timedelta | None
    forms: tuple[Form, ...]
    final_savepoint: bool
    accept_state_names: bool
    progress: Progress

    def recover_if_damaged(self) -> str | None:
        with wait_for_lease.hold(self.store, self.query, "run", self.wait, self.progress):
            pass  # A rollback takes the lease itself.
        return recovery.if_damaged(
            self.store, self.query, self.bound, settings=self.settings, progress=self.progress
        )

    @property
    def is_endless(self) -> bool:
        return self.until is None and self.max_duration is None and self.max_records is None

    def run_segment(
        self, pauses: Pauses, resolve: Callable[[], _RunRequest]
    ) -> tuple[Ran, Savepoint | None] | None:
        """Run once, from taking the lease to the savepoint of the end; None if paused before.

        While the lease was waited for the query may have got another program and another
        generation, which belong together: so what is run is found out under it.
        """
        with pauses.hold(self.wait) as held:
            if held is None:
                return None
            ran, last, error = resolve()._run(pauses, held)
            if pauses.pause_requested:
                pauses.hand_over()
        if pauses.pause_requested:
            pauses.drained(last, error)
        return ran, last

    def _run(self, pauses: Pauses, held: Lease) -> tuple[Ran, Savepoint | None, str]:
        """Run once under the lease; the text says why there is no savepoint of a pause."""
        schedule = parse_schedule(self.every) if self.every else None
        parameters = {
            "app": self.bound.app,
            "every": self.every,
            "until": self.until,
            "max_duration": self.max_duration,
            "max_records": self.max_records,
        }
        with recording(
            self.store,
            "run",
            query=self.query,
            parameters=parameters,
            hooks=self.settings.hooks,
        ) as noted:
            begun = time.monotonic()
            limits = Limits(self.max_records, _after(begun, self.max_duration))
            journal.refuse_unfinished(self.store.root, self.query)
            generation = self._generation()
            pauses.resumed(generation.generation)
            recovery.require_present(self.store, generation, self.bound)
            target = self._target()
            origin = compatibility.origin(self.store, generation)
            restored = origin is not None and compatibility.is_restored(generation, origin)
            if origin is not None and (restored or target is not None):
                compatibility.require_same_topics(
                    generation,
                    origin,
                    self.settings.kafka,
                    self.progress,
                    tuple(self.bound.archives.values()),
                )
            if target is not None and self._is_reached(generation, target):
                ran = self._nothing(generation, target, time.monotonic() - begun)
            else:
                runner = self._runner(generation, restored=restored)
                outage = Outage(self.query)
                ticker = (
                    Ticker(schedule, partial(self._take, outage), f"savepoints of {self.query}")
                    if schedule
                    else nullcontext()
                )

                def end() -> None:
                    pauses.stop()
                    runner.stop()

                recorder = self._recorder(generation)

                def check() -> None:
                    held.check()
                    recorder.committed(runner.last_batch)

                with stopped_by_signals(end), pauses.watching(runner.stop), ticker, recorder:
                    self.progress(f"running {self.bound.app}, generation {generation.generation}")
                    with self.store.scratch() as scratch:
                        ran = (
                            archive_first.run_on(
                                runner,
                                scratch=scratch,
                                limits=limits,
                                check=check,
                                progress=self.progress,
                            )
                            if target is None
                            else bounded.run_to(
                                runner,
                                *target,
                                scratch=scratch,
                                limits=limits,
                                check=check,
                                progress=self.progress,
                            )
                        )
            if pauses.pause_requested and ran.ended == "drained":
                ran = replace(ran, ended="paused")
            ended = f"{ran.ended} after {ran.batches} batches, {ran.input_rows} rows"
            self.progress(ended)
            noted.note(message=ended, rows=ran.input_rows, seconds=ran.seconds)
            try:
                return ran, self._savepoint(generation, ran), ""
            except SavepointsError as error:
                if not pauses.pause_requested:
                    raise
                self.progress(f"no savepoint of the pause: {error}")
                return ran, None, error.message

    def _generation(self) -> Generation:
        """Return the current generation; a query that never ran begins its first."""
        generations = self.store.generations
        current = generations.find_current(self.query)
        if current is not None:
            return current
        number = generations.next_number(self.query)
        checkpoint = checkpoint_of(self.bound.checkpoints, self.query, number)
        return generations.begin(self.query, number, checkpoint, by="run")

    def _target(self) -> tuple[KafkaOffsets, Ranges] | None:
        """Return where to end and what Kafka has; None for a run without an end."""
        if self.until is None and self.max_records is None:
            return None
        topics = sorted(
            {self.bound.topics.get(n, i.topic) for n, i in self.application.inputs.items()}
        )
        archives = tuple(self.bound.archives.values())
        found = availability.ranges(topics, self.settings.kafka, archives)
        until = self.until or "latest"
        return (
            end_offsets.resolve(
                self.store,
                until,
                query=self.query,
                ranges=found,
                settings=self.settings.kafka,
                archives=archives,
            ),
            found,
        )

    def _is_reached(self, generation: Generation, target: tuple[KafkaOffsets, Ranges]) -> bool:
        now = position.read(Location.of(generation.checkpoint))
        return bounded.is_reached(now, *target)

    def nothing_as_paused(self) -> Ran:
        """Return what was run of a query that is paused; generation 0 if it has none yet."""
        current = self.store.generations.find_current(self.query)
        number = current.generation if current else 0
        return Ran(self.query, number, None, None, 0, 0, 0.0, "paused")

    def _nothing(
        self, generation: Generation, target: tuple[KafkaOffsets, Ranges], seconds: float
    ) -> Ran:
        return Ran(
            self.query,
            generation.generation,
            None,
            None,
            0,
            0,
            seconds,
            "caught_up",
            caught_up=True,
            remaining_records=0,
            offsets=target[0],
        )

    def _runner(self, generation: Generation, *, restored: bool) -> Runner:
        """Start Spark, and compare the program with the state that it goes on with."""
        from savepoints.spark.session import session

        self.progress("starting Spark")
        checkpoint = Location.of(generation.checkpoint)
        runner = runner_of(
            session(self.settings, f"savepoints run {self.query}"),
            self.store,
            self.application,
            self.bound,
            self.settings,
            generation=generation.generation,
            checkpoint=checkpoint,
            position=position.read(checkpoint).offsets,
            progress=self.progress,
        )
        if restored and not self.accept_state_names:
            self.progress("comparing the program with the restored state")
            compatibility.require_layout(self.store, runner, checkpoint, self.bound.app)
        return runner

    def _recorder(self, generation: Generation) -> Recorder:
        return Recorder(
            self.store.root, self.query, generation.generation, Location.of(generation.checkpoint)
        )

    def _take(self, outage: Outage) -> None:
        """Take a periodic savepoint."""
        periodic.take(
            self.store,
            query=self.query,
            settings=self.settings,
            forms=self.forms,
            app=self.bound.app,
            outage=outage,
            progress=self.progress,
        )

    def _savepoint(self, generation: Generation, ran: Ran) -> Savepoint | None:
        """Return a savepoint of the end."""
        if not self.final_savepoint:
            return None
        return run_final_savepoint.savepoint(
            self.store,
            generation,
            settings=self.settings,
            forms=self.forms,
            app=self.bound.app,
            moved=ran.batches > 0,
            progress=self.progress,
        )


def _after(begun: float, duration: timedelta | None) -> float | None:
    return None if duration is None else begun + duration.total_seconds()


def _refuse_ended(store: Store, query: str) -> None:
    """Refuse a query whose last generation has ended without another, as that of a promoted fork.

    Raises:
        QueryNotFoundError: Says why it ended.
    """
    generations = store.generations.all(query)
    if generations and all(one.status != "current" for one in generations):
        raise QueryNotFoundError(
            f"the query {query} has ended: {generations[0].ended_why}",
            hint=f"make another one of what it was: savepoints list --query {query}, then "
            "savepoints fork ID NAME",
            query=query,
        )


def _refuse_promoted(store: Store, query: str, app: str, *, since: Generation | None) -> None:
    """Refuse to go on with a program that was given when the query had another generation.

    Raises:
        UsageError: If a fork has taken over since the run began.
    """
    now = store.generations.find_current(query)
    if now is None or since is None or now.generation == since.generation:
        return
    if now.begun_by == "promote":
        raise UsageError(
            f"a fork has taken over as generation {now.generation} of {query} since this run was "
            f"begun with --app {app}",
            hint=f"run the fork's program: savepoints run {query}; or say --app again",
            query=query,
        )


def _bound(settings: Settings, query: str, app: str | None) -> QuerySettings:
    found = settings.bound(query, "it cannot be run")
    return found if app is None else found.model_copy(update={"app": app})
