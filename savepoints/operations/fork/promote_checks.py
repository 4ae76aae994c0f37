"""What a fork has to pass before it takes over: both queries stand at the same offsets then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from savepoints.checkpoint import position
from savepoints.checkpoint.cut import read_cut
from savepoints.config.settings import PromoteSettings, Settings
from savepoints.io import Location
from savepoints.model import Generation, OutputVersion
from savepoints.operations.fork.compare_savepoints import compare_at
from savepoints.operations.savepoint import create, output_versions
from savepoints.outputs.compare.sql_metrics import measure
from savepoints.plan import Progress
from savepoints.sources.combined import availability
from savepoints.sources.kafka.offsets import count
from savepoints.store.root import Store

if TYPE_CHECKING:
    from savepoints.outputs.compare.sql_metrics import Figure

_LIVE = "live_"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What.
        passed: Whether the fork may take over as far as this goes.
        found: What was seen, for people.
    """

    name: str
    passed: bool
    found: str


def run_checks(
    store: Store, live: Generation, fork: Generation, *, settings: Settings, progress: Progress
) -> tuple[Check, ...]:
    """Look at a fork that stands at the same offsets as the live query.

    Always: that it has rows where the live query has some. As `[promote]` says: how far the number
    of rows differs, how many records Kafka has beyond, SQL of the user's own, and what `compare`
    says.
    """
    from savepoints.spark.session import session

    progress(f"checking {fork.query}")
    spark = session(settings, f"savepoints promote {fork.query}")
    theirs, mine = _outputs(fork, settings), _outputs(live, settings)
    tables = [*theirs, *(replace(one, name=f"{_LIVE}{one.name}") for one in mine)]
    counting = {one.name: f"SELECT count(*) FROM `{one.name}`" for one in tables}  # noqa: S608
    rows = measure(spark, tables, counting)
    own = measure(spark, tables, _as_figures(settings.promote.checks))
    found = [
        *_of_rows(rows, [one.name for one in theirs], settings.promote),
        *(
            Check(name, figure == 1, "true" if figure == 1 else "false")
            for name, figure in own.items()
        ),
        _of_lag(live, settings),
    ]
    if settings.promote.compare:
        found.append(_of_comparison(store, live, fork, progress))
    return tuple(found)


def _outputs(generation: Generation, settings: Settings) -> tuple[OutputVersion, ...]:
    bound = settings.queries[generation.query]
    files = read_cut(Location.of(generation.checkpoint))
    return output_versions.outputs_of(
        generation.query, generation.generation, files, bound.outputs, bound
    )


def _of_rows(
    rows: Mapping[str, Figure], names: Sequence[str], wanted: PromoteSettings
) -> Iterator[Check]:
    for name in names:
        new, old = int(rows[name] or 0), int(rows[f"{_LIVE}{name}"] or 0)
        share = abs(new - old) / old if old else 0.0
        found = f"{new} rows, the live query has {old}"
        if wanted.rows is not None:
            found += f"; a difference of {share:.4f}, at most {wanted.rows:g} allowed"
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
    ranges = availability.ranges(sorted(reached), settings.kafka)
    ends = {
        topic: {part: ranges[topic][part].end for part in parts} for topic, parts in reached.items()
    }
    behind, most = count(reached, ends), settings.promote.max_lag
    limit = "" if most is None else f"; at most {most} allowed"
    return Check("lag", most is None or behind <= most, f"{behind} records to read{limit}")


def _of_comparison(store: Store, live: Generation, fork: Generation, progress: Progress) -> Check:
    """Say what `compare` finds about outputs and metrics; their savepoints stay."""
    saved = [
        create.save(
            store,
            one.query,
            kind="fork",
            description=f"compared before {fork.query} takes over from {live.query}",
        ).id
        for one in (live, fork)
    ]
    compared = compare_at(store, saved, state=False, progress=progress)
    reasons = [reason for pair in compared.pairs for reason in pair.reasons]
    return Check(
        "compare", compared.verdict != "different", "; ".join([compared.verdict, *reasons])
    )
