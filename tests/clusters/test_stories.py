"""Rollback, merge, fork and compare on a cluster, each with an executor that is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from savepoints.checkpoint.state.operators import HDFS_PROVIDER, ROCKSDB_PROVIDER
from savepoints.local import LocalWorld
from savepoints.spark.session import session
from tests.clusters import standalone
from tests.clusters.shop import QUERY, Shop, orders
from tests.clusters.standalone import Cluster

pytestmark = [
    pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka, pytest.mark.nightly,
    pytest.mark.timeout(1200),
]  # fmt: skip

PROVIDERS = {"rocksdb": ROCKSDB_PROVIDER, "hdfs": HDFS_PROVIDER}
SEED = 7


@pytest.fixture(
    params=[
        ("in_sql", "rocksdb", "s3"),
        ("in_sql", "hdfs", "s3"),
        ("in_pandas", "hdfs", "s3"),
        ("in_sql", "rocksdb", "on_hdfs"),
    ],
    ids="-".join,
)
def shop(
    request: pytest.FixtureRequest, world: LocalWorld, cluster: Cluster, tmp_path: Path
) -> Shop:
    app, provider, where = request.param
    standalone.end_session()
    place = None if where == "s3" else request.getfixturevalue(where)
    opened = Shop.open(world, cluster, tmp_path, app, PROVIDERS[provider], place)
    require_apart(opened, tmp_path, cluster)
    return opened


def require_apart(shop: Shop, here: Path, cluster: Cluster) -> None:
    """Make sure that executors have neither the driver's packages nor its files."""
    spark = session(shop.settings, "stories")
    directory = str(here)

    def look(_: object) -> list[tuple[str, list[str], bool]]:
        import importlib.util
        import pathlib
        import sys

        names = ("obstore", "xxhash", "deltalake", "pydantic")
        found = [name for name in names if importlib.util.find_spec(name)]
        return [(sys.executable, found, pathlib.Path(directory).exists())]

    seen = spark.sparkContext.parallelize(range(2), 2).flatMap(look).collect()
    assert seen == [(str(cluster.python), [], not cluster.has_own_files)] * 2
    standalone.wait_for_executors()


def test_rollback_from_rows_with_an_executor_killed(shop: Shop) -> None:
    """State comes back from rows, into other partitions, while one of two executors dies."""
    good, bad, more = (orders(SEED, 3_000, day) for day in range(3))
    shop.sell(good)
    shop.query.run(until="latest", forms=("native", "canonical"))
    assert shop.wrong(good) == 0
    saved = shop.query.latest
    shop.sell(bad)
    shop.query.run(until="latest", app=shop.buggy, forms=("native",))
    assert shop.wrong(good + bad) > 0, "the bug must spoil something"

    with standalone.losing_an_executor(after_stages=0):
        shop.query.rollback(saved.id, form="canonical").execute()

    assert shop.wrong(good) == 0, "the output is as it was"
    shop.query.run(until="latest", forms=("native",))
    rerun = shop.query.latest
    shop.sell(more)
    with standalone.losing_an_executor(after_stages=2):
        shop.query.run(until="latest")
    assert shop.wrong(good + bad + more) == 0, "lost or doubled after the rollback"

    with standalone.losing_an_executor(after_stages=0):
        drilled = shop.store.savepoint(rerun.id).drill()
    assert (drilled.verdict, drilled.differences) == ("same", ())


def test_late_orders_are_merged_with_an_executor_killed(shop: Shop) -> None:
    days = [orders(SEED, 2_000, day) for day in range(3)]
    everything = days[0] + days[1]
    late = [one for one in everything if one.customer.endswith("3")]
    held = {one.id for one in late}
    for day in days[:2]:
        shop.sell([one for one in day if one.id not in held])
        shop.query.run(until="latest", forms=("native",))
    shop.archive()
    assert shop.wrong([one for one in everything if one.id not in held]) == 0

    with standalone.losing_an_executor(after_stages=10):
        shop.query.merge(shop.write(late)).execute()

    assert shop.wrong(everything) == 0
    shop.sell(days[2])
    shop.query.run(until="latest", forms=("native",))
    assert shop.wrong(everything + days[2]) == 0, "the state is right, too"


def test_forks_are_compared_with_an_executor_killed(shop: Shop) -> None:
    first, second = (orders(SEED, 2_000, day) for day in range(2))
    shop.sell(first)
    shop.query.run(until="latest", forms=("native", "canonical"))
    saved = shop.query.latest
    shop.store.savepoint(saved.id).fork("same").execute()
    shop.store.savepoint(saved.id).fork("other", app=shop.buggy).execute()
    shop.sell(second)

    with standalone.losing_an_executor(after_stages=3):
        found = shop.store.compare(QUERY, "same", "other").execute()

    assert [one.verdict for one in found.pairs] == ["same", "different"]
    assert shop.wrong(first + second) == 0
    (totals,) = found.pairs[1].outputs
    assert totals.changed == len({one.customer for one in second}), "each order of them is doubled"
