"""What a comparison of queries found, and whether that is `same`, `within` or `different`.

The first query is the baseline; each other one is compared with it. Pure values: nothing is read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from savepoints.config.settings import ThresholdSettings
from savepoints.operations.inspect.diff import Diff
from savepoints.outputs.compare.by_key import OutputDifference
from savepoints.outputs.compare.sql_metrics import Figure
from savepoints.result import Result
from savepoints.texts import count_text

if TYPE_CHECKING:
    from savepoints.runtime.runner import Ran

ComparisonVerdict = Literal["same", "within", "different"]

_ORDER: tuple[ComparisonVerdict, ...] = ("same", "within", "different")


@dataclass(frozen=True)
class RunCost:
    """The cost of running a query to the common end.

    Attributes:
        batches: Batches that were run.
        input_rows: Rows they read.
        seconds: From the start of the first to the end of the last; starting Spark is not in it.
        rows_per_second: Rows read in a second, None when none was read.
    """

    batches: int
    input_rows: int
    seconds: float
    rows_per_second: float | None

    @classmethod
    def of(cls, ran: Ran) -> RunCost:
        """Return what a run has cost."""
        rate = ran.input_rows / ran.seconds if ran.input_rows else None
        return cls(ran.batches, ran.input_rows, ran.seconds, rate)


@dataclass(frozen=True)
class Variant:
    """One of the queries that were compared.

    Attributes:
        query: Its name.
        generation: The generation that was compared.
        application: Its program, if known.
        begun_from: The savepoint that the generation began from, None for a fresh start.
        savepoint: The savepoint that was compared, of the common end.
        batch_id: Its batch.
        watermark_ms: Its watermark.
        state_rows: Rows of all its state, None when it was not saved in the canonical form.
        state_bytes: Bytes of all keys and values, None like `state_rows`.
        metrics: By name, their values; None where SQL gives null.
        cost: The cost of running it; None when nothing was run.
    """

    query: str
    generation: int
    application: str | None
    begun_from: str | None
    savepoint: str
    batch_id: int
    watermark_ms: int
    state_rows: int | None
    state_bytes: int | None
    metrics: Mapping[str, float | None]
    cost: RunCost | None


@dataclass(frozen=True)
class MetricDifference:
    """A metric of two queries.

    Attributes:
        name: Its name.
        before: Of the baseline, None when SQL gives null.
        after: Of the other query.
        difference: How much more the other has, None when one has none.
        relative: The difference as a fraction of the baseline's value, None when that is 0 or null.
    """

    name: str
    before: float | None
    after: float | None
    difference: float | None
    relative: float | None

    @classmethod
    def of(cls, name: str, before: Figure, after: Figure) -> MetricDifference:
        """Subtract exactly as long as no floating-point number is involved."""
        if before is None or after is None:
            return cls(name, _plain(before), _plain(after), None, None)
        if isinstance(before, float) or isinstance(after, float):
            floats = float(before), float(after)
            difference: float | Decimal = floats[1] - floats[0]
            base: float | Decimal = abs(floats[0])
        else:
            difference = Decimal(after) - Decimal(before)
            base = abs(Decimal(before))
        relative = 0.0 if not difference else float(difference) / float(base) if base else None
        return cls(name, float(before), float(after), float(difference), relative)

    @property
    def differs(self) -> bool:
        """Whether the values are not the same."""
        if self.difference is None:
            return (self.before is None) != (self.after is None)
        return self.difference != 0


@dataclass(frozen=True)
class StateDifference:
    """How the state of two queries differs.

    Attributes:
        rows: Rows that differ, including those of operators that only one query has; None if their
            number is unknown.
        share: The same as a fraction of the state rows of the query that has more; None likewise.
        equal: Whether no operator and no row differs.
        diff: The result of `diff` on the two savepoints.
    """

    rows: int | None
    share: float | None
    equal: bool
    diff: Diff

    @property
    def counted(self) -> str:
        """Say how many rows differ, and of how many, as far as that is known."""
        if self.rows is None:
            return "an unknown number of rows differ"
        of = f" of {round(self.rows / self.share):,}" if self.share else ""
        return f"{self.rows:,}{of} rows differ"


@dataclass(frozen=True)
class QueryPair:
    """How a query differs from the baseline.

    Attributes:
        before: Name of the baseline.
        after: Name of the other query.
        outputs: How each output that both have differs.
        outputs_added: Outputs that only the other query has.
        outputs_dropped: Outputs that only the baseline has.
        state: How the state differs, None when it was not compared.
        metrics: The metrics of both.
        seconds_ratio: How many times as long the other query ran, None when one did not run.
        verdict: The verdict on this pair.
        reasons: What differs, in words, each with its threshold.
    """

    before: str
    after: str
    outputs: tuple[OutputDifference, ...]
    outputs_added: tuple[str, ...]
    outputs_dropped: tuple[str, ...]
    state: StateDifference | None
    metrics: tuple[MetricDifference, ...]
    seconds_ratio: float | None
    verdict: ComparisonVerdict = "same"
    reasons: tuple[str, ...] = ()

    def judged(self, thresholds: ThresholdSettings) -> QueryPair:
        """Return the pair with its verdict."""
        verdict, reasons = _judgement(_findings(self, thresholds))
        return dataclasses.replace(self, verdict=verdict, reasons=reasons)


@dataclass(frozen=True)
class Comparison(Result):
    """The result of comparing queries at the same offsets.

    Attributes:
        verdict: The worst of all pairs: `same`, `within` (the thresholds of the settings) or
            `different`.
        offsets: Their positions: next-to-read offset by topic and partition.
        same_batches: Whether this comparison ran all of them in batches with the same boundaries;
            None when it ran nothing.
        notes: Remarks, such as why batches are not the same.
        variants: The queries, the baseline first.
        pairs: Each other query against the baseline.
    """

    verdict: ComparisonVerdict
    offsets: Mapping[str, Mapping[int, int]]
    same_batches: bool | None
    notes: tuple[str, ...]
    variants: tuple[Variant, ...]
    pairs: tuple[QueryPair, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values; numbers are exact."""
        return dataclasses.asdict(self)


