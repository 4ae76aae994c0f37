"""Forks on real parts: two of one savepoint and the live query at once, on the same topic."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import date, timedelta
from typing import TYPE_CHECKING

import pytest

from savepoints.checkpoint.cut import read_query_id
from savepoints.io import Location
from savepoints.operations.run import run as run_module
from savepoints.outputs.delta.batch_version import open_table
from savepoints.outputs.delta.log import commits
from spark_jobs.orders.comparison import compare
from tests.e2e.marks import NIGHTLY
from tests.e2e.shop import QUERY, Shop
from tests.spark_session import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = NIGHTLY

BEGIN = date(1997, 1, 1)
FORKED, UNTIL = BEGIN + timedelta(days=4), BEGIN + timedelta(days=8)
V1, V2 = "variant_a", "variant_b"


class Runs:
    """Queries that run in threads of this process, in one Spark session."""

    def __init__(self, shop: Shop) -> None:
        """Keep the shop."""
        self._shop = shop
        self._threads: dict[str, threading.Thread] = {}
        self._stops: dict[str, list[Callable[[], None]]] = {}
        self._failures: list[BaseException] = []

    def start(self, query: str, until: str | None) -> None:
        """Begin to run a query, without an end or with one."""

        def target() -> None:
            try:
                self._shop.store.query(query).run(until=until, forms=("native",))
            except BaseException as error:
                self._failures.append(error)
                raise

        self._threads[query] = threading.Thread(target=target, name=query)
        self._threads[query].start()

    def runs(self, query: str) -> bool:
        """Say whether it runs."""
        return self._threads[query].is_alive()

    def join(self, *queries: str) -> None:
        """Wait for queries that have an end."""
        for query in queries:
            self._threads[query].join()
        assert not self._failures

    def stop(self, query: str) -> None:
        """Do what a signal does, which only the main thread can get."""
        for stop in self._stops[query]:
            stop()
        self.join(query)

    def stopped_by_signals(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        """Keep what a signal would call."""
        self._stops.setdefault(threading.current_thread().name, []).append(stop)
        return nullcontext()


@pytest.fixture
def runs(local_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    """Run queries in threads, and stop those that a failed test has left."""
    made = Runs(local_shop)
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "stopped_by_signals", made.stopped_by_signals)
        yield made
        if made._threads and made.runs(QUERY):
            made.stop(QUERY)


def transactions(uri: str) -> set[str]:
    """Return every transaction id that any commit of a table ever had."""
    newest = int(open_table(uri).version())
    return {app for one in commits(uri, newest) for app in one.transactions}


def test_two_forks_and_the_live_query_at_once_share_nothing(
    spark: SparkSession, local_shop: Shop, runs: Runs
) -> None:
    """Each equals its own program over the same orders, as pandas computes it."""
    shop, store = local_shop, local_shop.store
    shop.sell(BEGIN, FORKED)
    shop.run()
    savepoint = store.catalog.find("latest").id

    runs.start(QUERY, None)
    shop.sell(FORKED, UNTIL)
    checkpoint = Location.of(store.generations.current(QUERY).checkpoint)
    wait_until(
        lambda: not runs.runs(QUERY) or checkpoint.exists("commits/1"),
        "the live query is beyond the savepoint",
    )
    (one,) = store.savepoint(savepoint).fork(V1).execute()
    forked = shop.json("fork", savepoint, V2, "--app", "spark_jobs.order_tiers_v2:app", "--yes")
    tables = {QUERY: shop.table, V1: one.outputs["totals"]}
    tables[V2] = forked["forked"][0]["outputs"]["totals"]
    assert compare(tables[V1], FORKED).exact
    assert compare(tables[V2], FORKED).exact

    before = store.with_settings(shop.settings).create(query=V1, forms=("native",)).execute()
    assert not {V1, V2} & shop.settings.queries.keys(), "no settings name the forks"
    runs.start(V1, "latest")
    runs.start(V2, "latest")
    runs.join(V1, V2)
    assert runs.runs(QUERY), "the live query still runs"
    wait_until(lambda: shop.compare(UNTIL).exact, "the live query has caught up")
    runs.stop(QUERY)

    assert shop.compare(UNTIL).exact
    assert compare(tables[V1], UNTIL).exact
    assert compare(tables[V2], UNTIL, v2_from=FORKED).exact
    assert not compare(tables[V2], UNTIL).exact, "the second rule must show"

    known = {query: transactions(uri) for query, uri in tables.items()}
    assert known == {query: {f"{query}/totals/1"} for query in tables}
    lives = [store.generations.current(query) for query in tables]
    assert len({read_query_id(Location.of(life.checkpoint)) for life in lives}) == len(lives)
    assert [life.begun_from for life in lives] == [None, savepoint, savepoint]
    assert [one.generation for one in store.generations.all(QUERY)] == [1]

    # A fork is a query like any other: back to before its first batch, and forth again.
    shop.json("rollback", before.id, "--query", V1, "--yes")
    assert compare(tables[V1], FORKED).exact
    runs.start(V1, "latest")
    runs.join(V1)
    assert compare(tables[V1], UNTIL).exact
    assert store.generations.current(V1).generation == 2
    assert shop.compare(UNTIL).exact
