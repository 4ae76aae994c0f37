"""A seed or bootstrap that is killed anywhere continues when it is run again, or is taken back."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks import state as settings_files
from savepoints.errors import UnfinishedOperationError
from savepoints.handle import Query
from savepoints.io import Location
from savepoints.operations import unfinished
from savepoints.store import batch_log
from savepoints.store.locks import journal
from tests.e2e.shop import environment
from tests.operations.begin.lab import After, Lab

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(900)]

END = "version:2"
SEED = (
    "begun", "claimed", "files", "state", "checkpoint_written", "generation_begun",
    "savepoint_taken", "finished",
)  # fmt: skip
BOOTSTRAP = (
    "run.outputs_written",
    *(f"bootstrap.{one}" for one in ("begun", "checkpoint_written", "generation_begun")),
    *(f"bootstrap.{one}" for one in ("savepoint_taken", "finished")),
)


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Lab:
    lab = Lab.open(spark, tmp_path)
    for version in range(3):
        lab.append(version)
    return lab


def true(lab: Lab) -> tuple[After, str]:
    """Return what a streamed query has, and a table with its state."""
    streamed = lab.query("streamed", "totals")
    after = lab.advance(streamed, 2)
    (place,) = lab.given(streamed, "true").values()
    return after, place


def kill(lab: Lab, query: Query, point: str, *words: str) -> None:
    """Let the command die at a point."""
    config = lab.directory / "savepoints.toml"
    settings_files.write(query.store.settings, config)
    done = subprocess.run(
        [sys.executable, "-m", "savepoints", *words, "--yes", "--config", str(config)],
        env=environment(point),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def require_whole(lab: Lab, query: Query, cut: After, *, wrote: bool) -> None:
    """Check that a query has begun as a whole, and goes on."""
    assert journal.unfinished(query.store.root, query.name) is None
    assert [one.generation for one in query.store.generations.all(query.name)] == [1]
    (saved,) = query.savepoints()
    assert saved.cut.offsets == lab.query("streamed", "totals").latest.cut.offsets
    now = lab.now(query)
    assert (now.state, now.watermark) == (cut.state, cut.watermark)
    assert now.rows == (cut.rows if wrote else type(cut.rows)())
    lab.append(3)
    streamed = lab.advance(lab.query("streamed", "totals"), 3)
    assert lab.advance(query, 3).state == streamed.state


@pytest.mark.parametrize("point", SEED)
def test_a_seed_that_was_killed_goes_on(lab: Lab, point: str) -> None:
    cut, place = true(lab)
    lab.query("streamed", "totals").create().execute()
    query = lab.query("seeded", "totals")
    kill(lab, query, f"seed.{point}", "seed", "seeded", "--from", place, "--until", END)
    with pytest.raises(UnfinishedOperationError):
        query.run(until=END)
    plan = query.seed(place, until=END)
    assert plan.plan.resumed
    plan.execute()
    require_whole(lab, query, cut, wrote=False)


@pytest.mark.parametrize("point", BOOTSTRAP)
def test_a_bootstrap_that_was_killed_goes_on(lab: Lab, point: str) -> None:
    cut, _ = true(lab)
    lab.query("streamed", "totals").create().execute()
    query = lab.query("boot", "totals")
    kill(lab, query, point, "bootstrap", "boot", "--until", END)
    query.bootstrap(until=END).execute()
    require_whole(lab, query, cut, wrote=True)


@pytest.mark.parametrize("point", ["run.outputs_written", "bootstrap.checkpoint_written"])
def test_a_bootstrap_that_was_killed_is_taken_back(lab: Lab, point: str) -> None:
    query = lab.query("boot", "totals")
    kill(lab, query, point, "bootstrap", "boot", "--until", END)
    begun = journal.unfinished(query.store.root, "boot")
    assert begun is not None
    unfinished.undo(query.store, begun.id)
    assert not query.store.generations.all("boot")
    assert not Location.of(str(begun.plan["checkpoint"])).list()
    assert not lab.rows(query)
    # The next attempt may have other batches of the same numbers.
    assert not batch_log.read(query.store.root, "boot", 1)
    query.bootstrap(until=END).execute()
    assert lab.rows(query) == true(lab)[0].rows


def test_a_seed_that_was_killed_is_taken_back(lab: Lab) -> None:
    _, place = true(lab)
    query = lab.query("seeded", "totals")
    kill(lab, query, "seed.state", "seed", "seeded", "--from", place, "--until", END)
    begun = journal.unfinished(query.store.root, "seeded")
    assert begun is not None
    unfinished.undo(query.store, begun.id)
    assert not query.store.generations.all("seeded")
    assert not Location.of(str(begun.plan["checkpoint"])).list()
    query.seed(place, until=END).execute()
