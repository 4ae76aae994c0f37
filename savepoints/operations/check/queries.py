"""Will each query's savepoints do what they are for: pinned in time, with outputs that last?"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from savepoints.config.settings import Settings
from savepoints.errors import SavepointsError
from savepoints.io import Location, in_parallel
from savepoints.model import Generation, Savepoint
from savepoints.moments import utc_now
from savepoints.operations.inspect.findings import Seen
from savepoints.operations.maintain import expire
from savepoints.operations.rollback.query_context import checkpoint_of
from savepoints.outputs.delta import batch_version, retention
from savepoints.outputs.file_sink import file_sink
from savepoints.store.root import Store
from savepoints.store.tables import catalog
from savepoints.uri import lies_in

_RETAINED = "spark.sql.streaming.minBatchesToRetain"
_DEFAULT_RETAINED = 100
_COMMIT = re.compile(r"commits/(\d+)", re.ASCII)
# So many of the newest batches and savepoints show how it goes now.
_BATCHES = 20
_SAVEPOINTS = 10


def check_queries(store: Store) -> list[Seen]:
    """Look at every query of the settings and of the store."""
    known = store.catalog.all()
    lives = store.generations.all()
    current = {one.query: one for one in lives if one.status == "current"}
    names = sorted({*store.settings.queries, *current})

    def of_query(name: str) -> list[Seen]:
        mine = [one for one in catalog.select(known, query=name) if one.state == "complete"]
        checkpoint = current[name].checkpoint if name in current else None
        return [
            _pace(name, checkpoint, mine, store.settings),
            *_outputs(name, mine, store.settings),
            *(_nested(current[name], lives, store.settings) if name in current else ()),
        ]

    return [one for seen in in_parallel(of_query, names) for one in seen]


def _pace(name: str, checkpoint: str | None, mine: Sequence[Savepoint], settings: Settings) -> Seen:
    """Compare how long a batch is kept with how long copying its files took."""
    what = f"batches of {name}"
    retained = settings.spark.conf.get(_RETAINED, str(_DEFAULT_RETAINED))
    if not retained.isdecimal():
        return Seen(what, "broken", f"{_RETAINED} is {retained!r}", "set it to a whole number")
    try:
        times = _commits(Location.of(checkpoint)) if checkpoint else []
    except SavepointsError as error:
        return Seen(what, "warning", error.message, error.hint)
    # Those of a restored checkpoint were copied at one moment.
    gaps = [(late - early).total_seconds() for early, late in pairwise(times) if late > early]
    if not gaps:
        return Seen(what, "ok", "fewer than two batches so far, so there is nothing to compare")
    kept = median(gaps) * int(retained)
    seen = f"one batch every {median(gaps):.1f} s, so each batch is kept for {kept:.0f} s"
    taken = [one.cost.pin_seconds for one in mine[:_SAVEPOINTS]]
    if not taken:
        return Seen(what, "ok", f"{seen}; no savepoints yet")
    seen += f"; copying a batch took up to {max(taken):.1f} s"
    if max(taken) <= kept / 2:
        return Seen(what, "ok", seen)
    return Seen(
        what,
        "warning",
        f"{seen}: Spark may remove its files before they are copied",
        f"raise {_RETAINED} of the query ({retained} now)",
    )


def _commits(checkpoint: Location) -> list[datetime]:
    """Return when the newest batches were committed, the oldest first."""
    found = {
        int(match[1]): info.last_modified
        for info in checkpoint.list("commits")
        if (match := _COMMIT.fullmatch(info.path))
    }
    return [found[batch] for batch in sorted(found)][-_BATCHES:]


def _nested(now: Generation, lives: Sequence[Generation], settings: Settings) -> Iterator[Seen]:
    """Find checkpoints inside older ones, which somebody deletes once the query goes on elsewhere.

    Now or next: a driver's own is often called as its query is, and so is the directory that `run`
    has for the query.
    """
    what = f"checkpoint of {now.query}"
    mine = [one for one in lives if one.query == now.query]
    for one in mine:
        if one != now and lies_in(now.checkpoint, one.checkpoint):
            yield Seen(
                what,
                "warning",
                f"{now.checkpoint} lies inside {one.checkpoint} of generation {one.generation}, "
                "and would be deleted with it",
                f"keep {one.checkpoint} as long as the query runs",
            )
    bound = settings.queries.get(now.query)
    if bound is None:
        return
    number = max(one.generation for one in mine) + 1
    following = str(checkpoint_of(bound.checkpoints, now.query, number))
    if lies_in(following, now.checkpoint):
        yield Seen(
            what,
            "warning",
            f"the next checkpoint, {following}, would lie inside the present one, {now.checkpoint}",
            f"set checkpoints of [queries.{now.query}] to another directory",
        )


def _outputs(name: str, mine: Sequence[Savepoint], settings: Settings) -> list[Seen]:
    """Look how long the newest savepoint can still take the outputs back, and what is kept."""
    seen = []
    for output in mine[0].outputs if mine else ():
        what = f"output {output.name} of {name}"
        try:
            if output.kind == "files":
                file_sink.require_reachable(output)
                seen.append(Seen(what, "ok", "the log reaches back to the newest savepoint"))
                continue
            table = batch_version.open_table(output.uri)
            # A version needs its files, and its entry in the log.
            lasting = {
                key: retention.retention(table.metadata().configuration, key) / timedelta(days=1)
                for key in (retention.FILES_PROPERTY, retention.LOG_PROPERTY)
            }
            problem = retention.of_output(output).problem(utc_now())
        except SavepointsError as error:
            seen.append(Seen(what, "warning", error.message, error.hint))
            continue
        kept, readable = expire.policy_of(settings, name).days, min(lasting.values())
        if problem:
            advice = (
                f"take a new savepoint of {name}; to keep old versions longer, raise "
                f"{retention.FILES_PROPERTY} of {output.uri}"
            )
            seen.append(Seen(what, "warning", problem, advice))
        elif kept > readable:
            is_endless = math.isinf(kept)
            seen.append(
                Seen(
                    what,
                    "warning",
                    f"savepoints are kept {'for ever' if is_endless else _for(kept)}, but "
                    f"versions of the output {_for(readable)}: older savepoints cannot rewind it",
                    f"set {' and '.join(key for key in lasting if kept > lasting[key])} of "
                    f"{output.uri} to "
                    + ("as long as you may go back" if is_endless else _interval(kept)),
                )
            )
        else:
            seen.append(Seen(what, "ok", f"old versions stay readable {_for(readable)}"))
    return seen


def _for(days: float) -> str:
    return f"for {days:.3g} days"


def _interval(days: float) -> str:
    return f"'interval {math.floor(days) + 1} days'"
