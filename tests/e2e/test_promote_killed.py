"""A promotion that is killed anywhere is finished by the same command, or taken back.

At the end every order has its effect once, by the program that is the live one then.
"""

from __future__ import annotations

import signal
import threading

import pytest

from savepoints.operations import unfinished
from savepoints.operations.fork import promote, promote_plan
from savepoints.store.locks import journal
from spark_jobs.orders.comparison import compare
from tests import draw
from tests.e2e.shop import QUERY, Shop
from tests.e2e.test_promote import V2, day, running
from tests.spark_session import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(1800)]

# Before its journal begins, and in it.
BEFORE = ("promote.caught_up", "promote.paused", "promote.met", "promote.checked")
STEPS = (
    "promote.begun",
    "promote.safety_savepoint",
    "promote.fork_saved",
    "promote.checkpoint_written",
    "promote.outputs_taken_over",
    "promote.generation_begun",
    "promote.settled",
    "promote.finished",
)
# By day nobody is killed: tests/operations/fork kills the journalled part without a JVM.
NOWHERE = ""


@pytest.fixture
def forked(local_shop: Shop) -> Shop:
    """Give a shop whose query has gone on since it was forked; neither runs."""
    shop = local_shop
    shop.sell(day(0), day(3))
    shop.run()
    shop.store.savepoint("latest").fork("tiers_v2", app=V2).execute()
    shop.sell(day(3), day(4))
    shop.run()
    return shop


def kill(shop: Shop, point: str) -> None:
    done = shop.command("promote", "tiers_v2", "--yes", crash_at=point)
    assert done.returncode == -signal.SIGKILL, done.stderr


@draw.taking_turns("promote", "compare", "drill")
@pytest.mark.parametrize(
    "point", [NOWHERE, *(pytest.param(one, marks=pytest.mark.nightly) for one in (*BEFORE, *STEPS))]
)
def test_killed_and_run_again_the_fork_has_taken_over(forked: Shop, point: str) -> None:
    shop = forked
    if point != NOWHERE:
        kill(shop, point)

    plan = promote_plan.plan(shop.store, "tiers_v2")
    done = promote.execute(plan, shop.store)
    assert done.generation == 2
    shop.sell(day(4), day(5))
    shop.run(app=V2)

    assert journal.unfinished(shop.store.root, QUERY) is None
    assert [one.status for one in shop.store.generations.all(QUERY)] == ["current", "ended"]
    assert compare(shop.table, day(5), v2_from=day(3)).exact


@pytest.mark.nightly
@pytest.mark.parametrize("point", STEPS[:-3])
def test_killed_and_taken_back_it_is_as_if_nothing_had_happened(forked: Shop, point: str) -> None:
    shop = forked
    kill(shop, point)
    operation = journal.unfinished(shop.store.root, QUERY)
    assert operation is not None

    unfinished.undo(shop.store, operation.id)
    shop.sell(day(4), day(5))
    shop.run()

    assert [one.status for one in shop.store.generations.all(QUERY)] == ["current"]
    assert compare(shop.table, day(5)).exact


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(30))
def test_at_random_moments_under_load_nothing_is_lost_or_doubled(
    local_shop: Shop, number: int
) -> None:
    """Orders arrive all the time; the promotion is killed at a random step and run again."""
    shop, chance = local_shop, draw.chance("promote under load", number)
    forked_at = chance.randint(2, 5)
    shop.sell(day(0), day(forked_at))
    shop.run()
    shop.store.savepoint("latest").fork("tiers_v2", app=V2).execute()
    end = forked_at + chance.randint(4, 8)
    stopped = threading.Event()

    def trickle() -> None:
        for at in range(forked_at, end):
            stopped.wait(chance.random() * 5)
            shop.sell(day(at), day(at + 1))

    point = chance.choice((*BEFORE, *STEPS))

    def is_exact() -> bool:
        require_alive()
        return compare(shop.table, day(end), v2_from=day(forked_at)).exact

    with running(shop) as require_alive:
        selling = threading.Thread(target=trickle)
        selling.start()
        stopped.wait(chance.random() * 10)
        kill(shop, point)
        plan = promote_plan.plan(shop.store, "tiers_v2")
        promote.execute(plan, shop.store)
        selling.join()
        wait_until(is_exact, f"the live table is what pandas says, after {point}")
    undone = shop.command("promote", QUERY, "--undo", "--yes")
    assert undone.returncode == 0, undone.stderr
    shop.run()
    assert compare(shop.table, day(end)).exact
