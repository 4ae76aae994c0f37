"""Pause and resume of a real run: what is done to the query meanwhile is what it goes on with."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import date, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from savepoints.io import Location
from savepoints.operations.run.pause import pause, resume
from savepoints.store.locks import lease
from tests.e2e.shop import QUERY, Shop, environment
from tests.spark_session import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]

BEGIN = date(1997, 1, 1)
LONG = timedelta(minutes=2)


@pytest.fixture
def told(local_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Give the documents that the shop's hook is sent."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    documents: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            documents.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        with (local_shop.directory / "savepoints.toml").open("a") as file:
            file.write(f'\n[hooks]\nurl = "http://127.0.0.1:{server.server_port}/hook"\n')
        yield documents
        server.shutdown()
        thread.join()


@pytest.mark.nightly
def test_a_paused_query_is_rolled_back_and_its_process_goes_on_from_there(
    local_shop: Shop, told: list[Any]
) -> None:
    """The process stays the same, the generation does not, and the output is exact at the end."""
    shop = local_shop
    good, until = BEGIN + timedelta(days=4), BEGIN + timedelta(days=8)
    shop.sell(BEGIN, good)
    runner = subprocess.Popen(
        [sys.executable, "-m", "savepoints", "run", QUERY, "--format", "native"],
        cwd=shop.directory,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    checkpoints = Location.of(f"{shop.root}/checkpoints/{QUERY}")

    def wait_for_batch(generation: int, batch: int) -> None:
        path = f"{generation}/commits/{batch}"
        wait_until(
            lambda: runner.poll() is not None or checkpoints.exists(path), f"{path} is there"
        )
        assert runner.poll() is None, runner.communicate()

    try:
        wait_for_batch(1, 0)
        first = shop.json("pause", QUERY, "--wait", "--reason", "before the release")["pause"]
        assert (first["state"], first["changed"], first["generation"]) == ("paused", True, 1)
        assert shop.store.catalog.find(first["savepoint_id"]).cut.batch_id == first["batch_id"]
        assert shop.compare(good).exact
        assert f"process {runner.pid} on" in first["run"]
        assert lease.holder(shop.store.root, QUERY) is None

        shop.sell(good, until)
        assert resume(shop.store, QUERY, wait=LONG).state == "running"
        wait_for_batch(1, first["batch_id"] + 1)
        second = pause(shop.store, QUERY, wait=LONG)
        assert shop.compare(until).exact
        assert second.savepoint_id != first["savepoint_id"]
        back = shop.command("rollback", first["savepoint_id"], "--yes")
        assert back.returncode == 0, back.stderr
        assert shop.compare(good).exact
        assert resume(shop.store, QUERY, wait=LONG).state == "running"
        wait_for_batch(2, first["batch_id"] + 1)
        runner.send_signal(signal.SIGTERM)
        out, err = runner.communicate(timeout=100)
    finally:
        runner.kill()
    assert runner.returncode == 0, err
    assert f"{QUERY}, generation 2" in out
    assert "stopped by a signal" in out
    assert "resumed: generation 2 continues after batch" in err
    assert shop.compare(until).exact

    events = [one["event"] for one in told]
    # Two pauses, the safety savepoint of the rollback, and the end.
    saved = [one["savepoint_id"] for one in told if one["event"] == "savepoint"]
    assert sorted(saved) == sorted(one.id for one in shop.store.catalog.all())
    assert [one for one in events if one != "savepoint"] == ["paused", "resumed"] * 2
    paused = [one for one in told if one["event"] == "paused"]
    assert [one["savepoint_id"] for one in paused] == [
        first["savepoint_id"],
        second.savepoint_id,
    ]
    resumed = [one["generation"] for one in told if one["event"] == "resumed"]
    assert resumed == [1, 2]
