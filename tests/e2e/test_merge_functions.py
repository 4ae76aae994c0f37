"""`merge --policy merge-function`: late events are combined by functions, and not replayed."""

from __future__ import annotations

import dataclasses
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from savepoints.errors import (
    IncompatibleError,
    NotAlignedError,
    SourceDataGoneError,
    UsageError,
)
from savepoints.local import LocalWorld
from savepoints.operations.merge import merge as merging
from savepoints.operations.merge.prepare import MergeRequest, Prepared
from savepoints.operations.rollback import reset
from savepoints.runtime.app import CombineFunction
from savepoints.sources.combined import availability
from savepoints.sources.kafka.reset_targets import Target
from savepoints.store.locks import journal
from savepoints.store.tables.merge_ledger import Ledger
from spark_jobs.orders.producer import produce
from tests.e2e import late_apps
from tests.e2e.desk import PARTITIONS
from tests.e2e.late_apps import WINDOW_S
from tests.e2e.late_desk import Event, LateDesk
from tests.e2e.late_shop import archive, day, differing, ids, late_orders, written
from tests.e2e.marks import NIGHTLY
from tests.e2e.shop import QUERY, Shop
from tests.sources.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = NIGHTLY

POLICY: Final = "merge-function"


def model(desk: LateDesk, events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return the windows that are over, with all events whenever they came."""
    totals: Counter[tuple[int, str]] = Counter()
    for one in events:
        totals[int(one.s // WINDOW_S) * WINDOW_S, one.k] += one.n
    over = desk.batches[-1].watermark_ms / 1000
    found = [
        {"start_ms": start * 1000, "k": k, "total": total}
        for (start, k), total in totals.items()
        if start + WINDOW_S <= over
    ]
    return sorted(found, key=str)


@pytest.fixture
def begun(
    world: LocalWorld, world_environment: dict[str, str], spark: SparkSession, tmp_path: Path
) -> LateDesk:
    """Give a query with windows that are over, and some that are not."""
    desk = LateDesk.open(world, spark, tmp_path, "windowed")
    for chunk in BEGUN:
        desk.arrive(chunk)
    return desk


BEGUN = (
    (Event("1", "a", 1, 3), Event("2", "b", 2, 15), Event("3", "a", 4, 31)),
    (Event("4", "b", 8, 52), Event("5", "a", 16, 41)),
)
LATE = (
    Event("over", "a", 1000, 4),
    Event("over-of-nobody", "b", 2000, 22),
    Event("open", "b", 4000, 49.5),
    Event("open-as-one-that-is-known", "b", 32000, 51.5),
    Event("open-of-nobody", "c", 8000, 51),
    Event("over-when-the-next-comes", "a", 16000, 43),
)


def test_windows_that_are_over_and_open_ones_are_combined(begun: LateDesk) -> None:
    """What came in time, what is late, and what comes afterwards add up."""
    arrived = [one for chunk in begun.chunks for one in chunk]
    assert begun.desk.rows() == model(begun, arrived)
    prepared = begun.prepare(begun.write(LATE), policy=POLICY)
    assert "nothing is replayed" in prepared.plan.warnings[0]
    # It goes on meanwhile, so that a window is over which was open when the merge was planned.
    begun.arrive([Event("6", "c", 32, 61)])

    done = begun.merge(prepared)

    assert (done.policy, done.way, done.rows, done.controls) == (POLICY, None, len(LATE), 0)
    arrived = [one for chunk in begun.chunks for one in chunk]
    assert begun.desk.rows() == model(begun, [*arrived, *LATE])
    begun.arrive([Event("7", "a", 64, 55), Event("8", "c", 128, 90)])
    begun.arrive([Event("9", "c", 256, 130)])
    arrived = [one for chunk in begun.chunks for one in chunk]
    assert begun.desk.rows() == model(begun, [*arrived, *LATE]), "the open ones were, too"
    (noted,) = Ledger(begun.desk.store.root).all()
    assert (noted.policy, noted.way) == (POLICY, None)
    again = begun.prepare(begun.write(LATE), policy=POLICY)
    assert again.plan.has_nothing_to_do


def test_records_that_a_reset_skipped_are_merged_as_any_others(begun: LateDesk) -> None:
    """They are in Kafka, but the query has never read them."""
    skipped = [Event("6", "a", 32, 44), Event("7", "b", 64, 45), Event("8", "a", 128, 46)]
    begun.produce(skipped)
    desk = begun.desk
    skip = reset.plan(desk.store, desk.query, Target("latest"), state="keep")
    reset.execute(skip, desk.store)
    begun.arrive([Event("9", "c", 256, 61)])
    arrived = [one for chunk in begun.chunks for one in chunk]
    assert desk.rows() == model(begun, arrived)

    known = arrived[0]
    prepared = begun.prepare(begun.write([*skipped, known]), policy=POLICY)
    assert (prepared.plan.rows, prepared.plan.known) == (3, 1)
    begun.merge(prepared)

    begun.arrive([Event("10", "c", 512, 130)])
    arrived = [one for chunk in begun.chunks for one in chunk]
    assert desk.rows() == model(begun, [*arrived, *skipped])


def test_trap_what_a_reset_skipped_and_a_later_one_read_is_known(begun: LateDesk) -> None:
    """It was merged once more; and what was merged counts as known only where it is read again."""
    skipped = [Event("6", "a", 32, 44), Event("7", "b", 64, 45)]
    begun.produce(skipped)
    desk = begun.desk
    skip = reset.plan(desk.store, desk.query, Target("latest"), state="keep")
    reset.execute(skip, desk.store)
    begun.arrive([Event("8", "c", 128, 61)])
    again = reset.plan(desk.store, desk.query, Target("earliest"), outputs="truncate")
    reset.execute(again, desk.store)
    desk.run(until="latest")

    known = begun.prepare(begun.write(skipped), policy=POLICY)
    assert (known.plan.rows, known.plan.known) == (0, 2)
    merged = begun.write([Event("late", "a", 1000, 43.5)], "late.parquet")
    begun.merge(begun.prepare(merged, policy=POLICY))
    assert begun.prepare(merged, policy=POLICY).plan.has_nothing_to_do

    behind = reset.plan(desk.store, desk.query, Target("latest"), outputs="truncate")
    reset.execute(behind, desk.store)
    begun.arrive([Event("9", "a", 256, 62)])
    new = begun.prepare(merged, policy=POLICY)
    assert (new.plan.rows, new.plan.known) == (1, 0)


@pytest.mark.parametrize("policy", ["exact", POLICY])
def test_trap_records_that_kafka_removed_before_the_query_began_are_not_needed(
    world: LocalWorld,
    world_environment: dict[str, str],
    spark: SparkSession,
    tmp_path: Path,
    policy: str,
) -> None:
    """As in every topic with a retention, nothing is archived, and the first offset is not 0."""
    desk = LateDesk.open(world, spark, tmp_path, "windowed")
    desk.produce([Event("gone", "a", 1, 999), Event("gone, too", "b", 2, 999)])
    for partition in range(PARTITIONS):
        Broker.of(world).forget(desk.desk.topics["events"], partition, 1)
    for chunk in BEGUN:
        desk.arrive(chunk)

    desk.merge(desk.prepare(desk.write(LATE), policy=policy))

    desk.arrive([Event("6", "c", 32, 61), Event("7", "a", 64, 55)])
    arrived = [one for chunk in desk.chunks for one in chunk]
    assert desk.desk.rows() == model(desk, [*arrived, *LATE])


def test_events_from_before_the_archive_are_gone_for_good(
    world: LocalWorld, world_environment: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    """As for every query that was there before its archive, in a topic with a retention."""
    desk = LateDesk.open(world, spark, tmp_path, "windowed")
    first = [Event("1", "a", 1, 3), Event("2", "b", 2, 15), Event("3", "a", 4, 12)]
    desk.arrive(first)
    topic = desk.desk.topics["events"]
    ends = availability.ranges([topic], desk.desk.settings.kafka)[topic]
    for partition in range(PARTITIONS):
        Broker.of(world).forget(topic, partition, ends[partition].end)
    second = [Event("4", "b", 8, 22), Event("5", "a", 16, 21)]
    desk.arrive(second)
    desk.archive()
    desk.arrive([Event("6", "a", 32, 52), Event("7", "b", 64, 45)])
    late = [Event("late", "a", 1000, 31), Event("late, of nobody", "c", 2000, 42)]
    batch = desk.write([*late, second[0]])

    with pytest.raises(SourceDataGoneError, match="are gone; there are those of") as refused:
        desk.prepare(batch)
    assert "merge with --partial-history" in refused.value.hint
    early = desk.write([Event("early", "b", 1, 4)], "early.parquet")
    with pytest.raises(SourceDataGoneError, match="1 entity cannot be replayed") as refused:
        desk.prepare(early, partial_history=True)
    for policy in ("append", "replay-all"):
        with pytest.raises(UsageError, match=f"cannot be combined with --policy {policy}"):
            desk.prepare(batch, partial_history=True, policy=policy)

    prepared = desk.prepare(batch, partial_history=True)
    assert (prepared.plan.rows, prepared.plan.known) == (2, 1)
    assert any("make sure that" in one for one in prepared.plan.warnings)
    desk.merge(prepared)

    desk.arrive([Event("8", "c", 128, 61), Event("9", "a", 256, 90)])
    arrived = [one for chunk in desk.chunks for one in chunk]
    assert desk.desk.rows() == model(desk, [*arrived, *late])


def doubling(live: pa.RecordBatch, late: pa.RecordBatch) -> pa.RecordBatch:
    """Return twice as many rows as it was given."""
    made = late_apps.added_totals(live, late)
    return made.take(pa.array([0, 0]))


def other_key(live: pa.RecordBatch, late: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows under another key."""
    made = late_apps.added_totals(live, late)
    return made.set_column(1, "k", pa.array(["x"] * len(made)))


def nothing(live: pa.RecordBatch, _late: pa.RecordBatch) -> pa.RecordBatch:
    """Return a column that there is not."""
    return pa.RecordBatch.from_pydict({"strange": [1] * len(live)})


def with_functions(prepared: Prepared, **functions: Any) -> Prepared:
    """Return a plan whose application combines otherwise."""
    assignment = prepared.assignment
    assert assignment is not None
    affected, live = assignment.affected, assignment.live
    app = dataclasses.replace(live.inputs.app, merge=late_apps.functions(**functions))
    live = dataclasses.replace(live, inputs=dataclasses.replace(live.inputs, app=app))
    affected = dataclasses.replace(affected, live=live)
    return dataclasses.replace(
        prepared, assignment=dataclasses.replace(assignment, affected=affected)
    )


def test_functions_that_cannot_be_used_are_refused_while_the_query_runs(begun: LateDesk) -> None:
    """Nothing stands still for them, and nothing is changed."""
    batch = begun.write(LATE)
    before = begun.desk.rows()
    cases: list[tuple[dict[str, CombineFunction | dict[str, CombineFunction]], str]] = [
        ({"rows": doubling}, "returned 2 rows instead of 1"),
        ({"rows": other_key}, "changed k, which belongs to the key"),
        ({"states": {"0": nothing}}, "combining states of operator 0 .* returned .'strange'."),
    ]
    for functions, said in cases:
        prepared = with_functions(begun.prepare(batch, policy=POLICY), **functions)
        with pytest.raises(IncompatibleError, match=said) as refused:
            begun.merge(prepared)
        assert "nothing was changed" in refused.value.message
    assert begun.desk.rows() == before
    assert begun.desk.store.generations.current("windowed").generation == 1
    removal = begun.write([LATE[0]], "gone.parquet", op="remove")
    with pytest.raises(UsageError, match="no function can remove an event from"):
        begun.prepare(removal, policy=POLICY)


def test_trap_an_event_that_arrives_during_the_merge_counts_once(local_shop: Shop) -> None:
    shop, held = local_shop, late_orders(0, 4)
    shop.sell(day(0), day(4), without=ids(held))
    shop.run()
    archive(shop)
    found = merging.prepare(
        shop.store, MergeRequest(QUERY, str(written(shop, held)), policy=POLICY)
    )
    produce(held[:1], bootstrap_servers=shop.bootstrap_servers, topic=shop.topic)
    shop.run()

    with pytest.raises(NotAlignedError, match=f"{held[0].order_id} of the batch also arrived in"):
        merging.execute(found, shop.store)

    assert differing(shop, day(4), without=ids(held[1:])) == 0


def test_orders_are_combined_though_it_was_killed_and_taken_back(local_shop: Shop) -> None:
    """Also of customers who had none; killed where the outputs are corrected."""
    shop, held = local_shop, late_orders(0, 4)
    shop.sell(day(0), day(4), without=ids(held))
    shop.run()
    archive(shop)
    file = written(shop, held)
    words = ("merge", QUERY, "--batch", str(file), "--policy", POLICY, "--yes")
    killed = shop.command(*words, crash_at="merge.corrected_totals")
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    done = shop.json(*words)["merged"]

    assert (done["policy"], done["rows"]) == (POLICY, len(held))
    assert journal.unfinished(shop.store.root, QUERY) is None
    assert differing(shop, day(4)) == 0
    shop.sell(day(4), day(6))
    shop.run()
    assert differing(shop, day(6)) == 0
    # An exact merge of the same customers replays them, and finds them as they are.
    more = late_orders(6, 8)
    shop.sell(day(6), day(8), without=ids(more))
    shop.run()
    merged = shop.json("merge", QUERY, "--batch", str(written(shop, more, "more.parquet")), "--yes")
    assert (merged["merged"]["policy"], merged["merged"]["way"]) == ("exact", "short")
    assert differing(shop, day(8)) == 0
    assert shop.command("merge", QUERY, "--undo", "--yes").returncode == 0
    assert differing(shop, day(8), without=ids(more)) == 0
