"""Bronze, silver and gold over Kafka go back as one, and are what pandas computes afterwards."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from savepoints.local import LocalWorld
from spark_jobs.medallion import truth
from tests.e2e.late_shop import day
from tests.e2e.medallion_shop import RIGHT, MedallionShop
from tests.spark_session import wait_until

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(1200),
]


@pytest.fixture
def shop(world: LocalWorld, world_environment: dict[str, str], tmp_path: Path) -> MedallionShop:
    return MedallionShop.open(world, tmp_path)


def run_with_the_bug(shop: MedallionShop) -> None:
    queries = shop.settings.queries
    buggy = queries["silver"].model_copy(update={"app": "tests.e2e.medallion_buggy:app"})
    settings = shop.settings.model_copy(update={"queries": {**queries, "silver": buggy}})
    for level in truth.LEVELS:
        query = shop.store.with_settings(settings).query(level)
        query.run(until="latest", forms=("native",), final_savepoint=False)


def with_a_group(shop: MedallionShop) -> None:
    """Take a group while gold has not read everything that silver has written."""
    shop.sell(day(0), day(4))
    shop.run()
    shop.sell(day(4), day(8))
    shop.run("bronze", "silver")
    shop.json("pipeline", "create", "silver", "--tag", "before")


@pytest.mark.parametrize("scope", [("--all",), ()], ids=["all", "silver_and_gold"])
def test_after_a_bug_in_silver_all_is_as_if_there_had_been_none(
    shop: MedallionShop, scope: tuple[str, ...]
) -> None:
    with_a_group(shop)
    shop.sell(day(8), day(12))
    run_with_the_bug(shop)
    wrong = shop.differing(day(12))
    assert wrong["bronze"] == 0
    assert wrong["silver"] > 0
    assert wrong["gold"] > 0

    done = shop.json("pipeline", "rollback", "silver", "before", *scope, "--yes")

    back = [one["query"] for one in done["pipeline_rolled_back"]["members"]]
    assert back == ["bronze", "silver", "gold"][0 if scope else 1 :]
    shop.run()
    assert shop.differing(day(12)) == RIGHT
    shop.sell(day(12), day(16))
    shop.run()
    assert shop.differing(day(16)) == RIGHT


def test_all_are_run_on_to_exactly_a_time_between_two_groups(shop: MedallionShop) -> None:
    """What bronze has by then arrived in Kafka before; the others follow."""
    with_a_group(shop)
    shop.sell(day(8), day(12))
    run_with_the_bug(shop)
    assert shop.differing(day(12))["gold"] > 0
    # Records of this topic have the times of their orders.
    to = f"@{day(10)}T00:00:00Z"

    shop.json("pipeline", "rollback", "silver", to, "--all", "--exact", "--yes")

    assert shop.differing(day(10)) == RIGHT
    shop.run()
    assert shop.differing(day(12)) == RIGHT


@contextmanager
def all_running(shop: MedallionShop) -> Iterator[Callable[[], None]]:
    """Run all three, each in a process of its own; gives what waits until all levels are right."""
    with ExitStack() as stack:
        lives = [stack.enter_context(shop.running(level)) for level in truth.LEVELS]

        def is_right() -> bool:
            for one in lives:
                one()
            return shop.differing(day(12)) == RIGHT

        yield lambda: wait_until(is_right, "all levels are right again")


@pytest.mark.parametrize("scope", [("--all",), ()], ids=["all", "silver_and_gold"])
def test_queries_that_run_are_paused_for_it_and_go_on(
    shop: MedallionShop, scope: tuple[str, ...]
) -> None:
    with_a_group(shop)
    shop.sell(day(8), day(12))
    run_with_the_bug(shop)
    with all_running(shop) as wait_until_right:
        done = shop.json("pipeline", "rollback", "silver", "before", *scope, "--yes")

        assert len(done["pipeline_rolled_back"]["members"]) == (3 if scope else 2)
        wait_until_right()


# The worst moment of each step: what it does is done, and not yet noted.
POINTS = (
    "begun",
    "gold.safety_savepoint",
    "bronze.checkpoint_written",
    "silver.output_lines_rewound",
    "gold.caught_up",
    "bronze.generation_begun",
    "finished",
)


def test_killed_at_each_step_while_all_run_it_is_finished_and_they_go_on(
    shop: MedallionShop,
) -> None:
    """Nobody stops them: what was killed keeps them paused until it is run again."""
    with_a_group(shop)
    shop.sell(day(8), day(12))
    run_with_the_bug(shop)
    back = ("pipeline", "rollback", "silver", "before", "--all", "--yes")
    with all_running(shop) as wait_until_right:
        for point in POINTS:
            killed = shop.command(*back, crash_at=f"pipeline rollback.{point}")
            assert killed.returncode == -signal.SIGKILL, killed.stderr
            again = shop.command(*back)
            assert again.returncode == 0, again.stderr
            wait_until_right()
