"""`merge` while the query goes on: what it runs during the replay is replayed after it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.local import LocalWorld
from savepoints.operations.merge import merge
from savepoints.store.tables.merge_ledger import MergePolicy
from tests.e2e.late_desk import Event, LateDesk
from tests.e2e.marks import NIGHTLY
from tests.e2e.test_merge_functions import LATE, model

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = NIGHTLY

# What is said when the query has been replayed up to where it stood.
REPLAYED: dict[MergePolicy, str] = {
    "exact": "comparing the control entities",
    "replay-all": "replaying all events",
    "merge-function": "combining the result with the",
}
MEANWHILE = (
    [Event("6", "a", 32, 44), Event("7", "c", 64, 61)],
    [Event("8", "b", 128, 57), Event("9", "d", 256, 75)],
    [Event("10", "a", 512, 70)],
    [Event("11", "new", 1024, 91)],
)


@pytest.mark.parametrize(
    ("policy", "on_s3"), [*((one, False) for one in REPLAYED), ("exact", True)]
)
def test_trap_batches_that_the_query_runs_meanwhile_count_once(
    world: LocalWorld,
    world_environment: dict[str, str],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    policy: MergePolicy,
    on_s3: bool,
) -> None:
    """Four of them, of entities that the late events touch and of others; windows end in them.

    With a store on S3 the replay is on the local disk, and shared before and in the pause.
    """
    desk = LateDesk.open(world, spark, tmp_path, "windowed")
    if on_s3:
        desk = desk.with_store_on_s3(world)
        # All four are replayed in the pause, after most was shared.
        monkeypatch.setattr(merge, "_MOST_ROUNDS", 0)
    desk.arrive([Event("1", "a", 1, 3), Event("2", "b", 2, 15), Event("3", "d", 4, 31)])
    desk.arrive([Event("4", "b", 8, 52), Event("5", "d", 16, 41)])
    batch = desk.write(LATE)
    begun = time.monotonic()
    prepared = desk.prepare(batch, policy=policy)
    waiting = list(MEANWHILE)
    heard = []

    def go_on(said: str) -> None:
        heard.append(time.monotonic())
        while waiting and said.startswith(REPLAYED[policy]):
            desk.arrive(waiting.pop(0))

    done = desk.merge(prepared, go_on)

    assert not waiting
    assert done.seconds > heard[-1] - begun, "what a person waits counts, the planning as well"
    assert (done.policy, done.rows) == (policy, len(LATE))
    arrived = [one for chunk in desk.chunks for one in chunk]
    assert desk.desk.rows() == model(desk, [*arrived, *LATE])
    desk.arrive([Event("12", "c", 2048, 130), Event("13", "a", 4096, 93)])
    arrived = [one for chunk in desk.chunks for one in chunk]
    assert desk.desk.rows() == model(desk, [*arrived, *LATE])
