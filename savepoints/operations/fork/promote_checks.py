"""What a fork has to pass before it takes over: both queries stand at the same offsets then."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from savepoints.checkpoint import position
from savepoints.checkpoint.cut import read_cut
from savepoints.config.settings import PromoteSettings, Settings
from savepoints.errors import CheckFailedError
from savepoints.io import Location
from savepoints.model import Generation, OutputVersion
from savepoints.operations.fork.compare_savepoints import Comparing, metric_differences
from savepoints.operations.fork.verdict import judge_metrics
from savepoints.operations.savepoint import create, output_versions
from savepoints.outputs.compare import by_key
from savepoints.outputs.compare.sql_metrics import measure
from savepoints.plan import Progress
from savepoints.sources.combined import availability
from savepoints.sources.kafka.offsets import count
from savepoints.store.root import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LIVE = "live_"


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: The check.
        passed: Whether this check lets the fork take over.
        found: What was found, in words.
    """

    name: str
    passed: bool
    found: str


def refuse_failed(checks: Sequence[Check], what: str, *, hint: str, query: str) -> None:
    """Refuse to promote if a check has failed."""
    if failed := [one for one in checks if not one.passed]:
        raise CheckFailedError(
            f"{what}: " + "; ".join(f"{one.name}: {one.found}" for one in failed),
            hint=f"{hint}; or promote without checks: --no-checks",
            query=query,
            checks=[one.name for one in failed],
        )


def of_pairs(
    store: Store,
    pairs: Sequence[tuple[Generation, Generation]],
    *,
    settings: Settings,
    progress: Progress,
) -> tuple[Check, ...]:
    """Look at forks, each of which stands at an equal cut as its live query.

    Always: that it has rows where the live query has some. As `[promote]` says: how far the number
    of rows differs, how many records Kafka has beyond, SQL of the user's own, and what `compare`
    says. SQL, in checks and metrics, sees the outputs of all of them.

    Args:
        pairs: Each live query and its fork.
    """
    from savepoints.spark.session import session

    spark = session(settings, f"savepoints promote {pairs[0][1].query}")
    before: list[OutputVersion] = []
    after: list[OutputVersion] = []
    rows: list[Check] = []
    for live, fork in pairs:
        progress(f"running the promotion checks on {fork.query}")
        theirs, mine = outputs(fork, settings), outputs(live, settings)
        own_rows = settings.queries[live.query].own_rows
        found, wanted = (_counted(spark, one, own_rows) for one in (theirs, mine))
        rows += _of_rows(found, wanted, settings.promote)
        before += mine
        after += theirs
    views = (*after, *(replace(one, name=f"{_LIVE}{one.name}") for one in before))
    own = measure(spark, views, _as_figures(settings.promote.checks))
    return (
        *rows,
        *(
            Check(name, figure == 1, "true" if figure == 1 else "false")
            for name, figure in own.items()
        ),
        *(_of_lag(live, settings) for live, _ in pairs),
        *(
            _of_comparison(store, live, fork, progress)
            for live, fork in pairs
            if settings.promote.compare
        ),
        *(_of_metrics(spark, before, after, settings) if settings.promote.compare else ()),
    )


def outputs(generation: Generation, settings: Settings) -> tuple[OutputVersion, ...]:
    """Return the versions of a query's outputs that belong to its newest batch."""
    bound = settings.queries[generation.query]
    files = read_cut(Location.of(generation.checkpoint))
    return output_versions.outputs_of(
        generation.query, generation.generation, files, bound.outputs, bound
    )


def _counted(
    spark: SparkSession, outputs: Sequence[OutputVersion], own_rows: Mapping[str, str]
) -> dict[str, int]:
    """Return how many rows each output has at its version, without those of other writers."""
    own = by_key.comparing_session(spark)
    return {
        one.name: by_key.read_output(own, one, own_rows.get(one.name)).count() for one in outputs
    }


def _of_rows(
    forked: Mapping[str, int], live: Mapping[str, int], wanted: PromoteSettings
) -> Iterator[Check]:
    for name, new in forked.items():
        old = live[name]
        # Of none, whatever is there is more than any fraction.
        share = abs(new - old) / old if old else math.inf if new else 0.0
        found = f"the fork has {new} rows, the live query {old}"
        if wanted.rows is not None:
            found += f"; a difference of {share:.4f}" if old else ""
            found += f"; at most a fraction of {wanted.rows:g} allowed"
        is_lost = old > 0 and new == 0
        yield Check(
            f"rows of {name}", not is_lost and (wanted.rows is None or share <= wanted.rows), found
        )


def _as_figures(checks: Mapping[str, str]) -> dict[str, str]:
    """Let each check give 1 for passed; `sql_metrics` takes numbers."""
    return {
        name: "SELECT CASE WHEN CAST(passed AS BOOLEAN) THEN 1 ELSE 0 END FROM (\n"  # noqa: S608
        f"{sql.strip().rstrip(';')}\n) AS checked(passed)"
        for name, sql in checks.items()
    }


def _of_lag(live: Generation, settings: Settings) -> Check:
    """Say how many records both have not read."""
    reached = position.read(Location.of(live.checkpoint)).offsets
    if not reached:
        return Check("lag", passed=True, found=f"{live.query} reads no topic")
    ranges = availability.ranges(sorted(reached), settings.kafka)
    ends = {
        topic: {part: ranges[topic][part].end for part in parts} for topic, parts in reached.items()
    }
    behind, most = count(reached, ends), settings.promote.max_lag
    limit = "" if most is None else f"; at most {most} allowed"
    return Check("lag", most is None or behind <= most, f"{behind} records to read{limit}")


def _of_comparison(store: Store, live: Generation, fork: Generation, progress: Progress) -> Check:
    """Say what `compare` finds about outputs; their savepoints stay."""
    saved = [
        create.save(
            store,
            one.query,
            kind="fork",
            description=f"compared before {fork.query} takes over from {live.query}",
        )
        for one in (live, fork)
    ]
    compared = Comparing(store, saved, state=False, progress=progress).comparison()
    reasons = [reason for pair in compared.pairs for reason in pair.reasons]
    return Check(
        "compare", compared.verdict != "different", "; ".join([compared.verdict, *reasons])
    )


def _of_metrics(
    spark: SparkSession,
    before: Sequence[OutputVersion],
    after: Sequence[OutputVersion],
    settings: Settings,
) -> Iterator[Check]:
    """Say what `compare` finds about metrics, if the settings have any."""
    wanted = settings.compare
    if wanted.metrics:
        found = metric_differences(spark, before, after, wanted.metrics)
        verdict, reasons = judge_metrics(found, wanted.thresholds)
        yield Check("metrics", verdict != "different", "; ".join([verdict, *reasons]))
