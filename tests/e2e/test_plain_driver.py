"""Drivers that users write: no `App`, no settings, `attach` as in the README and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from savepoints.errors import (
    LockedError,
    NotAlignedError,
    QueryRunningError,
    UnfinishedOperationError,
)
from savepoints.io import Location
from savepoints.operations.run import pause
from savepoints.store.locks import lease
from tests.e2e.plain_driver import Driver
from tests.killed import killed_at
from tests.spark_session import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def driver(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    made = Driver(spark, tmp_path, getattr(request, "param", "append"))
    yield made
    for query in made.started:
        query.stop()


@pytest.mark.parametrize(
    "driver",
    ["append", pytest.param("complete", marks=pytest.mark.nightly)],
    indirect=True,
)
def test_trap_a_table_that_nobody_named_keeps_the_rows_of_the_bug(driver: Driver) -> None:
    """Bug, rollback, going on: state, offsets and table, found by the query's own sink."""
    driver.add(1, 2, 3)
    driver.add(3, 4)
    good = driver.run()
    assert [one.uri for one in good.outputs] == [driver.table]
    before = driver.truth()
    assert driver.rows() == before
    driver.add(5, 15)
    driver.run(factor=-1)
    driver.add(6)
    driver.run(factor=-1)
    assert driver.rows() != driver.truth()

    done = driver.store.savepoint(good.id).rollback(to=f"{driver.checkpoint}-fixed").execute()
    assert driver.rows() == before
    driver.checkpoint = done.checkpoint
    driver.add(7, 1)
    driver.run()

    assert driver.rows() == driver.truth()


def test_trap_a_rollback_under_a_driver_that_nobody_knows_of(driver: Driver) -> None:
    """Whoever is attached holds the query, so the table is not taken away below it."""
    driver.add(1)
    good = driver.run()
    driver.add(2)
    query = driver.start()
    attached = driver.attach(query)
    query.processAllAvailable()

    refused: list[Callable[[], object]] = [
        lambda: driver.store.savepoint(good.id).rollback(to=f"{driver.checkpoint}-2").execute(),
        lambda: pause.pause(driver.store, "numbers"),
        lambda: driver.attach(query),
    ]
    for verb in refused:
        with pytest.raises(QueryRunningError, match="has been running in its own driver") as error:
            verb()
        assert "attached.stop()" in error.value.hint
    assert pause.state(driver.store, "numbers").state == "running"
    assert query.isActive

    last = attached.stop()
    assert last is not None
    assert (last.kind, last.generation) == ("final", 1)
    assert lease.holder(driver.store.root, "numbers") is None
    driver.store.savepoint(good.id).rollback(to=f"{driver.checkpoint}-2").execute()
    assert driver.rows() == [(1, 1)]


@pytest.mark.nightly
def test_when_the_query_ends_by_itself_it_is_free(driver: Driver) -> None:
    driver.add(1)
    query = driver.start()
    driver.attach(query)
    query.processAllAvailable()

    query.stop()

    wait_until(lambda: lease.holder(driver.store.root, "numbers") is None, "nobody holds it")


def test_trap_the_old_checkpoint_is_started_again_after_a_rollback(driver: Driver) -> None:
    driver.add(1)
    good = driver.run()
    driver.add(2)
    driver.run()
    driver.store.savepoint(good.id).rollback(to=f"{driver.checkpoint}-2").execute()
    driver.add(3)

    query = driver.start()
    with pytest.raises(NotAlignedError, match="its generation 1 has ended"):
        driver.attach(query)

    assert not query.isActive, "what it writes would spoil the table"
    newest = driver.store.events.all()[0]
    assert (newest.verb, newest.result, newest.error) == ("attach", "failed", "NotAlignedError")


