"""`compare`: run queries to the same offsets in the same batches, and compare what came of it.

Each query runs bounded, under its own lease, and leaves a savepoint of the end; what is compared
are these savepoints (`savepoints.operations.fork.compare_savepoints`). Killed anywhere and run
again it goes on where the queries are: one that is behind runs the batches of the one that is
furthest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.config.settings import Settings
from savepoints.errors import (
    NoCommittedBatchError,
    SavepointNotFoundError,
    StoppedError,
    UsageError,
)
from savepoints.observe.recorder import recording
from savepoints.operations.fork import compare_savepoints
from savepoints.operations.fork.compare_savepoints import SAMPLE
from savepoints.operations.fork.compared_queries import (
    ComparedQuery,
    ComparisonRun,
    common_archives,
    compared_query,
    other_settings,
    ranges_of,
)
from savepoints.operations.fork.same_batches import Approach
from savepoints.operations.fork.verdict import Comparison, RunCost
from savepoints.operations.run import final_savepoint, recover
from savepoints.operations.savepoint.create import Saved
from savepoints.plan import Plan, Progress, Step, silent
from savepoints.runtime import compatibility
from savepoints.runtime.archive_of import runner_of
from savepoints.runtime.bounded import end_offsets
from savepoints.runtime.bounded.bounded_run import KafkaEnd
from savepoints.runtime.inputs import Inputs
from savepoints.runtime.runner import Runner
from savepoints.runtime.stop_signals import stopped_by_signals
from savepoints.sources.kafka.offsets import count
from savepoints.store import bindings
from savepoints.store.locks import journal, lease
from savepoints.store.locks.lease import Lease
from savepoints.store.root import Store
from savepoints.texts import count_text

if TYPE_CHECKING:
    from savepoints.sources.kafka.offsets import Ranges


@dataclass(frozen=True)
class Run:
    """What one of the queries is going to run.

    Attributes:
        query: Its name.
        generation: Its current generation.
        application: Its program.
        from_batch: Its newest committed batch, None when it has run nothing.
        records: Records that it has to read.
    """

    query: str
    generation: int
    application: str
    from_batch: int | None
    records: int


@dataclass(frozen=True)
class ComparePlan(Plan):
    """What `compare` is going to do.

    Attributes:
        runs: The queries, the baseline first.
        ends: Where all of them end: next-to-read offset by topic and partition.
        max_offsets_per_trigger: Most records of a source in one batch, for all of them.
        same_batches: Whether their batches will have the same boundaries.
        keys: By output, the columns that identify a row, where the program does not declare them.
        metrics: By name, SQL over the outputs, besides the metrics of the settings.
        sample: How many rows of each difference to give.
        state: Whether the state is compared.
    """

    runs: tuple[Run, ...]
    ends: KafkaOffsets
    max_offsets_per_trigger: int | None
    same_batches: bool
    keys: Mapping[str, tuple[str, ...]]
    metrics: Mapping[str, str]
    sample: int
    state: bool


def plan(
    store: Store,
    queries: Sequence[str],
    *,
    until: str = "latest",
    keys: Mapping[str, Sequence[str]] | None = None,
    metrics: Mapping[str, str] | None = None,
    sample: int = SAMPLE,
    state: bool = True,
) -> ComparePlan:
    """Find out where the queries are, and where all of them are to end; nothing is run.

    Raises:
        QueryNotFoundError: If the store has no such query.
        QueryRunningError: If one is running.
        LockedError: If another verb has one.
        SourceDataGoneError: If Kafka no longer has what comes next.
        IncompatibleError: If the state is to be compared, and this Spark cannot read any.
    """
    store = store.snapshot()
    settings = bindings.complete(store)
    if len(set(queries)) < max(2, len(queries)):
        raise UsageError(
            f"compare needs two or more different queries, but got: {', '.join(queries) or 'none'}",
            hint="fork a second query from a savepoint: savepoints fork SAVEPOINT NAME",
        )
    if state:
        compare_savepoints.require_readable_state(f"savepoints compare {' '.join(queries)}")
    for query in queries:
        store.generations.current(query)
        lease.refuse_held(store.root, query)
        journal.refuse_unfinished(store.root, query)
    compared_queries = [compared_query(store, query, settings) for query in queries]
    found = ranges_of(compared_queries, settings.kafka)
    archives = common_archives(compared_queries)
    end = KafkaEnd(_ends(store, until, queries[0], found, settings, archives), found)
    for compared in compared_queries:
        end.is_reached(compared.position)  # Refuses ends that cannot be reached.
    comparison = ComparisonRun(compared_queries, end)
    runs = tuple(
        Run(
            compared.query,
            compared.generation.generation,
            compared.bound.app,
            compared.position.committed,
            count(end.reached(compared.position), end.ends),
        )
        for compared in compared_queries
    )
    problems = comparison.problems
    return ComparePlan(
        verb="compare",
        query=queries[0],
        steps=(
            *(Step(f"run {one.query}", _will_run(one)) for one in runs),
            Step("compare", "compare outputs, metrics" + (" and state" if state else "")),
        ),
        warnings=(*problems, *other_settings(compared_queries)),
        runs=runs,
        ends=end.ends,
        max_offsets_per_trigger=compared_queries[0].bound.max_offsets_per_trigger,
        same_batches=not problems,
        keys={name: tuple(one) for name, one in (keys or {}).items()},
        metrics=dict(metrics or {}),
        sample=sample,
        state=state,
    )


def execute(plan: ComparePlan, store: Store, *, progress: Progress = silent) -> Comparison:
    """Run the queries to the end and compare them.

    Raises:
        QueryRunningError: If a query is running.
        LockedError: If another verb has one.
        SourceDataGoneError: If Kafka no longer has what comes next.
        LayoutChangedError: If fields of restored state have other names in its program.
        IncompatibleError: If outputs or state cannot be compared.
        StoppedError: If a signal has ended it.
    """
    settings = bindings.complete(store)
    names = [one.query for one in plan.runs]
    parameters = {"queries": " ".join(names), "ends": plan.ends}
    with (
        recording(store, "compare", query=plan.query, parameters=parameters) as noted,
        ExitStack() as stack,
    ):
        held = {
            name: stack.enter_context(lease.hold(store.root, name, "compare")) for name in names
        }
        for name in names:
            journal.refuse_unfinished(store.root, name)
        found = _Compare(plan, store, settings, held, progress).run()
        noted.note(message=f"{found.verdict}: {', '.join(names)}")
    return found


@dataclass(frozen=True)
class _Compare:
    """One comparison under way."""

    plan: ComparePlan
    store: Store
    settings: Settings
    held: Mapping[str, Lease]
    progress: Progress

    def run(self) -> Comparison:
        compared_queries = [
            compared_query(self.store, one.query, self.settings) for one in self.plan.runs
        ]
        end = KafkaEnd(self.plan.ends, ranges_of(compared_queries, self.settings.kafka))
        comparison = ComparisonRun(compared_queries, end)
        # Known before anything moves: running changes what there is to follow.
        approaches, problems = comparison.approaches, comparison.problems
        costs = {}
        for compared in compared_queries:
            cost = self._run_query(compared, approaches[compared.query], end)
            if cost is not None:
                costs[compared.query] = cost
        savepoints = [
            self._savepoint(compared, moved=compared.query in costs)
            for compared in compared_queries
        ]
        return compare_savepoints.compare_at(
            self.store,
            savepoints,
            keys=self.plan.keys,
            metrics=self.plan.metrics,
            sample=self.plan.sample,
            state=self.plan.state,
            ran=compare_savepoints.RunFacts(
                costs,
                not problems if costs else None,
                (*(problems if costs else ()), *other_settings(compared_queries)),
            ),
            progress=self.progress,
        )

    def _run_query(
        self, compared: ComparedQuery, approach: Approach, end: KafkaEnd
    ) -> RunCost | None:
        """Run one query to the end; None when it is there already."""
        recover.require_present(self.store, compared.generation, compared.bound)
        compatibility.require_same_topics(
            self.store,
            compared.generation,
            self.settings.kafka,
            self.progress,
            tuple(compared.bound.archives.values()),
        )
        if end.is_reached(compared.position):
            return None
        runner = self._runner(compared)
        compatibility.ProgramLayout(self.store, self.progress).require_once(
            runner, compared.bound.app, compared.generation.begun_from
        )
        self.progress(f"running {compared.query} to the end offsets")
        with self.store.scratch() as scratch, stopped_by_signals(runner.stop):
            ran = end.run(
                runner,
                scratch=scratch,
                through=approach.through,
                check=self.held[compared.query].check,
                progress=lambda line: self.progress(f"{compared.query}: {line}"),
            )
        if not ran.caught_up:
            raise StoppedError(
                f"the comparison was stopped while {compared.query} had "
                f"{count_text(ran.remaining_records or 0, 'record')} left to read",
                hint="run the command again: it continues where each query stopped",
                query=compared.query,
            )
        return RunCost.of(ran)

    def _runner(self, compared: ComparedQuery) -> Runner:
        from savepoints.spark.session import session

        most = self.plan.max_offsets_per_trigger
        bound = compared.bound.model_copy(update={"max_offsets_per_trigger": most})
        return runner_of(
            session(self.settings, f"savepoints compare {compared.query}"),
            self.store,
            Inputs(compared.application, bound, self.settings.kafka),
            generation=compared.generation.generation,
            checkpoint=compared.checkpoint,
            position=compared.position.offsets,
        )

    def _savepoint(self, compared: ComparedQuery, *, moved: bool) -> str:
        taken = final_savepoint.savepoint(
            self.store,
            compared.generation,
            Saved(app=compared.bound.app),
            moved=moved,
            progress=self.progress,
        )
        if taken is None:
            raise NoCommittedBatchError(
                f"{compared.query} has not committed a batch, so there is nothing to compare",
                hint="choose a later end with --until: the topics have no records before the end "
                "of the comparison",
                query=compared.query,
            )
        return taken.id


def _ends(
    store: Store,
    until: str,
    query: str,
    ranges: Ranges,
    settings: Settings,
    archives: Collection[str],
) -> KafkaOffsets:
    kafka = settings.kafka
    try:
        return end_offsets.resolve(
            store, until, query=query, ranges=ranges, settings=kafka, archives=archives
        )
    except SavepointNotFoundError:
        # That of the query of which the forks are, or of another fork.
        savepoint = store.catalog.find(until)
        return end_offsets.resolve(
            store, savepoint.id, query=savepoint.query, ranges=ranges, settings=kafka
        )


def _will_run(one: Run) -> str:
    if not one.records:
        return f"finish the current batch of {one.query}, if any: it has already reached the end"
    since = "the beginning" if one.from_batch is None else f"batch {one.from_batch}"
    return (
        f"run {one.query} ({one.application}) on from {since}: {count_text(one.records, 'record')}"
    )