def worst(verdicts: Iterable[ComparisonVerdict]) -> ComparisonVerdict:
    """Return the worst of several verdicts, `same` of none."""
    return max(verdicts, key=_ORDER.index, default="same")


def judge_metrics(
    metrics: Sequence[MetricDifference], thresholds: ThresholdSettings
) -> tuple[ComparisonVerdict, tuple[str, ...]]:
    """Return the verdict on metrics alone, and what differs, in words."""
    return _judgement(_of_metrics(metrics, thresholds))


@dataclass(frozen=True)
class _Finding:
    text: str
    exceeds: bool


def _judgement(findings: Iterable[_Finding]) -> tuple[ComparisonVerdict, tuple[str, ...]]:
    found = sorted(findings, key=lambda one: not one.exceeds)
    verdict: ComparisonVerdict = "same" if not found else "within"
    if any(one.exceeds for one in found):
        verdict = "different"
    return verdict, tuple(one.text for one in found)


def _findings(pair: QueryPair, limits: ThresholdSettings) -> Iterator[_Finding]:
    for only, names in ((pair.before, pair.outputs_dropped), (pair.after, pair.outputs_added)):
        for name in names:
            yield _Finding(f"only {only} has the output {name}", exceeds=True)
    for output in pair.outputs:
        yield from _of_output(output, limits)
    if pair.state is not None:
        yield from _of_state(pair.state, limits)
    yield from _of_metrics(pair.metrics, limits)
    ratio, most = pair.seconds_ratio, limits.seconds
    if ratio is not None and most is not None and ratio > most:
        yield _Finding(f"ran {ratio:.2f} times as long (allowed {most:g})", exceeds=True)


def _of_output(output: OutputDifference, limits: ThresholdSettings) -> Iterator[_Finding]:
    if output.different_rows:
        rows = output.equal + output.different_rows
        text = f"{output.name}: {output.different_rows:,} of {rows:,} rows differ"
        yield _Finding(
            f"{text} ({_percent(output.share)}, allowed {_percent(limits.rows)})",
            exceeds=output.share > limits.rows,
        )
    if output.different_columns:
        columns = count_text(output.different_columns, "column")
        text = f"{output.name}: {columns} added, dropped or changed in type"
        yield _Finding(
            f"{text} (allowed {limits.columns})", exceeds=output.different_columns > limits.columns
        )


def _of_state(state: StateDifference, limits: ThresholdSettings) -> Iterator[_Finding]:
    marks = state.diff.watermark_ms
    if marks.differs:
        # They treat what comes late otherwise from here on, though nothing else differs yet.
        yield _Finding(f"the watermarks are {marks.before} and {marks.after} ms", exceeds=True)
    if state.equal:
        return
    most = f"allowed {_percent(limits.state_rows)}"
    if state.share is None:
        yield _Finding(
            f"the state differs, but how much is unknown without the canonical form ({most})",
            exceeds=True,
        )
        return
    text = f"state: {state.counted}" if state.rows else "state: operators differ"
    # Operators may differ without any rows: then only a threshold lets them pass.
    exceeds = state.share > limits.state_rows or not limits.state_rows
    yield _Finding(f"{text} ({_percent(state.share)}, {most})", exceeds)


def _of_metrics(
    metrics: Iterable[MetricDifference], limits: ThresholdSettings
) -> Iterator[_Finding]:
    for metric in metrics:
        yield from _of_metric(metric, limits.metrics.get(metric.name, 0.0))


def _of_metric(metric: MetricDifference, most: float) -> Iterator[_Finding]:
    if not metric.differs:
        return
    values = f"{_number(metric.before)} and {_number(metric.after)}"
    if metric.relative is None:
        yield _Finding(f"metric {metric.name}: {values}", exceeds=True)
        return
    yield _Finding(
        f"metric {metric.name}: {values} ({metric.relative:+.4%}, allowed {_percent(most)})",
        exceeds=abs(metric.relative) > most,
    )


def _plain(value: Figure) -> float | None:
    return None if value is None else float(value)


def _percent(share: float) -> str:
    return f"{share * 100:.4g}%"


def _number(value: float | None) -> str:
    return "null" if value is None else f"{value:,.10g}"
