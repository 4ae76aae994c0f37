"""A changed program that goes on with the state of a savepoint."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

import pytest

from savepoints.checkpoint.cut import committed_batches
from savepoints.checkpoint.logs.kafka_position import kafka_position
from savepoints.errors import LayoutChangedError, LockedError
from savepoints.io import Location
from savepoints.operations.rollback.run_to_point import RestoredQuery
from savepoints.runtime.runner import Ran
from savepoints.sources.combined import availability
from savepoints.sources.kafka import offsets
from tests.e2e.shop import QUERY, Shop

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(900)]

RIGHT, SWAPPED = "tests.e2e.extremes:app", "tests.e2e.extremes:swapped"


# By day tests/fidelity/test_upgrades.py has the trap, without Kafka.
@pytest.mark.nightly
def test_trap_the_schema_check_ignores_column_names(local_shop: Shop) -> None:
    """Spark goes on with each aggregate's state in the other; we refuse before the first batch."""
    shop = local_shop
    shop.sell(date(1997, 1, 1), date(1997, 1, 6))
    shop.run(RIGHT, save=True)
    shop.sell(date(1997, 1, 6), date(1997, 1, 8))
    shop.store.savepoint("latest", query=QUERY).rollback().execute()
    generation = shop.store.generations.current(QUERY)
    checkpoint = Location.of(generation.checkpoint)
    before = [info.path for info in checkpoint.list()]

    with pytest.raises(
        LayoutChangedError, match=r"value field 0 was 'min long' and is now 'max long'"
    ):
        shop.run(SWAPPED)

    assert [info.path for info in checkpoint.list()] == before, "no batch was run"
    assert not shop.store.root.list("scratch"), "nothing is left of the comparison"
    assert shop.run(RIGHT).batches == 1


@pytest.mark.nightly
def test_trap_a_changed_program_is_deployed_without_any_restore(local_shop: Shop) -> None:
    """It goes on with the other's state where it left off, and Spark says nothing."""
    shop = local_shop
    said: list[str] = []

    def run(app: str, *, accept: bool = False) -> Ran:
        said.clear()
        ran, _ = shop.store.query(QUERY).run(
            app=app,
            until="latest",
            final_savepoint=False,
            accept_state_names=accept,
            progress=said.append,
        )
        return ran

    def compared() -> bool:
        return any("comparing" in one for one in said)

    shop.sell(date(1997, 1, 1), date(1997, 1, 4))
    run(RIGHT)
    assert not compared(), "there is no state yet"
    shop.sell(date(1997, 1, 4), date(1997, 1, 6))
    checkpoint = shop.checkpoint
    before = [info.path for info in checkpoint.list()]

    for _ in range(2):
        with pytest.raises(LayoutChangedError, match="'min long' and is now 'max long'"):
            run(SWAPPED)
    with pytest.raises(LayoutChangedError, match="value field 2 is new") as refused:
        run("tests.e2e.extremes:counting")
    assert "--app tests.e2e.extremes:counting --from ID" in refused.value.hint

    assert [info.path for info in checkpoint.list()] == before, "no batch was run"
    assert run(RIGHT).batches == 1
    assert not compared(), "it is the one that has run here"
    shop.sell(date(1997, 1, 6), date(1997, 1, 7))
    assert run(SWAPPED, accept=True).batches == 1
    shop.sell(date(1997, 1, 7), date(1997, 1, 8))
    assert run(SWAPPED).batches == 1
    assert not compared(), "it was accepted"


@pytest.mark.nightly  # The same check on another way, which point-in-time restores take.
def test_trap_a_restored_state_is_run_on_to_a_point_by_a_program_of_other_names(
    local_shop: Shop,
) -> None:
    """Refused before the first batch, and each batch asks first if it may still be run."""
    shop = local_shop
    shop.sell(date(1997, 1, 1), date(1997, 1, 4))
    shop.run(RIGHT, save=True)
    shop.sell(date(1997, 1, 4), date(1997, 1, 6))
    shop.store.savepoint("latest", query=QUERY).rollback().execute()
    generation = shop.store.generations.current(QUERY)
    checkpoint = Location.of(generation.checkpoint)
    before = [info.path for info in checkpoint.list()]
    to = kafka_position(offsets.ends(availability.ranges([shop.topic], shop.settings.kafka)))

    def lost() -> None:
        raise LockedError("the lease is lost")

    def run_on(app: str, check: Callable[[], None]) -> None:
        RestoredQuery(
            query=QUERY,
            app=app,
            settings=shop.settings,
            generation=generation.generation,
            checkpoint=checkpoint,
            store=shop.store,
        ).run_to(to, check=check)

    with pytest.raises(
        LayoutChangedError, match=r"value field 0 was 'min long' and is now 'max long'"
    ):
        run_on(SWAPPED, lambda: None)
    with pytest.raises(LockedError, match="lease is lost"):
        run_on(RIGHT, lost)
    assert [info.path for info in checkpoint.list()] == before, "no batch was run"
    run_on(RIGHT, lambda: None)
    assert shop.run(RIGHT).ended == "caught_up"
    assert committed_batches(checkpoint.list())[-1] == 1
