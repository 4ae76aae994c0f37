"""Rollbacks of queries whose tables only Spark can write, as users have them: bug, back, on.

Compared with pandas over the input, and the table read by Spark.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import savepoints
from savepoints.local.jars import resolve_jars
from savepoints.operations.inspect.verify import verify
from savepoints.store.locks import journal
from tests.e2e.plain_driver import Driver
from tests.processes import killed_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(900)]

# Columns, what follows them, and the property.
FEATURES = {
    "row_tracking": ("n BIGINT, v BIGINT", "", "enableRowTracking"),
    "in_commit_timestamps": ("n BIGINT, v BIGINT", "", "enableInCommitTimestamps"),
    "clustering": ("n BIGINT, v BIGINT", "CLUSTER BY (n)", "enableDeletionVectors"),
    "identity": (
        "n BIGINT, v BIGINT, id BIGINT GENERATED ALWAYS AS IDENTITY",
        "",
        "enableDeletionVectors",
    ),
    "type_widening": ("n BIGINT, v BIGINT", "", "enableTypeWidening"),
}


@pytest.fixture
def driver(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    made = Driver(spark, tmp_path, "append")
    columns, rest, feature = FEATURES[request.param]
    spark.sql(
        f"CREATE TABLE delta.`{made.table}` ({columns}) USING delta {rest} "
        f"TBLPROPERTIES ('delta.{feature}' = 'true')"
    )
    yield made
    for query in made.started:
        query.stop()


def rows(driver: Driver) -> list[tuple[int, int]]:
    """Read the table with Spark."""
    found = driver.spark.read.format("delta").load(driver.table).select("n", "v")
    return sorted(map(tuple, found.collect()))


def spoiled(driver: Driver) -> Any:
    """Run well, then with a bug; return the savepoint of before."""
    driver.add(1, 2, 3)
    driver.add(3, 4)
    good = driver.run()
    driver.add(5, 15)
    driver.run(factor=-1)
    assert rows(driver) != driver.truth()
    return good


@pytest.mark.parametrize("driver", FEATURES, indirect=True)
def test_trap_bug_rollback_and_on(driver: Driver) -> None:
    good = spoiled(driver)
    bad = rows(driver)
    plan = driver.store.savepoint(good.id).rollback(to=f"{driver.checkpoint}-2")
    assert "the commit is made in a Spark session" in str(plan)
    done = plan.execute()

    assert rows(driver) == [(n, n) for n in (1, 2, 3, 4)]
    # Back to the bug, and back again.
    back = driver.store.query("numbers").rollback(
        savepoints.BeforeLast(), to=f"{driver.checkpoint}-3"
    )
    undone = back.execute()
    assert rows(driver) == bad
    assert undone.generation == done.generation + 1
    again = driver.store.savepoint(good.id).rollback(to=f"{driver.checkpoint}-4").execute()
    driver.checkpoint = again.checkpoint
    driver.add(7, 1)
    last = driver.run()

    assert rows(driver) == driver.truth()
    for one in (good, last):
        assert verify(driver.store, one.id, depth="checksums").grade == "ok"


@pytest.mark.parametrize(
    "point", ["rollback.checkpoint_written", "rollback.output_numbers_rewound"]
)
@pytest.mark.parametrize("driver", ["row_tracking", "identity"], indirect=True)
def test_killed_between_steps_and_run_again(
    driver: Driver, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command line, in a process that starts a session of its own."""
    good = spoiled(driver)
    monkeypatch.setenv("SAVEPOINTS_JARS", str(resolve_jars().spark_directory))
    monkeypatch.setenv("SAVEPOINTS_SPARK__MASTER", "local[1]")
    to = f"{driver.checkpoint}-2"
    words = ("rollback", good.id, "--to", to, "--yes", "--store", str(driver.store.root))

    assert killed_at(point, *words) == -signal.SIGKILL
    assert journal.unfinished(driver.store.root, "numbers") is not None
    assert killed_at("", *words) == 0

    assert rows(driver) == [(n, n) for n in (1, 2, 3, 4)]
    history = driver.spark.sql(f"DESCRIBE HISTORY delta.`{driver.table}`").collect()
    assert [one["operation"] for one in history].count("RESTORE") == 1
    driver.checkpoint = to
    driver.add(7, 1)
    driver.run()
    assert rows(driver) == driver.truth()
