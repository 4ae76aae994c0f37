"""`pipeline compare`: each query of a forked pipeline beside its fork, at equal cuts.

All of them are run to equal cuts, level by level, and leave a savepoint there; the savepoints of
each pair are compared. Killed anywhere and run again it goes on where the queries are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from savepoints.config.settings import Settings
from savepoints.errors import NoCommittedBatchError, UsageError
from savepoints.model import Savepoint
from savepoints.moments import parse_rfc3339, utc_now
from savepoints.observe.recorder import recording
from savepoints.operations.fork import compare_savepoints
from savepoints.operations.fork.compare_savepoints import SAMPLE, Comparing, RunFacts
from savepoints.operations.fork.verdict import (
    Comparison,
    ComparisonVerdict,
    MetricDifference,
    RunCost,
    judge_metrics,
    worst,
)
from savepoints.operations.pipeline import standstill
from savepoints.operations.pipeline_fork import forked_pairs
from savepoints.operations.pipeline_fork.equal_cuts import LATEST, EqualCuts
from savepoints.operations.pipeline_fork.forked_pairs import ForkedPair
from savepoints.operations.run import final_savepoint
from savepoints.operations.savepoint.create import Saved
from savepoints.outputs.compare import sql_metrics
from savepoints.plan import Plan, Progress, Step, silent
from savepoints.store import bindings
from savepoints.store.locks import journal, lease
from savepoints.store.root import Store

VERB = "pipeline compare"
_OWN_BATCHES = (
    "each query read its input in its own batches; results that depend on where batches end, "
    "such as which rows come after the watermark, may differ for that reason"
)


@dataclass(frozen=True)
class PipelineComparePlan(Plan):
    """What `pipeline compare` is going to do.

    Attributes:
        name: Suffix of the forks' names.
        pairs: Each query with its fork, writers before readers.
        until: The end up to which both read: `latest` or a time.
        sample: How many rows of each difference to give.
        state: Whether the state is compared.
    """

    name: str
    pairs: tuple[ForkedPair, ...]
    until: str
    sample: int
    state: bool


@dataclass(frozen=True)
class PipelineComparison:
    """The result of comparing a pipeline with its fork.

    Attributes:
        verdict: The worst of all levels and metrics: `same`, `within` or `different`.
        levels: Each query beside its fork, writers before readers.
        metrics: The metrics of the settings, over the outputs of all queries and of all forks.
        reasons: Which metrics differ, in words, each with its threshold.
    """

    verdict: ComparisonVerdict
    levels: tuple[Comparison, ...]
    metrics: tuple[MetricDifference, ...] = ()
    reasons: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values; numbers are exact."""
        return dataclasses.asdict(self)


def plan(
    store: Store,
    query: str,
    name: str,
    *,
    until: str = LATEST,
    sample: int = SAMPLE,
    state: bool = True,
) -> PipelineComparePlan:
    """Plan to compare queries with their forks; nothing is run.

    Args:
        query: One of the queries that were forked together.
        name: Suffix of the forks' names.
        until: The end up to which both read: `latest`, or a time (RFC 3339).
        sample: How many differing rows to give of each output.
        state: Whether to compare the state as well.

    Raises:
        NotFoundError: If there is no such fork.
        IncompatibleError: If the state is to be compared, and this Spark cannot read any.
        QueryRunningError: If one of the queries runs.
        UsageError: If the end is neither, or lies in the future, or the settings have metrics and
            several of the queries an output of one name.
    """
    if state:
        compare_savepoints.require_readable_state(f"savepoints pipeline compare {query} {name}")
    store = store.snapshot()
    _refuse_other_end(until)
    pairs = forked_pairs.find(store, query, name)
    settings = bindings.complete(store)
    for one in _queries(pairs):
        lease.refuse_held(store.root, one)
        journal.refuse_unfinished(store.root, one)
        settings.bound(one, "it cannot be run")
    metrics = settings.compare.metrics
    if metrics:
        sql_metrics.refuse_ambiguous(
            [output for pair in pairs for output in settings.queries[pair.live].outputs]
        )
    return PipelineComparePlan(
        verb=VERB,
        query=query,
        steps=tuple(
            step
            for pair in pairs
            for step in (
                Step("run", f"run {pair.live} and {pair.fork} to the same end: {_said(until)}"),
                Step("compare", f"compare {pair.fork} with {pair.live}"),
            )
        )
        + ((Step("measure", f"compare the metrics {', '.join(metrics)}"),) if metrics else ()),
        warnings=(),
        name=name,
        pairs=pairs,
        until=until,
        sample=sample,
        state=state,
    )


