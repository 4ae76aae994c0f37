"""`pause` and `resume` on the command line, without a JVM."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.run.pause import state
from savepoints.operations.run.supervisor import Segment, Supervisor
from savepoints.store.locks import lease
from savepoints.store.locks.lease import Lease
from tests.cli.conftest import Call
from tests.samples import unpack
from tests.spark_session import wait_until

pytestmark = pytest.mark.drawn(2)

QUERY = "order_totals"


@pytest.fixture
def root(local_store: Store, on_local: Location) -> str:
    """Give a store with a query that is not running."""
    live = unpack("rocksdb", on_local / "live")
    local_store.generations.begin(QUERY, 1, live, by="run")
    return str(local_store.root)


def no_segment(_supervisor: Supervisor, _held: Lease) -> Segment:
    raise AssertionError


def test_a_query_without_a_run_is_paused_and_resumed(call: Call, root: str) -> None:
    paused = call("pause", QUERY, "--wait", "--reason", "new layout", "--store", root, "-o", "json")
    assert paused.code == 0
    now = paused.document["pause"]
    assert (now["state"], now["wanted"], now["changed"]) == ("stopped", "paused", True)
    assert (now["reason"], now["run"], now["savepoint_id"]) == ("new layout", None, None)

    again = call("pause", QUERY, "--store", root)
    assert again.code == 0
    assert "already stopped" not in again.out
    assert "new layout" in again.out
    assert "no run is active: the next one starts paused" in again.out

    resumed = call("resume", QUERY, "--wait", "1s", "--store", root)
    assert resumed.code == 0
    assert f"start one with savepoints run {QUERY}" in resumed.out
    nothing = call("resume", QUERY, "--store", root, "-o", "json")
    assert nothing.document["pause"]["changed"] is False


def test_a_paused_query_says_since_when_and_where_it_stands(call: Call, root: str) -> None:
    store = Store.at(root).make()
    call("pause", QUERY, "--store", root)
    assert Supervisor(store, QUERY, idles=False).supervise(no_segment) is None

    shown = call("pause", QUERY, "--wait", "--store", root)

    assert shown.code == 0
    assert "already paused" in shown.out
    assert "paused since" in shown.out
    assert "3, generation 1" in shown.out
    assert f"savepoints resume {QUERY}" in shown.out


def test_what_is_not_done_within_the_time_exits_with_3(call: Call, root: str) -> None:
    with lease.hold(Store.at(root).make().root, QUERY, "run"):
        late = call("pause", QUERY, "--wait", "100ms", "--store", root, "-o", "json")
        assert late.code == 3
        assert late.error["state"] == "pausing"
        assert "is not paused after 100ms" in late.error["message"]
        assert call("pause", QUERY, "--store", root).code == 0


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_refusals(verb: str, call: Call, root: str) -> None:
    unknown = call(verb, "clicks", "--store", root, "-o", "json")
    assert (unknown.code, unknown.error["name"]) == (10, "QueryNotFoundError")
    assert QUERY in unknown.error["hint"]
    # The value of --wait may be left out, so the query goes in front of it.
    swallowed = call(verb, "--wait", QUERY, "--store", root)
    assert swallowed.code == 2
    assert call(verb, QUERY, "--wait", "soon", "--store", root).code == 2


@pytest.fixture
def settings(root: str, tmp_path: Path) -> Path:
    """Give a settings file of the query; Kafka is nowhere, and nobody asks for it."""
    file = tmp_path / "savepoints.toml"
    file.write_text(
        f'store = "{root}"\n[queries.{QUERY}]\napp = "spark_jobs.order_totals:app"\n'
        f'checkpoints = "{tmp_path}/checkpoints"\n'
        f'[queries.{QUERY}.outputs]\ntotals = "{tmp_path}/totals"\n'
    )
    return file


def test_a_signal_ends_a_run_that_was_paused_when_it_began(
    call: Call, root: str, settings: Path
) -> None:
    """As a pod that is stopped; Spark has never been started."""
    store = Store.at(root).make()
    call("pause", QUERY, "--reason", "no start tonight", "--store", root)
    runner = subprocess.Popen(
        [sys.executable, "-m", "savepoints", "run", QUERY, "--config", str(settings), "-o", "json"],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(
            lambda: runner.poll() is not None or state(store, QUERY).state == "paused",
            "the run has answered",
        )
        assert runner.poll() is None, runner.communicate()
        assert str(state(store, QUERY).run).startswith(f"process {runner.pid} on")
        runner.send_signal(signal.SIGTERM)
        out, err = runner.communicate(timeout=60)
    finally:
        runner.kill()
    assert runner.returncode == 0, err
    assert json.loads(out)["run"]["ended"] == "paused"
    assert "no start tonight" in err
    assert "starting Spark" not in err
    assert state(store, QUERY).run is None


def test_a_run_with_an_end_ends_at_once_while_the_query_is_paused(
    call: Call, root: str, settings: Path
) -> None:
    """Cron would start another and another that wait."""
    call("pause", QUERY, "--store", root)
    for end in (("--until", "latest"), ("--max-duration", "4m"), ("--max-records", "5")):
        ended = call("run", QUERY, *end, "--config", str(settings), "-o", "json")
        assert ended.code == 0, ended.err
        ran = ended.document["run"]
        assert (ran["ended"], ran["batches"], ran["generation"]) == ("paused", 0, 1)
        assert ended.document["savepoint"] is None
    assert "starting Spark" not in ended.err
