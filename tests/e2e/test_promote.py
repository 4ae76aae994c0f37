"""`promote`: the fork takes over at exact offsets, and each order has its effect once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import date, timedelta
from pathlib import Path

import pytest

from savepoints.errors import CheckFailedError
from savepoints.operations.fork import promote, promote_plan
from savepoints.operations.run import pause
from spark_jobs.orders.comparison import Comparison, compare
from tests.e2e.shop import QUERY, RIGHT, Shop, run_apart
from tests.spark_session import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(900)]

BEGIN = date(1997, 1, 1)
V2 = "spark_jobs.order_tiers_v2:app"


def day(number: int) -> date:
    return BEGIN + timedelta(days=number)


def running(shop: Shop) -> AbstractContextManager[Callable[[], None]]:
    """Run the live query in a process of its own, as a supervisor would."""
    return run_apart(shop.directory, shop.store.root, QUERY)


def truth_of(shop: Shop, uri: str, until: date, v2_from: date | None) -> Comparison:
    return compare(uri, until, v2_from=v2_from)


@pytest.fixture
def forked(local_shop: Shop) -> Shop:
    """Give a shop whose query has a fork with the second program, both at the fourth day."""
    shop = local_shop
    shop.sell(day(0), day(3))
    shop.run()
    shop.store.savepoint("latest").fork("tiers_v2", app=V2).execute()
    return shop


@pytest.mark.nightly
def test_a_fork_takes_over_from_a_query_that_runs_and_back_again(forked: Shop) -> None:
    """Under load: orders arrive all the time, and none is lost or counted twice."""
    shop = forked
    with running(shop):
        shop.sell(day(3), day(5))
        plan = promote_plan.plan(shop.store, "tiers_v2")
        shop.sell(day(5), day(6))
        done = promote.execute(plan, shop.store)
        assert done.resumed
        assert done.pause_seconds is not None
        assert done.application == V2
        shop.sell(day(6), day(8))
        wait_until(
            lambda: compare(shop.table, day(8), v2_from=day(3)).exact,
            "the live table is what pandas says",
        )
        pause.pause(shop.store, QUERY, wait=timedelta(minutes=2))
    store = shop.store
    assert store.generations.current(QUERY).begun_by == "promote"
    assert store.generations.current("tiers_v2").generation == 1, "the fork stays what it is"

    planned = shop.json("promote", QUERY, "--undo", "--dry-run")["plan"]
    undone = shop.json("promote", QUERY, "--undo", "--yes")["rolled_back"]

    assert f"continues with the program {RIGHT}, not {V2}" in " ".join(planned["warnings"])
    assert undone["generation"] == store.generations.current(QUERY).generation
    pause.resume(store, QUERY)
    shop.run()
    assert compare(shop.table, day(8)).exact, "as if it had never been promoted"


@pytest.mark.nightly
def test_a_failing_check_leaves_the_live_query_running_as_if_nothing_had_happened(
    forked: Shop,
) -> None:
    shop = forked
    settings = shop.settings.model_copy(
        update={
            "promote": shop.settings.promote.model_copy(
                update={"checks": {"nobody is gold": "SELECT count(*) = 0 FROM totals"}}
            )
        }
    )
    with running(shop):
        shop.sell(day(3), day(4))
        plan = promote_plan.plan(shop.store.with_settings(settings), "tiers_v2")
        with pytest.raises(CheckFailedError, match="nobody is gold: false"):
            promote.execute(plan, shop.store.with_settings(settings))
        shop.sell(day(4), day(5))
        wait_until(lambda: compare(shop.table, day(5)).exact, "the live query has gone on")
    assert shop.store.generations.current(QUERY).generation == 1


@pytest.mark.nightly
def test_readers_are_pointed_at_the_fork_s_table(forked: Shop) -> None:
    """The live query goes on in the fork's table; the fork itself can no longer run."""
    shop = forked
    shop.sell(day(3), day(5))
    plan = promote_plan.plan(shop.store, "tiers_v2", hand_over="point")

    done = promote.execute(plan, shop.store)
    shop.sell(day(5), day(6))
    ran = shop.json("run", QUERY, "--until", "latest")

    where = shop.command("locate", QUERY, "totals").stdout.strip()
    assert done.outputs == {"totals": where}
    assert where != shop.table
    assert ran["run"]["generation"] == 2
    assert compare(where, day(6), v2_from=day(3)).exact
    assert compare(shop.table, day(3)).exact, "the old table stays as it was"
    refused = shop.command("run", "tiers_v2", "--until", "latest", "-o", "json")
    assert refused.returncode == 10, refused.stderr
    assert "promoted to order_totals" in refused.stderr
    assert Path(shop.directory, "savepoints.toml").read_text().count("order_tiers_v2") == 0
