"""Late orders merged through bronze, silver and gold: each table equals pandas over all orders.

Pandas computes all levels from the orders that count, which is what a replay of all of them through
all queries gives.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from savepoints.local import LocalWorld
from savepoints.operations.inspect import read_state
from savepoints.outputs.delta.batch_version import open_table
from savepoints.store.locks import journal
from spark_jobs.medallion.truth import LEVELS
from spark_jobs.orders.cdnow import Order, orders_between, read_orders
from tests import draw
from tests.e2e.late_shop import day, ids, late_orders
from tests.e2e.medallion_shop import RIGHT, MedallionShop
from tests.spark_session import wait_until

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(1800),
]

# Until the merge is done, in the journal of silver, and in that of gold.
POINTS = (
    ("cascade.planned", "cascade.begun", "merge.checkpoint_written"),
    ("cascade.merged", "cascade.checkpoint_written", "cascade.corrected_lines"),
    ("cascade.generation_begun", "cascade.corrected_days", "cascade.settled"),
)
HELD = late_orders(1, 3)


@pytest.fixture
def shop(world: LocalWorld, world_environment: dict[str, str], tmp_path: Path) -> MedallionShop:
    return MedallionShop.open(world, tmp_path)


def batch(shop: MedallionShop, late: Sequence[Order], wrong: Sequence[Order] = ()) -> list[str]:
    """Write orders to add and to remove, and return the command that merges them into bronze."""
    return ["merge", "bronze", "--batch", shop.write_late(late, wrong), "--yes"]


def standing(shop: MedallionShop) -> list[tuple[int, int]]:
    """Return of each level its generation and the version of its table."""
    return [
        (shop.store.generations.current(level).generation, open_table(shop.table(level)).version())
        for level in LEVELS
    ]


def behind(shop: MedallionShop) -> None:
    """Let orders come, without some; silver and gold have not read all of them."""
    shop.sell(day(0), day(2), without=ids(HELD))
    shop.run()
    shop.sell(day(2), day(6), without=ids(HELD))
    shop.run("bronze")


def test_late_orders_count_at_each_level_as_if_they_had_come_in_time(shop: MedallionShop) -> None:
    behind(shop)

    done = shop.json(*batch(shop, HELD), "--downstream", "merge")

    assert [one["query"] for one in done["downstream"]] == ["silver", "gold"]
    assert shop.differing(day(6)) == RIGHT
    # State and positions are right, too.
    shop.sell(day(6), day(8))
    shop.run()
    assert shop.differing(day(8)) == RIGHT
    code, out, err = shop.call(*batch(shop, HELD), "--downstream", "merge", "-o", "json")
    again = json.loads(out)
    assert again["merged"]["merged_by"] == done["merged"]["operation_id"]
    assert (code, "corrected no query" in err) == (0, False)


@pytest.mark.parametrize(
    "words",
    [("undo", "gold"), ("merge", "bronze", "--undo")],
    ids=" ".join,
)
def test_trap_a_batch_merged_by_mistake_could_not_be_taken_back(
    shop: MedallionShop, words: Sequence[str]
) -> None:
    """Whatever came since stays, and is read again; killed, the same command goes on."""
    behind(shop)
    merged = batch(shop, HELD)
    shop.json(*merged, "--downstream", "merge")
    shop.sell(day(6), day(8))
    shop.run()

    killed = shop.command(*words, "--yes", crash_at="pipeline rollback.silver.checkpoint_written")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    shop.json("undo", "silver", "--yes")

    assert not journal.all_unfinished(shop.store.root)
    shop.run()
    assert shop.differing(day(8), without=ids(HELD)) == RIGHT
    shop.sell(day(8), day(9))
    shop.run()
    assert shop.differing(day(9), without=ids(HELD)) == RIGHT
    code, _, err = shop.call(*words, "--yes")
    wanted = (10, "the last operation was op-") if "merge" in words else (2, "cannot be undone")
    assert (code, wanted[1] in err) == (wanted[0], True), err
    # And it can be merged again.
    shop.json(*merged, "--downstream", "merge")
    assert shop.differing(day(9)) == RIGHT


def test_trap_without_the_cascade_the_readers_are_wrong(shop: MedallionShop) -> None:
    """And what a plan says would change is what differs from the truth."""
    behind(shop)
    shop.run()
    before, wrong = standing(shop), shop.differing(day(6))

    planned = shop.json(*batch(shop, HELD), "--downstream", "plan")

    assert standing(shop) == before
    assert planned["merged"] is None
    changed = {
        one["query"]: one["rows_removed"] + one["rows_added"] for one in planned["downstream"]
    }
    assert changed == {"silver": wrong["silver"], "gold": wrong["gold"]}
    shop.json(*batch(shop, HELD))
    shop.run("silver", "gold")
    code, _, err = shop.call(*batch(shop, HELD), "--downstream", "merge")
    assert code == 0
    assert "corrected no query that reads from bronze; to correct silver, gold too" in err
    left = shop.differing(day(6))
    assert left["bronze"] == 0
    assert left["silver"] > 0
    assert left["gold"] > 0


@pytest.mark.parametrize("number", range(10))
def test_it_equals_a_replay_of_all_orders_through_all_queries(
    shop: MedallionShop, number: int
) -> None:
    """Orders missing and orders that never were, at random; each level reads when it likes."""
    chance = draw.chance("merge through all levels", number)
    known = [*orders_between(read_orders(), until_date=day(6))]
    newest = max(known, key=lambda one: one.ordered_at)
    # What is newer than all that was read is not late, and refused.
    held = [one for one in known if chance.random() < 0.03 and one is not newest]
    left = [one for one in known if one.order_id not in ids(held)]
    wrong = [one for one in left if chance.random() < 0.02]
    ends = sorted(chance.sample(range(1, 6), 2))
    for begin, end in zip([0, *ends], [*ends, 6], strict=True):
        shop.sell(day(begin), day(end), without=ids(held))
        shop.run(*LEVELS[: chance.randint(1, 3) if begin else 3])

    shop.json(*batch(shop, held, wrong), "--downstream", "merge")

    assert shop.differing(day(6), without=ids(wrong)) == RIGHT
    shop.sell(day(6), day(7))
    shop.run()
    assert shop.differing(day(7), without=ids(wrong)) == RIGHT


def test_trap_days_that_are_closed_are_corrected(shop: MedallionShop) -> None:
    """Gold has dropped their state, and would drop late rows of them."""
    some = [one for one in read_orders() if one.customer_id % 20 == 0]
    others = ids(read_orders()) - ids(some)
    held = [one for one in some if day(1) <= one.ordered_at.date() < day(4)]
    for begin, end in ((0, 6), (6, 40), (40, 50)):
        shop.sell(day(begin), day(end), without=others | ids(held))
        shop.run(save=True)
    assert shop.differing(day(50), without=others | ids(held)) == RIGHT
    with read_state.read_state(shop.store, "latest", query="gold") as state:
        assert min(row["day"] for row in state.select("key.day").collect()).date() > day(4)

    shop.json(*batch(shop, held), "--downstream", "merge")

    assert shop.differing(day(50), without=others) == RIGHT
    shop.sell(day(50), day(52), without=others)
    shop.run()
    assert shop.differing(day(52), without=others) == RIGHT


def test_readers_that_run_are_paused_and_go_on(shop: MedallionShop) -> None:
    shop.sell(day(0), day(4), without=ids(HELD))
    shop.run()
    with shop.running("silver") as silver, shop.running("gold") as gold:
        done = shop.json(*batch(shop, HELD), "--downstream", "merge")

        assert [one["generation"] for one in done["downstream"]] == [2, 2]
        assert shop.differing(day(4)) == RIGHT
        shop.sell(day(4), day(5))
        shop.run("bronze")

        def arrived() -> bool:
            silver()
            gold()
            return shop.differing(day(5)) == RIGHT

        wait_until(arrived, "silver and gold have read on")


@pytest.mark.parametrize("points", POINTS)
def test_killed_at_each_step_the_same_command_goes_on(
    shop: MedallionShop, points: Sequence[str]
) -> None:
    behind(shop)
    words = [*batch(shop, HELD), "--downstream", "merge"]
    for point in points:
        done = shop.command(*words, crash_at=point)
        assert done.returncode == -signal.SIGKILL, (point, done.stderr)
        if journal.unfinished(shop.store.root, "bronze") is not None:
            # It was finished by who asked for a plan, and without its readers by who had its hint.
            for way in ("plan", "none"):
                code, _, err = shop.call(*words[:-1], way)
                assert (code, "--downstream merge" in err) == (11, True), err
            assert journal.unfinished(shop.store.root, "bronze") is not None

    shop.json(*words)

    assert not journal.all_unfinished(shop.store.root)
    assert shop.differing(day(6)) == RIGHT
    shop.sell(day(6), day(7))
    shop.run()
    assert shop.differing(day(7)) == RIGHT