def execute(
    plan: PipelineComparePlan, store: Store, *, progress: Progress = silent
) -> PipelineComparison:
    """Run the queries to equal cuts and compare them.

    Raises:
        QueryRunningError: If a query is running.
        LockedError: If another verb has one.
        IncompatibleError: If a query reads both topics and tables, or outputs cannot be compared.
        UsageError: If a metric of the settings is not a number.
        SourceDataGoneError: If what comes next is gone.
    """
    settings = bindings.complete(store)
    queries = _queries(plan.pairs)
    parameters = {"queries": " ".join(queries), "until": plan.until}
    with (
        recording(store, VERB, query=plan.query, parameters=parameters) as noted,
        standstill.leases(store, queries, VERB) as held,
    ):
        for one in queries:
            journal.refuse_unfinished(store.root, one)
        cuts = EqualCuts(store, settings, plan.until, held, progress)
        found = _compared(plan, store, settings, cuts.meet(plan.pairs), progress)
        noted.note(message=f"{found.verdict}: {', '.join(queries)}")
    return found


def _compared(
    plan: PipelineComparePlan,
    store: Store,
    settings: Settings,
    costs: Mapping[str, RunCost],
    progress: Progress,
) -> PipelineComparison:
    """Compare queries and forks that stand at equal cuts."""
    saved = {
        one: _savepoint(store, one, settings.queries[one].app, progress)
        for one in _queries(plan.pairs)
    }
    levels = tuple(
        Comparing(
            store,
            [saved[pair.live], saved[pair.fork]],
            sample=plan.sample,
            state=plan.state,
            ran=RunFacts(costs, notes=(_OWN_BATCHES,)),
            progress=progress,
        ).comparison()
        for pair in plan.pairs
    )
    metrics = _metrics(plan, settings, saved)
    verdict, reasons = judge_metrics(metrics, settings.compare.thresholds)
    return PipelineComparison(
        worst([verdict, *(level.verdict for level in levels)]), levels, metrics, reasons
    )


def _metrics(
    plan: PipelineComparePlan, settings: Settings, saved: Mapping[str, Savepoint]
) -> tuple[MetricDifference, ...]:
    """Measure the metrics of the settings over the outputs of all queries, and of all forks."""
    from savepoints.spark.session import session

    return compare_savepoints.metric_differences(
        session(settings, f"savepoints {VERB} {plan.query}"),
        [output for pair in plan.pairs for output in saved[pair.live].outputs],
        [output for pair in plan.pairs for output in saved[pair.fork].outputs],
        settings.compare.metrics,
    )


def _savepoint(store: Store, query: str, app: str, progress: Progress) -> Savepoint:
    generation = store.generations.current(query)
    taken = final_savepoint.savepoint(
        store, generation, Saved(app=app), moved=False, progress=progress
    )
    if taken is None:
        raise NoCommittedBatchError(
            f"{query} has not committed a batch, so there is nothing to compare",
            hint=f"run it first: savepoints run {query} --until latest",
            query=query,
        )
    return taken


def _queries(pairs: tuple[ForkedPair, ...]) -> list[str]:
    return [one for pair in pairs for one in (pair.live, pair.fork)]


def _refuse_other_end(until: str) -> None:
    if until == LATEST:
        return
    if parse_rfc3339(until) > utc_now():
        raise UsageError(
            f"{until} is in the future, and records may still arrive before it",
            hint="choose a time in the past, or use --until latest",
        )


def _said(until: str) -> str:
    return "the newest data" if until == LATEST else f"everything that arrived before {until}"
