"""Sources of a query that have read one topic up to different offsets.

Spark asks one source after the other how far the topic goes, so that happens wherever records
arrive. Events up to the lower offset are replayed for both: from a base the others would come
again, at the end they would be missing.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.logs import offset_log
from savepoints.errors import IncompatibleError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.merge import assignment, generation_plan, source_ends
from savepoints.operations.merge.assignment import Assignment
from savepoints.operations.merge.replay.entity_replay import MergeReplay
from savepoints.plan import silent
from savepoints.sources.archive.progress import ArchiveProgress, Arrival
from savepoints.store.batch_log import Batch
from tests.samples import savepoint, take, unpack

QUERY = "pairs"
ARCHIVED = ArchiveProgress("x", (Arrival("events", 0, 0, 30, 30, 9_000_000),))
AT_9 = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=9)
OF_PAIRS = cast(Assignment, SimpleNamespace(live=SimpleNamespace(name=QUERY)))


def positions(*ends: int) -> tuple[str, ...]:
    """Return where sources of one topic are."""
    return tuple(json.dumps({"events": {"0": end}}) for end in ends)


def batch(number: int, watermark: int, *ends: int) -> Batch:
    return Batch(number, positions(*ends), watermark, 1_000_000 + 1000 * number)


@pytest.fixture
def checkpoint(on_local: Location) -> Location:
    """Return one of batches 0 to 3 whose two sources are apart after the second and the last."""
    live = unpack("rocksdb", on_local / "live")
    for number, ends in enumerate([(10, 10), (20, 22), (30, 30), (40, 43)]):
        path = f"offsets/{number}"
        was = offset_log.parse(live.get(path), path)
        data = offset_log.new(
            was.conf,
            positions=positions(*ends),
            watermark_ms=1000 * number,
            timestamp_ms=was.timestamp_ms,
        )
        live.put(path, data)
    live.delete(info.path for info in live.list("sources"))
    return live


def replay(cut: Location) -> MergeReplay:
    """Return a replay of which only what it asks of batches is there."""
    made = object.__new__(MergeReplay)
    made.assignment, made.cut, made.progress, made.batch = OF_PAIRS, cut, silent, 0
    return made


def test_trap_a_base_whose_sources_are_apart_has_events_that_would_come_again() -> None:
    ends = [(30, 30), (30, 35), (30, 30)]
    saved = [savepoint(number, offsets=positions(*one)) for number, one in enumerate(ends, 1)]

    bases = [*assignment._with_clocks(saved, [("events", ARCHIVED)] * 2, {})]

    assert [one.savepoint_id for one in bases] == [saved[0].id, saved[2].id]
    assert {one.clock for one in bases} == {AT_9}


def test_trap_at_the_end_of_a_replay_the_events_between_them_would_be_missing(
    checkpoint: Location, local_store: Store
) -> None:
    apart = "two sources of pairs read topic events .* partition 0: 40 and 43"
    with pytest.raises(IncompatibleError, match=apart) as refused:
        MergeReplay(OF_PAIRS, checkpoint, checkpoint, silent, "short", savepoint(1))
    assert "savepoints run pairs --until latest" in refused.value.hint

    # The query went on while it was replayed, and stands still now.
    take(local_store, checkpoint, query=QUERY)
    with pytest.raises(IncompatibleError, match=apart):
        generation_plan.plan(
            local_store,
            local_store.generations.current(QUERY),
            OF_PAIRS,
            cast(Any, None),
            app=cast(Any, None),
            replayed_batch=3,
            entity_fields={},
            command="savepoints merge",
            still_since=None,
        )


def test_trap_batches_that_are_replayed_one_by_one_had_other_watermarks(
    checkpoint: Location,
) -> None:
    apart = r"in batch 1 two of its inputs read events partition 0 to different offsets, 20 and 22"

    with pytest.raises(IncompatibleError, match=apart) as refused:
        replay(checkpoint).follow(checkpoint, 2)
    assert "--policy replay-all" in refused.value.hint
    source_ends.require_even(QUERY, [(batch(1, 5, 20, 22), 5), (batch(2, 9, 30, 30), 5)])
    with pytest.raises(IncompatibleError, match=apart):
        source_ends.require_even(QUERY, [(batch(1, 5, 20, 22), 4)])


def test_sources_at_one_place_are_none(checkpoint: Location) -> None:
    path = "offsets/3"
    live = offset_log.with_batch(checkpoint.get(path), path, positions=positions(40, 40))
    checkpoint.put(path, live)

    source_ends.require_one_position(QUERY, read_cut(checkpoint))


def test_batches_without_topics_have_no_ends() -> None:
    assert list(source_ends.uneven([(Batch(1, ("7", None), 5, 0), 4)])) == []
