"""`page` and `ui` from the command line, on a real checkpoint, without a JVM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from savepoints.handle import Store
from tests.samples import saved
from tests.ui.html_page import HtmlPage

Call = Any


def test_page_writes_a_file(call: Call, local_store: Store, tmp_path: Path) -> None:
    taken = saved(local_store, "rocksdb")
    out = tmp_path / "store.html"

    called = call("page", "--out", str(out), "--store", str(local_store.root), "-o", "json")

    assert called.code == 0, called.err
    assert json.loads(called.out) == {
        "schema_version": 1, "path": str(out), "bytes": out.stat().st_size,
    }  # fmt: skip
    page = HtmlPage(out.read_text())
    assert ("id", taken.id) in page.attributes
    assert f"batch {taken.cut.batch_id} committed" in page.text, "read from the checkpoint"


def test_page_refuses_what_it_cannot_write_or_find(
    call: Call, local_store: Store, tmp_path: Path
) -> None:
    saved(local_store, "rocksdb")
    store = ("--store", str(local_store.root))

    assert call("page", "--out", str(tmp_path / "no" / "x.html"), *store).code == 2
    called = call("page", "--out", str(tmp_path / "x.html"), "--query", "nobody", *store)
    assert (called.code, "no query 'nobody'" in called.err) == (10, True)
    assert list(tmp_path.glob("*.html")) == []


def test_ui_serves_until_it_is_told_to_stop(local_store: Store) -> None:
    taken = saved(local_store, "rocksdb")
    command = ["savepoints", "ui", "--port", "0", "--store", str(local_store.root), "-o", "json"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "JAVA_HOME": "/no/java", "PATH": ""}
    with subprocess.Popen(
        [sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True, env=environment
    ) as served:
        assert served.stdout is not None
        try:
            lines = [served.stdout.readline() for _ in range(4)]
            url = json.loads("".join(lines))["url"]
            assert taken.id in urllib.request.urlopen(url, timeout=60).read().decode()
        finally:
            served.send_signal(signal.SIGTERM)
        assert served.wait(60) in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
