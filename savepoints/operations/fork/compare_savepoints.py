"""Comparing queries that stand at the same offsets: outputs, state and metrics at savepoints.

Outputs are read at the versions that the savepoints have pinned, which belong to their batches, so
that a query that goes on meanwhile changes nothing about what is found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from savepoints.checkpoint.logs.kafka_position import by_partition, kafka_offsets, lowest_offsets
from savepoints.config.settings import Settings
from savepoints.errors import IncompatibleError, NotAlignedError, UsageError
from savepoints.model import OutputVersion, Savepoint
from savepoints.operations.fork.verdict import (
    Comparison,
    MetricDifference,
    QueryPair,
    RunCost,
    StateDifference,
    Variant,
    worst,
)
from savepoints.operations.inspect.diff import diff
from savepoints.operations.savepoint import history
from savepoints.outputs.compare import by_key, sql_metrics
from savepoints.outputs.compare.by_key import OutputDifference
from savepoints.outputs.compare.sql_metrics import Figure
from savepoints.plan import Progress, silent
from savepoints.runtime import app as apps
from savepoints.spark.versions import SparkVersion
from savepoints.store import bindings
from savepoints.store.root import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE = 10


@dataclass(frozen=True)
class RunFacts:
    """What is known of how the queries came to where they stand."""

    costs: Mapping[str, RunCost] = field(default_factory=dict)
    same_batches: bool | None = None
    notes: tuple[str, ...] = ()


def compare_at(
    store: Store,
    savepoints: Sequence[str],
    *,
    keys: Mapping[str, Sequence[str]] | None = None,
    metrics: Mapping[str, str] | None = None,
    sample: int = SAMPLE,
    state: bool = True,
    ran: RunFacts = RunFacts(),
    progress: Progress = silent,
) -> Comparison:
    """Compare queries at savepoints of the same offsets; nothing is run and nothing is changed.

    Args:
        savepoints: Their names, that of the baseline first; at most one of each query.

    Raises:
        IncompatibleError: If outputs cannot be compared, or Spark cannot read some state.
    """
    settings = bindings.complete(store)
    found = [history.named_as_bound(store.catalog.find(one), settings) for one in savepoints]
    _require_comparable(found)
    wanted = {**store.settings.compare.metrics, **(metrics or {})}
    return Comparing(store, found, keys or {}, wanted, sample, state, ran, progress).comparison()


def metric_differences(
    spark: SparkSession,
    before: Sequence[OutputVersion],
    after: Sequence[OutputVersion],
    metrics: Mapping[str, str],
) -> tuple[MetricDifference, ...]:
    """Measure metrics over the outputs of several queries, and over those of their forks.

    Args:
        metrics: SQL over the outputs by name; it sees all of one side.

    Raises:
        UsageError: If one does not give a number, or two outputs of one side have the same name.
    """
    figures = [sql_metrics.measure(spark, outputs, metrics) for outputs in (before, after)]
    return tuple(MetricDifference.of(name, *(one[name] for one in figures)) for name in metrics)


def _require_comparable(savepoints: Sequence[Savepoint]) -> None:
    if len({one.query for one in savepoints}) < max(2, len(savepoints)):
        raise UsageError(
            "compare needs savepoints of two or more different queries, but got savepoints "
            f"of: {', '.join(one.query for one in savepoints)}",
            hint="fork a second query from a savepoint: savepoints fork SAVEPOINT NAME",
        )
    first = savepoints[0]
    for other in savepoints[1:]:
        if _position(first) != _position(other):
            raise NotAlignedError(
                f"savepoints at different offsets cannot be compared: {first.query} is at "
                f"{'; '.join(map(str, first.cut.offsets))} in {first.id}, and {other.query} is "
                f"at {'; '.join(map(str, other.cut.offsets))} in {other.id}",
                hint="run both queries to the same end point and compare them there: savepoints "
                f"compare {first.query} {other.query}",
                savepoints=[first.id, other.id],
            )


def _position(savepoint: Savepoint) -> tuple[object, list[str]]:
    """Return where a query stands, whatever the order in which its program counts the sources.

    Of a topic that two sources have read up to different offsets, both count.
    """
    found = [(one, kafka_offsets(one)) for one in savepoint.cut.offsets]
    topics = {part for _, offsets in found for part in by_partition(offsets or {})}
    return topics, sorted(str(one) for one, offsets in found if offsets is None)


@dataclass(frozen=True)
class Comparing:
    """A comparison of savepoints of which the caller knows that they stand at equal cuts.

    Queries that read the same through tables of their own have other positions there.

    Attributes:
        savepoints: That of the baseline first.
        metrics: SQL over the outputs by name; those of the settings are not added.
    """

    store: Store
    savepoints: Sequence[Savepoint]
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    sample: int = SAMPLE
    state: bool = True
    ran: RunFacts = RunFacts()
    progress: Progress = silent

    @cached_property
    def settings(self) -> Settings:
        """Completed by what the store has of its queries."""
        return bindings.complete(self.store)

    def comparison(self) -> Comparison:
        """Compare them.

        Raises:
            IncompatibleError: If outputs cannot be compared, or Spark cannot read some state.
        """
        from savepoints.spark.session import session

        keys = self._keys()
        self.progress("comparing the savepoints (starts Spark if it is not running)")
        spark = session(self.settings, f"savepoints compare {self.savepoints[0].query}")
        figures = [sql_metrics.measure(spark, one.outputs, self.metrics) for one in self.savepoints]
        variants = tuple(map(self._variant, self.savepoints, figures))
        pairs = tuple(
            self._pair(spark, one, keys, figures[0], own).judged(self.settings.compare.thresholds)
            for one, own in zip(self.savepoints[1:], figures[1:], strict=True)
        )
        return Comparison(
            worst(one.verdict for one in pairs),
            lowest_offsets(self.savepoints[0].cut.offsets),
            self.ran.same_batches,
            self.ran.notes,
            variants,
            pairs,
        )

    def _keys(self) -> dict[str, tuple[str, ...]]:
        """Return what identifies a row of each output of the baseline, empty for whole rows."""
        first = self.savepoints[0]
        bound = self.settings.queries.get(first.query)
        program = bound.app if bound else first.application
        declared = apps.load(program).outputs if program else {}
        keys = {
            one.name: declared[one.name].key if one.name in declared else ()
            for one in first.outputs
        }
        if unknown := sorted(self.keys.keys() - keys.keys()):
            raise UsageError(
                f"{first.query} has no output {unknown[0]!r}",
                hint=f"name one of its outputs: {', '.join(keys)}"
                if keys
                else "omit --key, because the query has no outputs",
            )
        return {**keys, **{name: tuple(one) for name, one in self.keys.items()}}

    def _variant(self, savepoint: Savepoint, figures: Mapping[str, Figure]) -> Variant:
        begun_from = next(
            (
                one.begun_from
                for one in self.store.generations.all(savepoint.query)
                if one.generation == savepoint.generation
            ),
            None,
        )
        return Variant(
            savepoint.query,
            savepoint.generation,
            savepoint.application,
            begun_from,
            savepoint.id,
            savepoint.cut.batch_id,
            savepoint.cut.watermark_ms,
            _total([one.rows for one in savepoint.operators]),
            _total([one.state_bytes for one in savepoint.operators]),
            {name: None if one is None else float(one) for name, one in figures.items()},
            self.ran.costs.get(savepoint.query),
        )

    def _pair(
        self,
        spark: SparkSession,
        other: Savepoint,
        keys: Mapping[str, tuple[str, ...]],
        figures: Mapping[str, Figure],
        own: Mapping[str, Figure],
    ) -> QueryPair:
        first = self.savepoints[0]
        before = {one.name: one for one in first.outputs}
        after = {one.name: one for one in other.outputs}
        return QueryPair(
            first.query,
            other.query,
            tuple(
                self._output(spark, before[name], after[name], keys[name])
                for name in before
                if name in after
            ),
            tuple(name for name in after if name not in before),
            tuple(name for name in before if name not in after),
            self._state(first, other) if self.state else None,
            tuple(MetricDifference.of(name, figures[name], own[name]) for name in figures),
            self._seconds_ratio(first.query, other.query),
        )

    def _output(
        self, spark: SparkSession, before: OutputVersion, after: OutputVersion, key: tuple[str, ...]
    ) -> OutputDifference:
        self.progress(f"comparing {before.uri} with {after.uri}")
        bound = self.settings.queries.get(self.savepoints[0].query)
        return by_key.compare_outputs(
            spark, before, after, key=key, sample=self.sample,
            own_rows=bound.own_rows.get(before.name) if bound else None,
        )  # fmt: skip

    def _state(self, first: Savepoint, other: Savepoint) -> StateDifference:
        found = diff(self.store, first.id, other.id, sample=self.sample, progress=self.progress)
        only = {
            (one.operator_id, one.operator_name)
            for one in (*found.operators_added, *found.operators_removed)
        }
        rows = _total(
            [
                *(one.rows.different_rows for one in found.variables),
                *(
                    one.rows
                    for savepoint in (first, other)
                    for one in savepoint.operators
                    if (one.operator_id, one.name) in only
                ),
            ]
        )
        totals = [_total([one.rows for one in sp.operators]) for sp in (first, other)]
        known = [one for one in totals if one is not None]
        share = None if rows is None or len(known) < len(totals) else rows / (max(known) or 1)
        return StateDifference(rows, share, not only and not rows, found)

    def _seconds_ratio(self, first: str, other: str) -> float | None:
        before, after = (self.ran.costs.get(one) for one in (first, other))
        if before is None or after is None or not before.seconds:
            return None
        return after.seconds / before.seconds


def require_readable_state(command: str) -> None:
    """Refuse to compare state with a Spark that cannot read any, before anything is run.

    Args:
        command: What was asked for, as it is typed.

    Raises:
        IncompatibleError: If the installed Spark is older than 4.0.
    """
    installed = SparkVersion.installed()
    if installed is not None and not installed.reads_rows:
        raise IncompatibleError(
            f"Spark {installed} cannot read state, so the state cannot be compared",
            hint=f"compare outputs and metrics only: {command} --no-state",
        )


def _total(numbers: Sequence[int | None]) -> int | None:
    known = [one for one in numbers if one is not None]
    return sum(known) if len(known) == len(numbers) else None