def test_trap_a_driver_goes_on_below_a_rollback_that_was_killed(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that takes a failure to attach lightly wrote into a table half taken back."""
    driver.add(1)
    good = driver.run()
    driver.add(2)
    driver.run()
    rollback = driver.store.savepoint(good.id).rollback(to=f"{driver.checkpoint}-2")
    killed_at(monkeypatch, "rollback.begun", rollback.execute)

    query = driver.start()
    with lease.hold(driver.store.root, "numbers", "rollback"), pytest.raises(LockedError):
        driver.attach(query)
    assert not query.isActive, "while somebody finishes it"

    query = driver.start()
    with pytest.raises(UnfinishedOperationError):
        driver.attach(query)
    assert not query.isActive


@pytest.mark.nightly
def test_trap_the_old_checkpoint_has_written_batches_of_the_new_one(driver: Driver) -> None:
    """What the old one writes before `attach` stops it has the numbers of the next batches."""
    driver.add(1)
    good = driver.run()
    driver.add(2)
    driver.run()
    driver.add(3)
    old, new = driver.checkpoint, f"{driver.checkpoint}-2"
    driver.store.savepoint(good.id).rollback(to=new).execute()
    mistaken = driver.start()  # Without `attach`, which would stop it.
    mistaken.processAllAvailable()
    mistaken.stop()
    assert driver.rows() == [(1, 1), (3, 3)], "batch 2 of the old one is in the table"

    driver.checkpoint = new
    query = driver.start()
    with pytest.raises(NotAlignedError, match="already has the batches of numbers up to 2") as no:
        driver.attach(query)
    assert not query.isActive

    assert f"savepoints rollback {good.id} --query numbers" in no.value.hint
    driver.checkpoint = f"{old}-3"
    # It may have begun a batch before `attach` stopped it, which looks as if it ran.
    driver.store.savepoint(good.id).rollback(to=driver.checkpoint, stopped=True).execute()
    driver.run()
    assert driver.rows() == driver.truth()


@pytest.mark.nightly
@pytest.mark.parametrize("on_ended", ["stop", "detach"])
def test_batches_of_an_old_checkpoint_are_noticed_while_it_runs(
    driver: Driver, on_ended: str
) -> None:
    driver.add(1)
    driver.run()
    query = driver.start()
    attached = driver.attach(query, every="200ms", on_ended=on_ended)

    # What Delta's sink writes for the other driver: rows, and the number of the batch.
    properties = CommitProperties(app_transactions=[Transaction(str(query.id), 9)])
    rows = pa.table({"n": pa.array([9], pa.int64()), "v": pa.array([9], pa.int64())})
    write_deltalake(driver.table, rows, mode="append", commit_properties=properties)

    wait_until(lambda: not attached.active, "it takes no more savepoints")
    wait_until(lambda: query.isActive == (on_ended == "detach"), "the query does what was said")
    assert "already has the batches of numbers up to 9" in str(attached.attempts[-1].error)


@pytest.mark.parametrize("on_ended", ["stop", pytest.param("detach", marks=pytest.mark.nightly)])
def test_a_generation_that_ends_below_it_is_noticed(driver: Driver, on_ended: str) -> None:
    """As when its lease was lost for minutes, and somebody acted meanwhile."""
    driver.add(1)
    driver.run()
    query = driver.start()
    attached = driver.attach(query, every="200ms", on_ended=on_ended)
    saved = len(driver.store.catalog.all())
    driver.store.generations.begin(
        "numbers", 2, Location.of(f"{driver.checkpoint}-2"), by="rollback"
    )

    wait_until(lambda: not attached.active, "it takes no more savepoints")

    wait_until(lambda: query.isActive == (on_ended == "detach"), "the query does what was said")
    assert isinstance(attached.attempts[-1].error, NotAlignedError)
    with pytest.raises(NotAlignedError, match="continues at"):
        attached.stop()  # As a service does when its query has ended.
    assert not query.isActive
    assert len(driver.store.catalog.all()) == saved


def test_trap_a_restored_query_writes_into_a_table_that_has_seen_its_batches(
    driver: Driver,
) -> None:
    """Refused; and what would have come of it, as the negative control."""
    driver.add(1)
    good = driver.run()
    driver.add(2)
    driver.add(3)
    driver.run()
    DeltaTable(driver.table).restore(0)  # By hand, which leaves the transaction ids.
    to = f"{driver.checkpoint}-2"

    with pytest.raises(
        NotAlignedError, match="Delta would silently drop all batches up to"
    ) as refused:
        driver.store.savepoint(good.id).restore(to).execute()
    assert f"savepoints rollback {good.id}" in refused.value.hint
    assert not Location.of(to).list()

    driver.store.savepoint(good.id).restore(to, check_outputs=False).execute()
    driver.checkpoint = to
    driver.start().processAllAvailable()
    assert driver.rows() == [(1, 1)], "the rows of two batches are lost"


def test_without_a_table_that_is_known_a_rollback_wants_an_answer(driver: Driver) -> None:
    driver.add(1)
    query = driver.start()
    attached = driver.attach(query, outputs={})
    query.processAllAvailable()
    good = attached.stop()
    assert good is not None

    with pytest.raises(
        NotAlignedError, match="the output tables of numbers are unknown"
    ) as refused:
        driver.store.savepoint(good.id).rollback(to=f"{driver.checkpoint}-2").execute()
    assert "--outputs none" in refused.value.hint

    done = (
        driver.store.savepoint(good.id)
        .rollback(to=f"{driver.checkpoint}-2", rewind_outputs=False)
        .execute()
    )
    assert done.generation == 2


def test_trap_a_rollback_under_a_driver_that_nobody_attached(driver: Driver) -> None:
    """Nobody has its lease: only that its checkpoint goes on tells that it runs."""
    for number in range(200):
        driver.add(number)
    query = driver.start()
    wait_until(lambda: len(query.recentProgress) > 3, "some batches were committed")
    good = driver.store.create(
        query="numbers",
        checkpoint=driver.checkpoint,
        outputs={"numbers": driver.table},
        forms=("native",),
    ).execute()

    with pytest.raises(QueryRunningError, match="is running: its driver just committed a batch in"):
        driver.store.savepoint(good.id).rollback(to=f"{driver.checkpoint}-2").execute()

    query.stop()
    driver.store.savepoint(good.id).rollback(to=f"{driver.checkpoint}-2", stopped=True).execute()
    # Each batch was one file; files of one moment come in any order.
    rows = driver.rows()
    assert len(rows) == good.cut.batch_id + 1
    assert set(rows) <= {(n, n) for n in range(200)}


@pytest.mark.nightly
@pytest.mark.parametrize("driver", ["upsert"], indirect=True)
def test_what_foreach_batch_merges_goes_back_too(driver: Driver) -> None:
    """Its table has to be named, and its transactions carry Spark's id of the query."""
    driver.add(1, 2, 13)
    driver.add(3, 4)
    good = driver.run()
    before = driver.truth()
    assert driver.rows() == before
    driver.add(5, 15)
    driver.run(factor=-1)

    done = driver.store.savepoint(good.id).rollback(to=f"{driver.checkpoint}-fixed").execute()
    assert driver.rows() == before
    driver.checkpoint = done.checkpoint
    driver.add(7, 1)
    driver.run()

    assert driver.rows() == driver.truth()
